"""Every test of the command line stands in an empty folder, with an engine that needs no Java."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fsspeckit.cli.app import main
from inside_programs import forget_standard_input

Fsspeckit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and no configuration of the user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    return tmp_path


@pytest.fixture
def fsspeckit(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fsspeckit:
    """Run a command in the folder; exit code, standard output, standard error."""

    def run(*words: str, piped: bytes | None = None) -> tuple[int, str, str]:
        forget_standard_input()
        if piped is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run

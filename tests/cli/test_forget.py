"""The command `forget`."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest

from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def test_forget_shows_and_asks_and_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    PyarrowDatasetIO().on_terms(idempotency_key="k").write_dataset(pa.table({"id": [1]}), "lake")
    journal = tmp_path / ".lake.fsspeckit"
    rmtree("lake")
    assert main(["doctor", "lake", "--engine", "pyarrow"]) == 1
    assert "forget" in capsys.readouterr().out
    assert main(["forget", "lake", "--dry-run"]) == 0
    assert "1 idempotency key" in capsys.readouterr().out
    assert main(["forget", "lake"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert journal.exists()
    assert main(["forget", "lake", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["commits"], told["idempotency_keys"], told["dry_run"]) == (1, 1, False)
    assert not journal.exists()
    assert main(["forget", "lake", "--yes"]) == 1

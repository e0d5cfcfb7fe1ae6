"""The command `export`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

Fsspeckit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fsspeckit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fsspeckit:
    """Run a command beside a dataset; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2, 3]}), "lake")

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_export_keep_and_remove(fsspeckit: Fsspeckit) -> None:
    code, out, err = fsspeckit("export", "delta", "lake", "--keep-exported", "--json")
    facts = json.loads(out)
    assert (code, err, facts["version"], facts["rows"], facts["kept"]) == (0, "", 0, 3, True)
    assert fsspeckit("delete", "lake", "--where", "id = 1", "--quiet")[0] == 0
    assert DeltaTable("lake").version() == 1
    assert "1 (no change)" in fsspeckit("export", "delta", "lake")[1]
    assert fsspeckit("delete", "lake", "--where", "id = 2", "--quiet")[0] == 0
    assert DeltaTable("lake").version() == 1, "an export without the option ends the refreshes"
    assert fsspeckit("export", "delta", "lake", "--remove") == (0, "removed the delta metadata of lake\n", "")
    assert fsspeckit("export", "delta", "lake", "--remove", "--noop-exit-code", "4")[0] == 4


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("hudi", "lake"), 2, "hudi"),
        (("delta", "missing"), 1, "no parquet dataset at missing"),
        (("delta", "lake", "--remove", "--keep-exported"), 2, "exclude each other"),
    ],
)
def test_errors(fsspeckit: Fsspeckit, words: tuple[str, ...], code: int, problem: str) -> None:
    found, out, err = fsspeckit("export", *words)
    assert (found, out) == (code, "")
    assert problem in err

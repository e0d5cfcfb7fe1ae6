"""Commands on the folders of other programs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    rows = pa.table({"id": [1, 2], "day": ["mon", "tue"]})
    write_deltalake("table", rows, partition_by=["day"])
    PyarrowDatasetIO().write_dataset(rows, "lake")


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "table"),
        ("inspect", "table/day=mon"),
        ("doctor", "table"),
        ("compact", "table"),
        ("merge", "table", "lake", "--key", "id"),
        ("merge", "table/*/*.parquet", "lake", "--key", "id"),
        ("merge", "table/day=mon/*.parquet", "lake", "--key", "id"),
    ],
    ids=" ".join,
)
def test_a_delta_table_is_refused_with_the_way_out(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) in (1, 2)
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert "a Delta Lake table (_delta_log)" in text
    assert "write the rows to a new folder" in text

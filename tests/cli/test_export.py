"""The command `export`, and commands on the tables of other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cli.conftest import Fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


@pytest.fixture(autouse=True)
def lake(place: Path) -> None:
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2, 3]}), "lake")


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


def test_a_delta_table_of_another_program_is_refused_with_the_way_out(fsspeckit: Fsspeckit) -> None:
    write_deltalake("table", pa.table({"id": [1, 2], "day": ["mon", "tue"]}), partition_by=["day"])
    for words in (
        "inspect table",
        "inspect table/day=mon",
        "doctor table",
        "compact table",
        "merge table lake --key id",
        "merge table/*/*.parquet lake --key id",
        "merge table/day=mon/*.parquet lake --key id",
    ):
        code, out, err = fsspeckit(*words.split())
        text = " ".join((out + err).split())
        assert code in (1, 2)
        assert "a Delta Lake table (_delta_log)" in text, words
        assert "write the rows to a new folder" in text, words

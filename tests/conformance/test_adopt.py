"""`adopt`: a folder of others under the journal, with its key, types and kept versions, and no data file changed."""

from __future__ import annotations

import datetime as dt
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import Dataset
from fsspeckit.cli.app import main
from fsspeckit.common.errors import ColumnNameError, DatasetNotFoundError, KeyColumnError, PartitionError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import contents, data_files, put, tree_of


def rows(ids: list[int], **columns: Any) -> pa.Table:
    return pa.table({"v": [f"v{number % 2}" for number in ids], "order_id": pa.array(ids, pa.int64()), **columns})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Two days, INT96 timestamps, a column of two types, and ids that are unique."""
    at = pa.array([dt.datetime(2026, 11, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC"))
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True}
    for day, ids in {"2026-11-01": [1, 2, 3], "2026-11-02": [4, 5, 6]}.items():
        for part, n in (("a", pa.int32()), ("b", pa.int64())):
            more = [number + (10 if part == "b" else 0) for number in ids]
            table = rows(more, at=at, n=pa.array([1, 1, 2], n))
            put(tmp_path / "d" / f"day={day}" / f"{part}.parquet", table, **options)
    return str(tmp_path / "d")


def test_a_dry_run_says_what_is_there_and_changes_nothing(io: Any, tmp_path: Path, lake: str) -> None:
    before = tree_of(tmp_path)
    found = io.adopt(lake)
    assert tree_of(tmp_path) == before
    assert (found.rows, found.files, found.small_files, found.dry_run) == (12, 4, 4, True)
    assert found.key_columns == ["order_id"]
    assert found.unique_keys == [["order_id"]]
    assert found.partition_types == {"day": "date32[day]"}
    assert found.int96 == ["at"]
    assert found.mixed_types == {"n": {"int32": 2, "int64": 2}}
    assert [name.startswith("parquet-cpp-arrow") for name in found.writers] == [True]
    assert found.commands == [
        f"fsspeckit adopt {lake} --key order_id --yes",
        f"fsspeckit alter {lake} --timestamps micros",
        f"fsspeckit compact {lake}",
    ]
    for part in ("order_id (would be recorded)", "day date32[day]", "INT96 in at", *found.commands):
        assert part in str(found)


def test_the_recorded_key_is_that_of_later_calls(io: Any, tmp_path: Path, lake: str) -> None:
    files = contents(tmp_path / "d")
    done = io.adopt(lake, dry_run=False)
    assert contents(tmp_path / "d") == files
    assert done.commit_seq == 1
    assert [command.split()[1] for command in done.commands] == ["alter", "compact"]
    source = io.read_parquet(lake, filters="order_id = 1").set_column(0, "v", pa.array(["new"]))
    merged = io.merge(source, lake)
    assert (merged.updated, merged.inserted) == (1, 0)
    assert io.deduplicate_parquet_dataset(lake)["deduplicated_rows"] == 0
    newer = source.set_column(source.column_names.index("n"), "n", pa.array([5]))
    assert io.apply_changes(newer, lake, sequence_by="n").updated == 1
    plan = io.merge(source, lake, dry_run=True)
    assert (plan.updated, io.merge(source, lake, plan=plan).updated) == (1, 1)
    assert io.read_parquet(lake, version=1)["v"].to_pylist().count("new") == 0
    if type(io).__name__ == "PyarrowDatasetIO":
        dataset = Dataset(lake, engine=io)
        assert dataset.merge(source).unchanged == 1
        assert dataset.deduplicate()["deduplicated_rows"] == 0
    assert io.adopt(lake).key_columns == ["order_id"]


def test_without_a_recorded_key_it_must_be_named(io: Any, lake: str) -> None:
    with pytest.raises(KeyColumnError, match=r"no key is recorded.*key_columns.*adopt"):
        io.merge(rows([1], day=["2026-11-01"]), lake)
    with pytest.raises(KeyColumnError, match="no key is recorded"):
        io.deduplicate_parquet_dataset(lake)


def test_candidates_that_are_not_certain_are_only_proposed(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    put(
        tmp_path / "d" / "a.parquet",
        pa.table({"n": [1, 2, 3], "t": ["a", "b", "c"], "f": [0.1, 0.2, 0.3], "x": [1, 2, None]}),
    )
    found = io.adopt(path)
    assert (found.unique_keys, found.key_columns) == ([["n"], ["t"]], [])
    assert found.commands[0] == f"fsspeckit adopt {path} --key n --yes"
    assert io.adopt(path, key_columns="t", dry_run=False).key_columns == ["t"]
    assert io.merge(pa.table({"n": [9], "t": ["b"], "f": [0.0], "x": [0]}), path).updated == 1


def test_pairs_are_proposed_where_no_column_is_unique(io: Any, tmp_path: Path) -> None:
    for day in ("2026-11-01", "2026-11-02"):
        put(tmp_path / "d" / f"day={day}" / "a.parquet", pa.table({"id": [1, 2], "line": [1, 1]}))
    found = io.adopt(str(tmp_path / "d"))
    assert (found.unique_keys, found.key_columns) == ([["id", "day"]], [])


def test_a_key_with_duplicates_is_refused(io: Any, tmp_path: Path, lake: str) -> None:
    put(tmp_path / "d" / "day=2026-11-02" / "c.parquet", rows([1]))
    before = tree_of(tmp_path)
    assert io.adopt(lake).unique_keys == []
    for dry_run in (True, False):
        with pytest.raises(KeyColumnError, match=r"1 row .*deduplicate"):
            io.adopt(lake, key_columns="order_id", dry_run=dry_run)
    with pytest.raises(ColumnNameError, match="not found"):
        io.adopt(lake, key_columns="nothing")
    assert tree_of(tmp_path) == before


def test_the_types_of_partitions_can_be_told(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    put(tmp_path / "d" / "zip=01067" / "a.parquet", rows([1]))
    assert io.read_parquet(path)["zip"].to_pylist() == [1067]
    io.adopt(path, partition_types="zip string", dry_run=False)
    assert io.read_parquet(path)["zip"].to_pylist() == ["01067"]
    with pytest.raises(PartitionError, match="zip=01067"):
        io.adopt(path, partition_types={"zip": pa.date32()})
    with pytest.raises(ColumnNameError, match="partition_types"):
        io.adopt(path, partition_types="plz string")


def test_types_that_do_not_fit_are_reported(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "v": [1]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [2], "v": ["x"]}))
    found = io.adopt(str(tmp_path / "d"))
    assert (found.mixed_types, found.unique_keys) == ({"v": {"int64": 1, "string": 1}}, [])


def test_history_is_on_and_types_stay(io: Any, tmp_path: Path, lake: str) -> None:
    io.adopt(lake, retain="2d", dry_run=False)
    io.delete(lake, where="day = DATE '2026-11-01'")
    io.restore(lake, version=1)
    assert len(data_files(tmp_path / "d")) == 4
    assert io.read_parquet(lake).schema.field("day").type == pa.date32()
    assert pq.ParquetFile(data_files(tmp_path / "d")[0]).metadata.num_rows == 3


def test_there_must_be_a_dataset(io: Any, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError):
        io.adopt(str(tmp_path / "nothing"))
    assert list(tmp_path.iterdir()) == []


def test_the_recommended_command_records_what_was_looked_at(tmp_path: Path) -> None:
    """It has the options of the call, and no command is recommended that cannot work."""
    put(tmp_path / "d" / "zip=01067" / "a.parquet", rows([1]))
    put(tmp_path / "d" / "zip=01067" / "b.parquet", rows([2]).set_column(0, "v", [[1]]))
    lake = str(tmp_path / "d")
    options = ["--partition-types", "zip string", "--retain", "30d", "--engine", "pyarrow"]
    assert main(["adopt", lake, *options]) == 0
    found = PyarrowDatasetIO().adopt(lake, partition_types="zip string", retain="30d")
    (command,) = found.commands
    assert found.mixed_types
    assert main([*shlex.split(command)[1:], "--engine", "pyarrow"]) == 0
    assert Dataset(lake).history()[0]["version"] == 1
    recorded = PyarrowDatasetIO().adopt(lake)
    assert (recorded.partition_types, recorded.retain) == ({"zip": "string"}, 30 * 86_400)

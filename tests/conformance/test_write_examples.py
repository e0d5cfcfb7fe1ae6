"""Writing: append, overwrite, overwrite_partitions, and ``write_parquet_dataset``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.injection import FaultStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import LocalStorage
from kit import by_day, contents, data_files, flip_page, look, numbers, put, three_files, tree_of


@pytest.mark.scenario("IO-06", "IO-08", "UP-53")
@pytest.mark.parametrize("method", ["write_dataset", "write_parquet_dataset"])
def test_append_adds_uniquely_named_files(io: Any, tmp_path: Path, method: str) -> None:
    write = getattr(io, method)
    first = write(numbers([1, 2]), str(tmp_path / "d"))
    before = tree_of(tmp_path / "d")
    second = write(numbers([3]), str(tmp_path / "d"))
    after = tree_of(tmp_path / "d")
    assert {path: after[path] for path in before} == before
    assert look(tmp_path / "d") == [(1, "old"), (2, "old"), (3, "old")]
    paths = [entry.path for entry in (*first.files, *second.files)]
    assert sorted(paths) == [str(path) for path in data_files(tmp_path / "d")]
    (entry,) = second.files
    assert (entry.row_count, second.rows) == (1, 1)
    assert entry.size_bytes == Path(entry.path).stat().st_size


def test_a_write_result_reads_as_mapping_json_and_table(io: Any, tmp_path: Path) -> None:
    result = io.write_dataset(numbers([1, 2]), str(tmp_path / "d"))
    assert json.loads(json.dumps(result.to_dict()))["rows"] == 2
    assert "rows" in str(result)


@pytest.mark.scenario("IO-07", "UP-54")
@pytest.mark.parametrize("method", ["write_dataset", "write_parquet_dataset"])
def test_overwrite_replaces_data_files_and_keeps_others(io: Any, tmp_path: Path, method: str) -> None:
    three_files(tmp_path / "d")
    (tmp_path / "d" / "README.txt").write_text("keep")
    put(tmp_path / "d" / "_hidden" / "x.parquet", numbers([9]))
    kept = {path: data for path, data in contents(tmp_path / "d").items() if "part" not in path}
    getattr(io, method)(numbers([7], "new"), str(tmp_path / "d"), mode="overwrite")
    assert look(tmp_path / "d") == [(7, "new")]
    after = contents(tmp_path / "d")
    assert {path: after[path] for path in kept} == kept
    assert not {"part-0.parquet", "part-1.parquet", "part-2.parquet"} & set(after)


def test_overwrite_may_change_the_schema(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    io.write_dataset(pa.table({"other": ["x"]}), str(tmp_path / "d"), mode="overwrite")
    assert io.read_parquet(str(tmp_path / "d")).to_pylist() == [{"other": "x"}]


def test_overwrite_of_a_partitioned_dataset_removes_empty_folders(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1], tue=[2])
    io.write_dataset(numbers([3], day=["wed"]), str(tmp_path / "d"), mode="overwrite", partition_by=["day"])
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["day=wed"]


def test_overwrite_partitions_replaces_only_those_present(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2], tue=[3, 4])
    before = tree_of(tmp_path / "d")
    source = numbers([5, 6], "new", day=["mon", "wed"])
    result = io.write_dataset(source, str(tmp_path / "d"), mode="overwrite_partitions", partition_by=["day"])
    assert look(tmp_path / "d", "id", "day") == [(3, "tue"), (4, "tue"), (5, "mon"), (6, "wed")]
    assert tree_of(tmp_path / "d")["day=tue/a.parquet"] == before["day=tue/a.parquet"]
    assert result.rows == 2


def test_appending_recognises_the_layout(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1])
    io.write_dataset(numbers([2], day=["tue"]), str(tmp_path / "d"))
    assert look(tmp_path / "d", "id", "day") == [(1, "mon"), (2, "tue")]
    assert pq.read_schema(data_files(tmp_path / "d" / "day=tue")[0]).names == ["id", "v"]


@pytest.mark.parametrize("rows", [1, 10, 11, 25])
def test_files_have_at_most_max_rows(io: Any, tmp_path: Path, rows: int) -> None:
    result = io.write_dataset(numbers(list(range(rows))), str(tmp_path / "d"), max_rows_per_file=10)
    sizes = [pq.read_metadata(path).num_rows for path in data_files(tmp_path / "d")]
    assert (sum(sizes), max(sizes) <= 10, len(sizes)) == (rows, True, -(-rows // 10))
    assert sorted(entry.row_count for entry in result.files) == sorted(sizes)


def test_codec_row_groups_and_checksums(io: Any, tmp_path: Path) -> None:
    io.write_dataset(numbers(list(range(10))), str(tmp_path / "d"), compression="zstd", row_group_size=4)
    (path,) = data_files(tmp_path / "d")
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 2]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    flip_page(path, "v")
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_default_codec_is_snappy(io: Any, tmp_path: Path) -> None:
    io.write_dataset(numbers([1]), str(tmp_path / "d"))
    assert pq.read_metadata(data_files(tmp_path / "d")[0]).row_group(0).column(0).compression == "SNAPPY"


def test_schema_metadata_and_types_survive_a_write(io: Any, tmp_path: Path) -> None:
    fields = [pa.field("id", pa.int32(), nullable=False, metadata={"a": "b"}), pa.field("v", pa.string_view())]
    table = pa.table({"id": pa.array([1], pa.int32()), "v": ["x"]}).cast(pa.schema(fields, {"owner": "me"}))
    io.write_dataset(table, str(tmp_path / "d"))
    assert pq.read_schema(data_files(tmp_path / "d")[0]).equals(table.schema, check_metadata=False)
    found = pq.read_schema(data_files(tmp_path / "d")[0])
    assert found.metadata[b"owner"] == b"me"
    assert found.field("id").metadata[b"a"] == b"b"


def test_basename_template(io: Any, tmp_path: Path) -> None:
    io.write_dataset(numbers([1, 2, 3]), str(tmp_path / "d"), basename_template="load-{i}.parquet", max_rows_per_file=2)
    assert [path.name for path in data_files(tmp_path / "d")] == ["load-0.parquet", "load-1.parquet"]


@pytest.mark.parametrize("name", ["_metadata", "_common_metadata"])
@pytest.mark.parametrize("operation", ["append", "merge"])
def test_summary_files_are_removed_in_the_same_commit(io: Any, tmp_path: Path, name: str, operation: str) -> None:
    three_files(tmp_path / "d")
    pq.write_metadata(numbers([]).schema, tmp_path / "d" / name)
    if operation == "append":
        io.write_dataset(numbers([50]), str(tmp_path / "d"))
    else:
        io.merge(numbers([1], "new"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert not (tmp_path / "d" / name).exists()


@pytest.mark.scenario("UP-49")
@pytest.mark.names_stay
def test_write_parquet_dataset_incremental_upsert(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path / "d")
    source = numbers([1, 50], "new")
    options: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"], "rewrite_mode": "incremental"}
    io.write_parquet_dataset(source, str(tmp_path / "d"), **options)
    after = tree_of(tmp_path / "d")
    assert [path for path in before if before[path] != after[path]] == ["part-0.parquet"]
    assert len(after) == len(before) + 1
    assert {(1, "new"), (50, "new")} <= set(look(tmp_path / "d"))


@pytest.mark.scenario("UP-51")
def test_write_parquet_dataset_refuses_incremental_full_merge(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path)
    options: dict[str, Any] = {"strategy": "full_merge", "rewrite_mode": "incremental"}
    for keys in ({}, {"key_columns": ["id"]}):
        with pytest.raises(ValueError, match=r"(?s)incremental.*full_merge|full_merge.*incremental"):
            io.write_parquet_dataset(numbers([1]), str(tmp_path / "d"), **options, **keys)
    assert tree_of(tmp_path) == before


@pytest.mark.scenario("UP-52")
def test_write_parquet_dataset_strategy_takes_precedence_over_mode(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    options: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"], "mode": "append"}
    with pytest.warns(UserWarning, match="precedence"):
        io.write_parquet_dataset(numbers([1, 50], "new"), str(tmp_path / "d"), **options)
    assert len(look(tmp_path / "d")) == 31
    assert (1, "new") in look(tmp_path / "d")


@pytest.mark.scenario("UP-55")
@pytest.mark.parametrize("strategy", ["upsert", "update", "full_merge", "deduplicate"])
def test_write_parquet_dataset_refuses_append_without_keys(io: Any, tmp_path: Path, strategy: str) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(ValueError, match='mode="append"'):
            io.write_parquet_dataset(numbers([1]), str(tmp_path / "d"), mode="append", strategy=strategy)
    assert tree_of(tmp_path) == before


@pytest.mark.scenario("UP-56")
def test_write_parquet_dataset_insert_with_append_writes_only_new_keys(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1]))
    before = tree_of(tmp_path / "d")
    options: dict[str, Any] = {"strategy": "insert", "key_columns": ["id"], "mode": "append"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        io.write_parquet_dataset(numbers([1, 2], "new"), str(tmp_path / "d"), **options)
    assert tree_of(tmp_path / "d")["a.parquet"] == before["a.parquet"]
    assert look(tmp_path / "d") == [(1, "old"), (2, "new")]


def test_module_level_functions_do_the_same(engine: str, tmp_path: Path) -> None:
    import fsspeckit

    path, engine = str(tmp_path / "d"), engine.partition("-")[0]
    fsspeckit.write_dataset(numbers([1]), path, engine=engine)
    result = fsspeckit.merge(numbers([1, 2], "new"), path, strategy="upsert", key_columns=["id"], engine=engine)
    assert (result.inserted, result.updated) == (1, 1)
    assert fsspeckit.read_parquet(path, engine=engine).num_rows == 2
    fsspeckit.recover(path)
    assert look(tmp_path / "d") == [(1, "new"), (2, "new")]


def test_an_append_goes_on_while_another_writer_replaces_files(tmp_path: Path) -> None:
    """At any call of the storage: the file that tells the schema may be gone when it is read."""
    other, count, call = PyarrowDatasetIO(), 1, 0
    while call < count:
        path, storage = str(tmp_path / str(call)), FaultStorage(LocalStorage())
        put(tmp_path / str(call) / "a.parquet", numbers([2, 1]))
        storage.meanwhile(
            call := call + 1, lambda path=path: other.optimize_parquet_dataset(path, "id", force=True, retries=0)
        )
        PyarrowDatasetIO(filesystem=storage).write_dataset(numbers([3]), path)
        assert sorted(other.read_parquet(path)["id"].to_pylist()) == [1, 2, 3], call
        count = len(storage.calls)

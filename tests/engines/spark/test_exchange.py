"""The blob exchange and the way of a large source: routed to the tasks that need it, never held by the driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fsspeckit.common.errors import SchemaMismatchError, StorageError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, shared_source
from fsspeckit.datasets.spark.engine import SparkEngine
from fsspeckit.datasets.spark.exchange import exchange, part_slots
from fsspeckit.datasets.spark.shared_source import write_spill
from inside import MergePlan, resolve

pytestmark = pytest.mark.more


def _deal(item: int) -> Iterator[tuple[int, pa.Table]]:
    """Each item sends its number, in two pieces, to the even or the odd part."""
    for half in (0, 1):
        yield item % 2, pa.table({"item": pa.array([item], pa.uint32()), "half": [half]})


def _collect(part: int, pieces: Iterator[pa.Table]) -> list[Any]:
    return [part, *(list(row.values()) for piece in pieces for row in piece.to_pylist())]


def _refuse(item: int) -> Iterator[tuple[int, pa.Table]]:
    raise SchemaMismatchError(f"item {item} is refused")


def _refuse_gather(part: int, pieces: Iterator[pa.Table]) -> None:
    raise SchemaMismatchError(f"part {part} is refused")


def _ignore(count: int) -> None:
    return None


@pytest.mark.parametrize("files", [True, False], ids=["files", "shuffle"])
def test_pieces_arrive_in_order_and_empty_parts_are_gathered(spark: SparkSession, tmp_path: Path, files: bool) -> None:
    found = exchange(spark, _deal, [4, 1, 2], _collect, 3, 4, _ignore, str(tmp_path) if files else None)
    assert bool(list(tmp_path.iterdir())) is files
    assert found == [[0, [4, 0], [4, 1], [2, 0], [2, 1]], [1, [1, 0], [1, 1]], [2]]


def test_parts_without_any_item_are_gathered(spark: SparkSession) -> None:
    assert SparkEngine(spark).exchange(_deal, [], _collect, 2, _ignore) == [[0], [1]]


@pytest.mark.parametrize(("split", "gather"), [(_refuse, _collect), (_deal, _refuse_gather)])
def test_errors_come_back_with_their_type(spark: SparkSession, split: Any, gather: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="is refused"):
        SparkEngine(spark).exchange(split, [1], gather, 2, _ignore)


def _rows(spark: SparkSession, count: int) -> Any:
    return spark.range(count).selectExpr("id", "concat('value ', id) AS text", "id % 3 AS part")


def test_the_plan_shows_the_way_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    PyarrowDatasetIO().write_dataset(pa.table({"id": range(10), "text": ["x"] * 10}), path)
    source = _rows(spark, 3000).drop("part")
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": "id", "dry_run": True}
    routes = [
        SparkDatasetIO(spark, share_limit=limit).merge(data, path, **call).source_route
        for limit, data in ((10_000_000, source), (10_000, source), (10_000_000, source.limit(5).toArrow()))
    ]
    assert routes == ["shared files", "exchange", "job"]
    plan = SparkDatasetIO(spark, share_limit=10_000).merge(source, path, **call)
    assert "3,000 (by exchange)" in str(plan)
    assert (plan.to_dict()["source_route"], plan.to_dict()["share_limit"]) == ("exchange", 10_000)
    assert MergePlan.from_dict(plan.to_dict()).share_limit == 10_000
    assert "10,000 bytes" in str(plan)


def test_a_large_folder_as_source_is_read_by_executors(spark: SparkSession, tmp_path: Path) -> None:
    staging, path = str(tmp_path / "staging"), str(tmp_path / "d")
    text = pa.array([f"{i:08d}" * 40 for i in range(60_000)])
    rows = pa.table({"id": range(60_000), "text": text, "day": ["2026-01-01"] * 60_000})
    PyarrowDatasetIO().write_dataset(rows, staging, partition_by=["day"], compression="none", max_rows_per_file=20_000)
    io = SparkDatasetIO(spark, share_limit=1_000_000)
    io.merge(staging, path, strategy="upsert", key_columns="id")
    assert io.merge(staging, path, strategy="upsert", key_columns="id", dry_run=True).unchanged == 60_000
    assert io.read_parquet(path).select(rows.column_names).sort_by("id").equals(rows)


def test_a_temporary_folder_that_was_emptied_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    rows, path = pa.table({"id": range(10), "text": ["x"] * 10}), str(tmp_path / "d")
    io = SparkDatasetIO(spark, share_limit=0)
    io.write_dataset(rows, path)
    place = Path(spark.sparkContext._temp_dir)
    shutil.rmtree(place)
    assert io.merge(rows, path, strategy="upsert", key_columns="id").unchanged == 10
    assert not list(place.glob("fsspeckit-*"))


def test_packets_that_are_gone_are_no_conflict(spark: SparkSession, tmp_path: Path) -> None:
    rows, path = pa.table({"id": range(10), "text": ["x"] * 10}), str(tmp_path / "d")
    io = SparkDatasetIO(spark, share_limit=0)
    io.write_dataset(rows, path)
    io.engine.packets = lambda: nullcontext(str(tmp_path / "gone"))  # type: ignore[assignment, return-value]
    with pytest.raises(StorageError, match="temporary folder"):
        io.merge(rows, path, strategy="upsert", key_columns="id")
    assert io.read_parquet(path).equals(rows)


def test_batches_with_other_dictionaries_are_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row group of a Parquet file has its own dictionary."""
    monkeypatch.setattr(shared_source, "_BATCH_ROWS", 2)
    texts = [["a", "b"], ["c", "d", None], ["b", "z", "a"]]
    batches = [pa.record_batch({"code": pa.array(each).dictionary_encode()}) for each in texts]
    file = write_spill(batches, batches[0].schema, *resolve(str(tmp_path)))
    assert file is not None
    with pa.memory_map(file.path) as mapped:
        reader = pa.ipc.open_file(mapped)
        found = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        assert [batch.column(0).to_pylist() for batch in found] == texts


@pytest.mark.parametrize("parts", [1, 2, 7, 60])
def test_spark_sends_the_slot_of_a_part_to_the_partition_of_its_number(spark: SparkSession, parts: int) -> None:
    from pyspark.sql import functions as sql

    rows = [(slot, part) for part, slot in enumerate(part_slots(parts))]
    frame = spark.createDataFrame(rows, "slot int, part int").repartition(parts, "slot")
    found = frame.select("part", sql.spark_partition_id().alias("partition")).collect()
    assert sorted(map(tuple, found)) == [(part, part) for part in range(parts)]

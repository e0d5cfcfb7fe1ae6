"""The format "fsspeckit" of Spark: reads with filters, writes, merges, and streams that commit each batch once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import register_data_source
from fsspeckit.datasets.spark.change_stream import ChangeStreamReader, changes_schema
from fsspeckit.datasets.spark.data_source import FilteringReader

IO = PyarrowDatasetIO()


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=[pytest.param("false", marks=pytest.mark.more), "true"], ids=["default", "pushdown"])
def fmt(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the format, registered as Spark's default setting wants it, and with filters."""
    spark.conf.set(PUSHDOWN, request.param)
    register_data_source(spark)
    yield "fsspeckit"
    spark.conf.unset(PUSHDOWN)


@pytest.fixture
def stream_fmt(spark: Any) -> str:
    """The name of the format. Streams take no filters, so the setting of filters does not matter."""
    register_data_source(spark)
    return "fsspeckit"


def rows(path: Path) -> list[tuple[Any, ...]]:
    found = IO.read_parquet(str(path))
    return sorted(zip(*(found[name].to_pylist() for name in ("id", "v")), strict=True))


def test_merge_append_overwrite_and_read(spark: Any, fmt: str, tmp_path: Path) -> None:
    path = tmp_path / "d"
    first = spark.range(10).selectExpr("id", "concat('a', id) AS v", "id % 2 AS day")
    first.write.format(fmt).option("keys", "id").option("partition_by", "day").mode("append").save(str(path))
    assert sorted(folder.name for folder in path.iterdir()) == ["day=0", "day=1"]
    more = spark.range(8, 12).selectExpr("id", "concat('b', id) AS v", "id % 2 AS day")
    for _ in range(2):
        options = {"keys": "id", "strategy": "upsert", "idempotency_key": "k"}
        more.write.format(fmt).options(**options).mode("append").save(str(path))
    assert IO.committed(str(path), "k") == 2
    assert rows(path) == sorted([(i, f"a{i}") for i in range(8)] + [(i, f"b{i}") for i in range(8, 12)])
    read = spark.read.format(fmt).load(str(path))
    assert read.schema.simpleString() == "struct<id:bigint,v:string,day:bigint>"
    assert sorted(row.v for row in read.filter("id > 8 AND v <> 'b9'").select("v").collect()) == ["b10", "b11"]
    assert spark.read.format(fmt).option("columns", "v").load(str(path)).columns == ["v"]
    spark.range(3).write.format(fmt).mode("append").save(str(tmp_path / "o"))
    spark.range(2).write.format(fmt).mode("overwrite").save(str(tmp_path / "o"))
    assert IO.read_parquet(str(tmp_path / "o")).num_rows == 2


def test_nothing_is_read_where_nothing_fits(spark: Any, fmt: str, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    IO.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), path)
    read = spark.read.format(fmt).load(path)
    for condition in ("id > 5", "v = 'it''s'", "id IS NULL", "id <=> NULL", "id IN (7, 8) AND v LIKE 'x%'"):
        assert read.filter(condition).collect() == [], condition
    IO.keep_history(path)
    changes = spark.read.format(fmt).option("changes", "true").option("since", IO.history(path)[0].version)
    assert changes.load(path).collect() == []
    IO.delete(path, where="true")
    assert spark.read.format(fmt).option("version", 2).load(path).count() == 2


def test_a_schema_chooses_among_the_columns(spark: Any, fmt: str, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
    IO.write_dataset(pa.table({"id": [1], "v": ["a"]}, schema=required), path)
    assert spark.read.format(fmt).schema("v string").load(path).collect() == [("a",)]
    assert not spark.read.format(fmt).load(path).schema["v"].nullable
    for schema, said in (("id string", "'id' is bigint in the dataset, and not string"), ("nid bigint", "mean 'id'")):
        with pytest.raises(PySparkException, match=said):
            spark.read.format(fmt).schema(schema).load(path).collect()
    with pytest.raises(PySparkException, match=r"the dataset has no column 'w'; choose among \['id', 'v'\]"):
        spark.read.format(fmt).option("columns", "w").load(path)


def test_filters_leave_out_files(tmp_path: Path) -> None:
    """Each filter that is used finds at least what Spark finds; others are not used."""
    days = [date(2026, 11, day) for day in (1, 2, 3)]
    for number, day in enumerate(days):
        table = pa.table({"id": [number], "v": [f"it's {number}"], "day": [day], "x": [float("nan")], "ok": [True]})
        IO.write_dataset(table, str(tmp_path / "d"))
    cases: list[tuple[Any, int]] = [
        (datasource.EqualTo(("id",), 1), 1),
        (datasource.GreaterThan(("id",), 0), 2),
        (datasource.LessThanOrEqual(("day",), days[1]), 2),
        (datasource.In(("v",), ("it's 0", "it's 2")), 2),
        (datasource.EqualTo(("ok",), True), 3),
        (datasource.GreaterThan(("x",), 1.0), 3),
        (datasource.Not(datasource.EqualTo(("id",), 1)), 3),
        (datasource.EqualTo(("id",), None), 3),
        (datasource.EqualTo(("nothing",), 1), 3),
    ]
    for condition, expected in cases:
        schema = StructType([StructField("id", LongType()), StructField("v", StringType())])
        reader = FilteringReader({"path": str(tmp_path / "d")}, schema)
        assert list(reader.pushFilters([condition])) == [condition]
        read = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert sum(batch.num_rows for batch in read) == expected, condition


@pytest.mark.more
def test_spark_does_not_tell_python_sources_which_columns_a_query_needs(spark: Any) -> None:
    """Where it does, `columns` is not needed any more, and the documentation is wrong."""
    name = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
    interfaces = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name).getInterfaces()
    assert [each.getSimpleName() for each in interfaces] == ["SupportsPushDownFilters"]
    assert not hasattr(datasource.DataSourceReader, "pruneColumns")


def test_mistakes(spark: Any, stream_fmt: str, tmp_path: Path) -> None:
    frame = spark.range(0, 300_000, 1, 1)
    for options, mode, said in (
        ({"kyes": "id"}, "append", "the option 'kyes' is unknown here"),
        ({"keys": "id"}, "overwrite", "keys merge them"),
        ({"keys": "nothing"}, "append", "keys: unknown column 'nothing'"),
        ({"keys": "id", "strategy": "upsrt"}, "append", "strategy='upsrt'"),
        ({"keys": "id", "max_mb": "1"}, "append", r"SparkDatasetIO\(spark\).merge\(df, .*key_columns=\['id'\]"),
    ):
        with pytest.raises(PySparkException, match=said):
            frame.write.format(stream_fmt).options(**options).mode(mode).save(str(tmp_path / "d"))
        assert not (tmp_path / "d").exists()


def test_each_batch_of_a_stream_is_committed_once(spark: Any, stream_fmt: str, tmp_path: Path) -> None:
    source, path, checkpoint = tmp_path / "in", tmp_path / "d", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        stream = spark.readStream.schema("id bigint, v string").json(str(source))
        writer = stream.writeStream.format(stream_fmt).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(str(path)).awaitTermination()

    (source / "a.json").write_text('{"id": 1, "v": "x"}\n{"id": 2, "v": "y"}\n')
    run()
    (source / "b.json").write_text('{"id": 3, "v": "z"}\n')
    run()
    assert rows(path) == [(1, "x"), (2, "y"), (3, "z")]
    for name in ("1", ".1.crc"):  # as if the process had died after the commit, before Spark recorded it
        (checkpoint / "commits" / name).unlink()
    run()
    assert rows(path) == [(1, "x"), (2, "y"), (3, "z")]


@pytest.mark.more
def test_a_stream_in_complete_mode_replaces_all_rows(spark: Any, stream_fmt: str, tmp_path: Path) -> None:
    source, path = tmp_path / "in", str(tmp_path / "totals")
    source.mkdir()
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")

    def run(name: str, mode: str = "complete", **options: str) -> list[tuple[Any, ...]]:
        stream = spark.readStream.schema("id bigint, n bigint").json(str(source)).groupBy("id").sum("n")
        writer = stream.withColumnRenamed("sum(n)", "n").writeStream.format(stream_fmt).outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / name)).options(**options)
        assert writer.trigger(availableNow=True).start(path).awaitTermination(300)
        return sorted((row["id"], row["n"]) for row in IO.read_parquet(path).to_pylist())

    try:
        (source / "a.json").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": 2}\n')
        assert run("checkpoint") == [(1, 1), (2, 2)]
        (source / "b.json").write_text('{"id": 1, "n": 5}\n{"id": 3, "n": 3}\n')
        assert run("checkpoint") == run("checkpoint") == [(1, 6), (2, 2), (3, 3)]
        with pytest.raises(PySparkException, match=r'outputMode\("complete"\) of a stream replace all rows, and keys'):
            run("other", keys="id")
        with pytest.raises(PySparkException, match="does not support Update mode"):
            run("update", "update")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def changed(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((row.id, row.v, row._change_type, row._version) for row in frame.collect())


@pytest.fixture
def kept(tmp_path: Path) -> str:
    """A dataset of two files that keeps its history."""
    path = str(tmp_path / "kept")
    for ids in ([1, 2], [3]):
        IO.write_dataset(pa.table({"id": ids, "v": ["a"] * len(ids)}), path)
    IO.keep_history(path)
    return path


def test_changes_are_a_stream_that_continues_at_its_checkpoint(spark: Any, fmt: str, kept: str, tmp_path: Path) -> None:
    def run() -> list[tuple[Any, ...]]:
        stream = spark.readStream.format(fmt).option("changes", "true").option("keys", "id").load(kept)
        writer = stream.writeStream.format(fmt).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "log")).awaitTermination()
        return changed(spark.read.format(fmt).load(str(tmp_path / "log")))

    first = [(number, "a", "insert", 3) for number in (1, 2, 3)]
    assert run() == run() == first
    IO.merge(pa.table({"id": [2, 4], "v": ["b", "b"]}), kept, strategy="upsert", key_columns="id")
    IO.delete(kept, where="id = 3")
    IO.compact_parquet_dataset(kept, target_mb_per_file=1)
    later = [(2, "a", "update_before", 4), (2, "b", "update_after", 4), (3, "a", "delete", 5), (4, "b", "insert", 4)]
    assert run() == run() == sorted([*first, *later])
    batch = spark.read.format(fmt).option("changes", "true").option("since", 3)
    assert changed(batch.option("keys", "id").load(kept)) == later
    assert {row[2] for row in changed(batch.option("keys", "").option("until", 4).load(kept))} == {"insert", "delete"}
    assert batch.option("columns", "v").load(kept).columns == ["v", "_change_type", "_version", "_at"]
    for folder in (kept, str(tmp_path / ".kept.fsspeckit")):
        shutil.rmtree(folder)
    for number in range(8):
        IO.write_dataset(pa.table({"id": [number], "v": ["new"]}), kept)
        IO.keep_history(kept)
    with pytest.raises(PySparkException, match=r"has read another dataset .* up to version 6"):
        run()


@pytest.mark.more
def test_a_stream_of_changes_fails_with_what_to_do(spark: Any, stream_fmt: str, kept: str, tmp_path: Path) -> None:
    fmt = stream_fmt

    def run(path: str, name: str, **options: str) -> None:
        stream = spark.readStream.format(fmt).options(**options).load(path)
        writer = stream.writeStream.format(fmt).option("checkpointLocation", str(tmp_path / name))
        writer.trigger(availableNow=True).start(str(tmp_path / f"{name}-log")).awaitTermination()

    IO.write_dataset(pa.table({"id": [1]}), str(tmp_path / "plain"))
    with pytest.raises(PySparkException, match=r"keeps no versions, so it has no changes to read. Call keep_history"):
        run(str(tmp_path / "plain"), "a", changes="true")
    with pytest.raises(PySparkException, match=r'Add option."changes", "true"'):
        run(kept, "b")
    with pytest.raises(PySparkException, match=r"the option 'sinse' is unknown here. Use changes, columns, keys"):
        run(kept, "c", changes="true", sinse="1")
    run(kept, "d", changes="true", since="3")
    IO.write_dataset(pa.table({"id": [9], "v": ["a"]}), kept)
    IO.delete(kept, where="id = 1")
    IO.vacuum(kept, older_than="0s")
    with pytest.raises(PySparkException, match="is not kept"):
        run(kept, "d", changes="true", since="3")
    with pytest.raises(PySparkException, match="needs the option 'since'"):
        spark.read.format(fmt).option("changes", "true").load(kept).count()
    with pytest.raises(PySparkException, match="the option 'colums' is unknown here"):
        spark.read.format(fmt).option("colums", "v").load(kept)


def test_a_column_that_is_added_while_a_stream_reads_is_not_lost(kept: str) -> None:
    schema = changes_schema({"path": kept})
    reader = ChangeStreamReader({"path": kept, "changes": "true"}, schema)
    start, _ = reader.initialOffset(), reader.latestOffset()
    assert start == {"version": -1}
    assert reader.partitions({"version": 3}, {"version": 3}) == []
    more = pa.table({"id": [5], "v": ["b"], "w": [1]})
    IO.merge(more, kept, strategy="upsert", key_columns="id", schema_mode="evolve")
    with pytest.raises(SchemaMismatchError, match=r"has got the column 'w' since the query started. Start the query"):
        reader.partitions({"version": 3}, reader.latestOffset())
    chosen = ChangeStreamReader(
        {"path": kept, "changes": "true", "columns": "v"}, changes_schema({"path": kept}, ["v"])
    )
    parts = chosen.partitions({"version": 3}, reader.latestOffset())
    assert [row for part in parts for batch in chosen.read(part) for row in batch["v"].to_pylist()] == ["b"]

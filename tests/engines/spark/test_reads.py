"""DataFrames that only read Parquet files: which of them Arrow reads, and that nobody can tell from the rows."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from fsspeckit.core.storage import resolve
from fsspeckit.datasets.spark.errors import SparkJobError
from fsspeckit.datasets.spark.incoming import arrow_schema, share_frame
from fsspeckit.datasets.spark.reads import spill_split, splits_of

NOON = dt.datetime(1969, 7, 20, 20, 17, 40, 123456)  # noqa: DTZ001 - a time without a zone
VALUES = {
    "flag": pa.array([True, None, False]),
    "tiny": pa.array([-128, None, 127], pa.int8()),
    "small": pa.array([-(2**15), None, 7], pa.int16()),
    "number": pa.array([-(2**31), None, 7], pa.int32()),
    "id": pa.array([1, 2, 2**62]),
    "half": pa.array([float("nan"), None, -0.0], pa.float32()),
    "float": pa.array([float("nan"), None, -0.0]),
    "text": pa.array(["ä", None, "'; --"]),
    "large": pa.array(["x" * 100, None, ""], pa.large_string()),
    "bytes": pa.array([b"\xff\x00", None, b""]),
    "large bytes": pa.array([b"\xff\x00", None, b""], pa.large_binary()),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "time": pa.array([NOON, None, dt.datetime(1, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
    "instant": pa.array([NOON, None, dt.datetime(1500, 1, 1)], pa.timestamp("us", "Europe/Berlin")),  # noqa: DTZ001
    "price": pa.array([Decimal("1.20"), None, Decimal("-9999999.99")], pa.decimal128(9, 2)),
    "wide": pa.array([Decimal(10) ** 37, None, Decimal(-1)], pa.decimal128(38, 0)),
    "a.b`c": pa.array(["dotted", None, "name"]),
}
TABLE = pa.table(VALUES)


def write(folder, *tables, **options):
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", **options)
    return str(folder)


def ids(start, count):
    return pa.table({"id": pa.array(np.arange(start, start + count)), "v": pa.array(["é"] * count)})


def splits(frame, folder):
    storage, place = resolve(str(folder))
    return splits_of(frame, arrow_schema(frame.schema), storage, place)


def is_taken(frame, folder):
    """Whether Arrow reads a frame, its files included."""
    found = splits(frame, folder)
    return found is not None and all(spill_split(split)[0] for split in found)


def handed_over(spark, frame, folder):
    storage, place = resolve(str(folder))
    source = share_frame(spark, frame, storage, place, 1 << 30, lambda _done, _total: None)
    return source.columns(source.schema.names).combine_chunks()


def check_as_spark(spark, frame, folder):
    """The same schema, rows and order as Spark gives."""
    schema = arrow_schema(frame.schema)
    told, found = frame.toArrow().cast(schema), handed_over(spark, frame, folder).cast(schema)
    for name in schema.names:
        assert repr(found[name].to_pylist()) == repr(told[name].to_pylist()), name


def test_values_of_all_types_that_both_read_alike(spark, tmp_path):
    frame = spark.read.parquet(write(tmp_path / "in", TABLE, TABLE.slice(1), compression="zstd"))
    assert frame.columns == TABLE.column_names
    assert is_taken(frame, tmp_path)
    check_as_spark(spark, frame, tmp_path)


def test_rows_come_in_the_order_of_spark_also_where_it_cuts_files(spark, tmp_path):
    path = write(tmp_path / "in", ids(0, 50), ids(50, 4000), ids(5000, 900), ids(7000, 1), row_group_size=100)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    try:
        for size in (before, "5000", "3000"):
            spark.conf.set("spark.sql.files.maxPartitionBytes", size)
            spark.conf.set("spark.sql.files.openCostInBytes", "100")
            frame = spark.read.parquet(path)
            assert is_taken(frame, tmp_path)
            check_as_spark(spark, frame, tmp_path)
        assert len(splits(frame, tmp_path)) > 4
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
        spark.conf.unset("spark.sql.files.openCostInBytes")


@pytest.mark.parametrize("name", ["a b", "ä%20c", "x#y?z", "k+v"])
def test_odd_folders(spark, tmp_path, name):
    frame = spark.read.parquet(write(tmp_path / name, TABLE).replace("?", "\\?"))
    assert is_taken(frame, tmp_path)
    check_as_spark(spark, frame, tmp_path)


def test_files_of_spark_itself(spark, tmp_path):
    path = str(tmp_path / "in")
    spark.range(1000).select("id", F.current_timestamp().alias("at"), F.lit("x").alias("v")).write.option(
        "parquet.block.size", 4096
    ).parquet(path)
    for data in Path(path).glob("part*"):  # Hadoop may write checksums a moment before the last bytes of the data
        moment = data.stat().st_mtime_ns - 4_000_000
        os.utime(data.with_name(f".{data.name}.crc"), ns=(moment, moment))
    frame = spark.read.parquet(path)
    check_as_spark(spark, frame, tmp_path)
    assert is_taken(frame.select("id", "v"), tmp_path)


def test_queries_that_do_more_than_read_are_left_to_spark(spark, tmp_path):
    path = write(tmp_path / "in", ids(0, 10), ids(10, 10))
    read = spark.read.parquet(path)
    assert splits(read, tmp_path)
    assert splits(read.select("id"), tmp_path)
    assert splits(spark.read.format("parquet").load(path), tmp_path)
    spark.range(4).selectExpr("id", "id % 2 as p").write.partitionBy("p").parquet(str(tmp_path / "parts"))
    others = [
        read.where("id > 3"),
        read.limit(3),
        read.select("v", "id"),
        read.withColumn("v", F.upper("v")),
        read.withColumnRenamed("v", "w"),
        read.repartition(2),
        read.orderBy("id"),
        read.dropDuplicates(["id"]),
        read.sample(0.5),
        read.union(read),
        read.select("id", "_metadata.file_name"),
        spark.read.option("mergeSchema", "true").parquet(path),
        spark.read.option("pathGlobFilter", "0*").parquet(path),
        spark.read.parquet(path, path),
        spark.read.parquet(str(tmp_path / "parts")),
        spark.read.orc(_as_orc(read, tmp_path)),
        spark.range(5),
        spark.createDataFrame([(1,)], "id long"),
    ]
    for frame in others:
        assert splits(frame, tmp_path) is None, frame._jdf.queryExecution().simpleString()
    read.cache()
    try:
        assert splits(read, tmp_path) is None
    finally:
        read.unpersist()


def _as_orc(frame, tmp_path):
    frame.write.orc(str(tmp_path / "orc"))
    return str(tmp_path / "orc")


def noted(table, **notes):
    return table.replace_schema_metadata({f"org.apache.spark.{name}": value for name, value in notes.items()})


INSTANT = TABLE.select(["id", "instant", "day"])
DOUBTFUL = {
    "a column is missing": [TABLE.select(["id", "text"]), TABLE.select(["id"])],
    "a name in another case": [
        TABLE.select(["id", "text"]),
        TABLE.select(["id", "text"]).rename_columns(["id", "Text"]),
    ],
    "a narrower type": [ids(0, 3), ids(0, 3).set_column(0, "id", pa.array([1, 2, 3], pa.int32()))],
    "an unsigned type": [pa.table({"id": pa.array([1, 2], pa.uint32())})],
    "milliseconds": [pa.table({"id": pa.array([1, 2], pa.timestamp("ms"))})],
    "a dictionary": [pa.table({"id": pa.array(["a", "b"]).dictionary_encode()})],
    "a list": [pa.table({"id": pa.array([[1], None])})],
    "an old Spark": [noted(INSTANT, version="2.4.8")],
    "a version that sorts before": [noted(INSTANT, version="10.0.0")],
    "a calendar of old": [noted(INSTANT, version="4.0.0", legacyDateTime="")],
}


@pytest.mark.parametrize("doubt", DOUBTFUL)
def test_files_that_spark_may_read_otherwise_are_left_to_it(spark, tmp_path, doubt):
    frame = spark.read.parquet(write(tmp_path / "in", *DOUBTFUL[doubt]))
    assert not is_taken(frame, tmp_path)
    check_as_spark(spark, frame, tmp_path)


def test_timestamps_of_96_bits_are_left_to_spark(spark, tmp_path):
    table = pa.table({"id": [1, 2], "at": pa.array([NOON, None], pa.timestamp("us"))})
    frame = spark.read.parquet(write(tmp_path / "in", table, use_deprecated_int96_timestamps=True))
    assert not is_taken(frame, tmp_path)
    check_as_spark(spark, frame, tmp_path)


def test_what_spark_refuses_it_refuses_still(spark, tmp_path):
    digits = pa.py_buffer(np.array([99_999_999, 0, 1, 0], dtype="<i8"))
    beyond = pa.table({"id": [1, 2], "d": pa.Array.from_buffers(pa.decimal128(5, 2), 2, [None, digits])})
    brotli = write(tmp_path / "brotli", ids(0, 3), compression="brotli")
    frames = [spark.read.parquet(write(tmp_path / "digits", beyond)), spark.read.parquet(brotli)]
    spark.range(10).coalesce(1).write.parquet(str(tmp_path / "sums"))
    (written,) = (tmp_path / "sums").glob("part*")
    frames.append(spark.read.parquet(str(tmp_path / "sums")))
    assert is_taken(frames[-1], tmp_path)
    pq.write_table(pa.table({"id": [100, 200]}), written)
    frames[-1] = spark.read.schema("id long").parquet(str(tmp_path / "sums"))
    for frame in frames:
        assert not is_taken(frame, tmp_path)
        with pytest.raises(SparkJobError):
            handed_over(spark, frame, tmp_path)


def test_wide_rows_are_left_to_spark(spark, tmp_path):
    """A text that repeats takes next to nothing in a file, and all of its size in memory."""
    table = pa.table({"id": np.arange(1000), "v": ["x" * 100_000] * 1000})
    frame = spark.read.parquet(write(tmp_path / "in", table))
    assert not is_taken(frame, tmp_path)
    late = pa.table({"id": np.arange(5000), "v": ["x"] * 1000 + ["x" * 100_000] * 4000})
    assert not is_taken(spark.read.parquet(write(tmp_path / "late", late)), tmp_path)


def test_files_that_were_begun_are_gone_when_spark_reads(spark, tmp_path):
    path = write(tmp_path / "in", ids(0, 4000), ids(0, 3).set_column(0, "id", pa.array([1, 2, 3], pa.int32())))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        frame = spark.read.schema("id long, v string").parquet(path)
        assert [spill_split(split)[0] for split in splits(frame, tmp_path)].count(True) >= 1
        place = tmp_path / "place"
        place.mkdir()
        assert handed_over(spark, frame, place).num_rows == 4003
        assert sum(pa.ipc.open_file(file).read_all().num_rows for file in place.glob("*.arrow")) == 4003
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)


def test_settings_that_change_what_spark_reads(spark, tmp_path):
    frame = spark.read.parquet(write(tmp_path / "in", INSTANT))
    assert is_taken(frame, tmp_path)
    for name, value in (
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.fieldId.read.enabled", "true"),
    ):
        spark.conf.set(name, value)
        try:
            assert not is_taken(frame, tmp_path)
        finally:
            spark.conf.unset(name)


def test_files_that_changed_since_they_were_listed(spark, tmp_path):
    path = write(tmp_path / "in", ids(0, 3), ids(10, 3))
    frame = spark.read.parquet(path)
    assert is_taken(frame, tmp_path)
    os.utime(f"{path}/0.parquet", (1, 1))
    assert not is_taken(frame, tmp_path)
    check_as_spark(spark, frame, tmp_path)
    os.remove(f"{path}/1.parquet")
    assert not is_taken(frame, tmp_path)
    with pytest.raises(SparkJobError):
        handed_over(spark, frame, tmp_path)


def test_many_files_are_left_to_spark(spark, tmp_path):
    assert splits(spark.read.parquet(write(tmp_path / "in", *[ids(0, 1)] * 257)), tmp_path) is None


def test_a_merge_of_files(io, spark, tmp_path):
    target = str(tmp_path / "ds")
    io.write_dataset(ids(0, 100), target)
    frame = spark.read.parquet(write(tmp_path / "in", ids(50, 30), ids(80, 40)))
    result = io.merge(frame, target, strategy="upsert", key_columns="id")
    assert (result.inserted, result.updated, result.unchanged) == (20, 50, 50)
    assert sorted(io.read_parquet(target)["id"].to_pylist()) == list(range(120))

"""DataFrames as sources: any column name, the dataset's types kept, and what cannot be a source is said early."""

from __future__ import annotations

import datetime as dt
import hashlib
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from fsspeckit.common.errors import ExpressionError, KeyColumnError, SchemaMismatchError, UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import SparkJobError
from fsspeckit.datasets.spark.frame_source import has_order, small_batches


def test_names_that_spark_cannot_resolve(io, tmp_path):
    path = str(tmp_path / "d")
    rows = pa.table({"id": [1, 2], "a.b": [1, 2], "x`y": ["p", "q"], "ID": [7, 8], "": [0, 0]})
    PyarrowDatasetIO().write_dataset(rows, path)
    result = io.merge(io.read(path), path, strategy="upsert", key_columns="id")
    assert (result.updated, result.unchanged) == (2, 2)
    assert io.read_parquet(path).equals(rows)


def test_a_name_that_stands_twice_is_refused(io, spark, tmp_path):
    frame = spark.sql("SELECT 1L AS id, 2 AS v, 3 AS v")
    with pytest.raises(SchemaMismatchError, match="duplicate column names"):
        io.merge(frame, str(tmp_path / "d"), strategy="upsert", key_columns="id")


def test_a_stream_is_refused(io, spark, tmp_path):
    with pytest.raises(UnsupportedDataError, match="foreachBatch"):
        io.merge(spark.readStream.format("rate").load(), str(tmp_path / "d"), strategy="upsert", key_columns="value")


_WIDER_ON_SPARK = {
    "ms": pa.array([1, None], pa.timestamp("ms")),
    "zoned": pa.array([1, None], pa.timestamp("ms", "America/Sao_Paulo")),
    "u8": pa.array([255, None], pa.uint8()),
    "u32": pa.array([2**32 - 1, None], pa.uint32()),
    "u64": pa.array([2**64 - 1, None], pa.uint64()),
    "half": pa.array([0.5, None], pa.float16()),
    "clock": pa.array([dt.time(1, 2, 3), None], pa.time32("ms")),
    "fixed": pa.array([b"abcd", None], pa.binary(4)),
    "code": pa.array(["x", None], pa.dictionary(pa.int8(), pa.string())),
    "list": pa.array([[1, None], None], pa.list_(pa.uint16())),
    "nothing": pa.nulls(2),
}


def _digests(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.glob("*.parquet")}


def test_types_that_spark_lacks_stay_those_of_the_dataset(io, tmp_path):
    path = tmp_path / "d"
    rows = pa.table({"id": pa.array([1, 2], pa.uint32())} | _WIDER_ON_SPARK)
    PyarrowDatasetIO().write_dataset(rows, str(path))
    before = _digests(path)
    same = io.merge(io.read(str(path)), str(path), strategy="upsert", key_columns="id")
    assert (same.updated, same.unchanged) == (2, 2)
    assert _digests(path) == before
    one_more = io.read(str(path)).selectExpr("* EXCEPT (id)", "id + 2 AS id")
    assert io.merge(one_more, str(path), strategy="upsert", key_columns="id").inserted == 2
    assert io.read_parquet(str(path)).schema.equals(rows.schema)
    io.write_dataset(one_more.where("false"), str(path), mode="append")


@pytest.mark.parametrize("share_limit", [None, 0], ids=["shared", "exchanged"])
def test_values_that_do_not_fit_promote_the_dataset_only_where_asked(spark, tmp_path, share_limit):
    io, path = SparkDatasetIO(spark, share_limit=share_limit), str(tmp_path / "d")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1], "v": pa.array([1], pa.uint64())}), path)
    frame = spark.range(9, numPartitions=1).selectExpr("id", "CAST(5 - id AS DECIMAL(20, 0)) AS v")
    for call in (lambda: io.merge(frame, path, key_columns="id"), lambda: io.write_dataset(frame, path)):
        with pytest.raises(SchemaMismatchError, match=r"'-1'\) of column 'v' .* source row 6, .* as uint64"):
            call()
    frame = spark.sql("SELECT 1L AS id, CAST(-1 AS DECIMAL(20, 0)) AS v")
    io.merge(frame, path, strategy="upsert", key_columns="id", schema_mode="widen")
    assert io.read_parquet(path)["v"].to_pylist() == [Decimal(-1)]


def test_which_row_wins_is_not_left_to_a_shuffle(io, spark, tmp_path):
    path = str(tmp_path / "d")
    frame = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c")], ["id", "v"]).coalesce(1)
    shuffled = frame.repartition(3, "v")
    for options in ({"on_duplicate_source": "last"}, {"on_duplicate_source": "first"}, {"strategy": "deduplicate"}):
        with pytest.raises(ValueError, match="orderBy"):
            io.merge(shuffled, path, key_columns="id", **({"strategy": "upsert"} | options))
    assert not (tmp_path / "d").exists() or not list((tmp_path / "d").rglob("*.parquet"))
    io.merge(shuffled.orderBy("v"), path, strategy="upsert", key_columns="id", on_duplicate_source="first")
    assert _values(io, path) == {1: "a", 2: "c"}
    io.merge(frame, path, strategy="upsert", key_columns="id", on_duplicate_source="last")
    assert _values(io, path) == {1: "b", 2: "c"}
    io.merge(shuffled, path, strategy="deduplicate", key_columns="id", dedup_order_by=["-v"])
    assert _values(io, path) == {1: "a", 2: "c"}
    io.merge(shuffled.where("v <> 'a'"), path, strategy="deduplicate", key_columns="id")
    assert _values(io, path) == {1: "b", 2: "c"}


def _values(io: SparkDatasetIO, path: str) -> dict[int, str]:
    rows = io.read_parquet(path)
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


_SHUFFLE = "\n   +- Exchange hashpartitioning(id#1L, 200)"


def test_order_is_read_from_the_plan():
    ordered = [
        "*(1) Scan ExistingRDD[id#18L]",
        f"AdaptiveSparkPlan\n+- Project [s#19]\n   +- Sort [id#1L ASC NULLS FIRST], true, 0{_SHUFFLE}",
        f"TakeOrderedAndProject(limit=5, orderBy=[id#1L ASC]){_SHUFFLE}",
        "+- BroadcastHashJoin\n   :- Scan parquet\n   +- BroadcastExchange\n      +- Scan parquet",
    ]
    shuffled = f"+- SortAggregate(key=[id#1L])\n   +- Sort [id#1L ASC], false, 0{_SHUFFLE}"
    assert all(map(has_order, ordered))
    assert not has_order(shuffled)
    assert not has_order("+- ReusedExchange [id#1L], Exchange hashpartitioning(id#1L)")


def test_types_that_plain_parquet_lacks_are_refused(io, spark, tmp_path):
    for column, advice in (
        ("named_struct('a', array(parse_json('1')))", "to_json"),
        ("map('k', INTERVAL '1' MONTH)", "months"),
        ("make_interval(1, 2)", "DAY TO SECOND"),
    ):
        with pytest.raises(UnsupportedDataError, match=advice):
            io.write_dataset(spark.sql(f"SELECT 1L AS id, {column} AS odd"), str(tmp_path / "d"))


def test_times_of_day_and_void_come_back(io, spark, tmp_path):
    path = str(tmp_path / "d")
    frame = spark.sql("SELECT TIME'12:00:01.000001' AS t, NULL AS n, array(NULL) AS a, INTERVAL '1' DAY AS i")
    io.write_dataset(frame, path)
    assert io.read(path).collect() == frame.collect()
    PyarrowDatasetIO().write_dataset(pa.table({"t": pa.array([1], pa.time64("ns"))}), str(tmp_path / "fine"))
    with pytest.raises(PythonException, match="without loss"):
        io.read(str(tmp_path / "fine")).collect()


def test_a_query_that_always_fails_is_not_to_be_run_again(io, spark, tmp_path):
    with pytest.raises(SparkJobError, match=r"no such luck.*mend the query"):
        io.write_dataset(spark.sql("SELECT 1L AS id, raise_error('no such luck') AS v"), str(tmp_path / "d"))


def _rows_of_batches(frame):
    """How many rows the batches have in which a frame is handed to Python while it is a source."""

    def count(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    with small_batches(frame):
        return set(frame.mapInArrow(count, "rows long").toArrow()["rows"].to_pylist())


def test_rows_are_handed_over_in_small_batches_that_nobody_weighs(spark):
    names = [f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes")]
    before = [spark.sparkContext.getLocalProperty(name) for name in names], dict(spark.conf.getAll)
    assert _rows_of_batches(spark.range(0, 4000, 1, 1)) == {400}
    assert ([spark.sparkContext.getLocalProperty(name) for name in names], dict(spark.conf.getAll)) == before


def test_so_are_rows_that_executors_read_from_files(spark, tmp_path):
    io = SparkDatasetIO(spark)
    io.write_dataset(pa.table({"id": range(4000)}), tmp_path / "d")
    assert _rows_of_batches(io.read(tmp_path / "d").filter("id >= 0")) == {400}


def test_batches_that_are_not_ours_to_cut_stay_as_they_were(spark):
    rows = spark.range(0, 4000, 1, 1)
    for own in (
        rows.mapInArrow(lambda batches: batches, "id long"),
        rows.mapInArrow(lambda batches: batches, "id long").localCheckpoint(eager=False),
        rows.selectExpr("cast(string(id) as binary) as large"),
        rows.selectExpr("struct(id, array_repeat(id, 3) as large) as nested"),
    ):
        assert _rows_of_batches(own) == {4000}
    own = spark.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
    assert _rows_of_batches(own.range(0, 4000, 1, 1)) == {2000}


def test_threads_that_share_a_thread_of_java_set_nothing_there(spark, monkeypatch):
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    assert _rows_of_batches(spark.range(0, 4000, 1, 1)) == {4000}


def test_rows_outside_replace_where_are_found_on_executors(io, spark, tmp_path):
    """The rows of a DataFrame are in files of its tasks, whose columns the driver does not read for the check."""
    path = str(tmp_path / "d")
    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "id % 5 AS day", "'new' AS v")
    io.write_dataset(frame, path, partition_by="day")
    with pytest.raises(ExpressionError, match=r"^600 source row.*such as \[\{'day': 2\}"):
        io.write_dataset(frame, path, mode="overwrite", replace_where="day < 2")
    result = io.write_dataset(frame.where("day < 2 AND id < 500"), path, mode="overwrite", replace_where="day < 2")
    assert (result.rows, result.replaced, len(result.deleted_files)) == (200, 400, 2)
    assert io.read_parquet(path).num_rows == 800
    assert io.update(path, set={"day": "id % 3"}, where="true").moved > 0
    assert io.read_parquet(path, filters="day <> id % 3").num_rows == 0


def test_ties_of_a_change_feed_need_an_order(io, spark, tmp_path):
    path, options = str(tmp_path / "d"), {"key_columns": "id", "sequence_by": "at", "scd_type": 2}
    equal = spark.range(8).selectExpr("id % 2 AS id", "'a' AS v", "1L AS at").repartition(4)
    assert io.apply_changes(equal, path, **options).inserted == 2
    different = spark.range(8).selectExpr("id % 2 AS id", "CAST(id AS STRING) AS v", "1L AS at")
    with pytest.raises(KeyColumnError, match="orderBy"):
        io.apply_changes(different.repartition(4), path, **options)
    io.apply_changes(different.repartition(4).orderBy("v"), path, **options)
    assert _values(io, path) == {0: "6", 1: "7"}

"""The main operations of the Spark engine: older versions of PySpark run this folder and the conformance tests.

`make test` runs the other tests with the pinned version and does not repeat these.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from engines.spark.clusters import HERE, connect_port, environment
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, SparkJobError
from fsspeckit.pipeline import Pipeline
from inside import by_shuffle, lower

COLUMNS = (
    "id",
    "concat('{name} ', id) AS name",
    "timestamp_ntz'2026-03-29 01:30:00' + make_dt_interval(0, 0, 0, id) AS wall_time",
    "timestamp_seconds(1774747800 + id) AS instant",
    "cast(id AS decimal(12, 2)) / cast(8 AS decimal(12, 2)) AS price",
    "named_struct('city', concat('{name} ', id), 'codes', array(cast(id AS int), null)) AS place",
    "array(struct(id AS number, timestamp_seconds(id) AS at)) AS visits",
)
NESTED = ("place", "visits")
TYPES = {
    "id": pa.int64(),
    "name": pa.string(),
    "wall_time": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
}
CONNECT = """
import sys
import life
from pyspark.sql import SparkSession
life.live(SparkSession.builder.remote("local[2]").getOrCreate(), sys.argv[1])
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A local session in a time zone in which 01:30 is not 01:30 UTC."""
    session = SparkDatasetIO().spark
    session.conf.set("spark.sql.session.timeZone", "America/Sao_Paulo")
    yield session
    session.conf.unset("spark.sql.session.timeZone")


def frame(spark: Any, start: int, stop: int, name: str) -> Any:
    return spark.range(start, stop).selectExpr(*(column.format(name=name) for column in COLUMNS))


def expected_row(number: int, name: str) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"{name} {number}",
        "wall_time": dt.datetime(2026, 3, 29, 1, 30, number),  # noqa: DTZ001 - a time without a zone
        "instant": dt.datetime.fromtimestamp(1774747800 + number, dt.UTC),
        "price": Decimal(number) / 8,
        "place": {"city": f"{name} {number}", "codes": [number, None]},
        "visits": [{"number": number, "at": dt.datetime.fromtimestamp(number, dt.UTC)}],
    }


def rows(path: Path) -> list[dict[str, Any]]:
    return PyarrowDatasetIO().read_parquet(path).sort_by("id").to_pylist()


@pytest.mark.parametrize("route", ["shared files", "exchange", "exchange by shuffle"])
def test_a_dataframe_is_merged_with_all_its_types(spark: Any, tmp_path: Path, route: str) -> None:
    path = tmp_path / "orders"
    io = SparkDatasetIO(spark, share_limit=0 if "exchange" in route else None)
    io = by_shuffle(io) if "shuffle" in route else io
    assert io.write_dataset(frame(spark, 0, 20, "old"), path, max_rows_per_file=5).rows == 20
    updates = frame(spark, 15, 25, "new").repartition(3)
    plan = io.merge(updates, path, strategy="upsert", key_columns="id", dry_run=True)
    assert plan.source_route == route.removesuffix(" by shuffle")
    assert {row["name"].split()[0] for row in rows(path)} == {"old"}
    result = io.merge(updates, path, strategy="upsert", key_columns="id")
    assert result.stats() == plan.stats() == {"inserted": 5, "updated": 5, "deleted": 0, "total": 25}
    schema = PyarrowDatasetIO().read_parquet(path).schema
    assert {name: schema.field(name).type for name in TYPES} == TYPES
    assert rows(path) == [expected_row(number, "old" if number < 15 else "new") for number in range(25)]


def test_a_dataset_is_read_as_a_dataframe_with_the_same_instants_and_times(spark: Any, tmp_path: Path) -> None:
    io, path = SparkDatasetIO(spark), tmp_path / "orders"
    io.write_dataset(frame(spark, 0, 3, "old"), path)
    found = io.read(path, filters=[("id", ">", 0)])
    types = dict(found.dtypes)
    assert (types["wall_time"], types["instant"]) == ("timestamp_ntz", "timestamp")
    texts = found.selectExpr("id", "cast(wall_time AS string) AS wall_time", "unix_seconds(instant) AS instant")
    assert sorted(map(tuple, texts.collect())) == [
        (number, f"2026-03-29 01:30:0{number}", 1774747800 + number) for number in (1, 2)
    ]


@pytest.mark.parametrize("kind", ["path", "arrow", "dataframe of files"])
def test_paths_tables_and_files_are_merged(spark: Any, tmp_path: Path, kind: str) -> None:
    """Without nested columns, so that a DataFrame of files is read with Arrow."""
    io, path, new = SparkDatasetIO(spark), tmp_path / "orders", tmp_path / "new"
    io.write_dataset(frame(spark, 0, 4, "old").drop(*NESTED), path)
    io.write_dataset(frame(spark, 3, 6, "new").drop(*NESTED), new)
    sources = {
        "path": lambda: new,
        "arrow": lambda: PyarrowDatasetIO().read_parquet(new),
        "dataframe of files": lambda: spark.read.parquet(str(new)),
    }
    result = io.merge(sources[kind](), path, strategy="upsert", key_columns="id")
    assert result.stats() == {"inserted": 2, "updated": 1, "deleted": 0, "total": 6}
    whole = [expected_row(number, "old" if number < 3 else "new") for number in range(6)]
    assert rows(path) == [{name: row[name] for name in row if name not in NESTED} for row in whole]


def test_maintenance_gives_the_rows_of_the_pyarrow_engine(spark: Any, tmp_path: Path) -> None:
    found = []
    for name, io in (("spark", SparkDatasetIO(spark)), ("pyarrow", PyarrowDatasetIO())):
        path = tmp_path / name
        for start in range(0, 60, 10):
            ids = [number % 47 for number in range(start, start + 10)]
            PyarrowDatasetIO().write_dataset(pa.table({"id": ids, "b": [-i for i in ids], "n": [start] * 10}), path)
        removed = io.deduplicate_parquet_dataset(path, key_columns="id", dedup_order_by="n")
        compacted = io.compact_parquet_dataset(path, target_rows_per_file=20)
        planned = io.optimize_parquet_dataset(path, ["id", "b"], curve="zorder", target_rows_per_file=12, dry_run=True)
        sorted_ = io.optimize_parquet_dataset(path, ["id", "b"], curve="zorder", target_rows_per_file=12)
        counts = removed["deduplicated_rows"], compacted.after_file_count, planned.after_file_count
        found.append((*counts, sorted_.after_file_count, io.read_parquet(path)))
    assert found[0] == found[1]
    assert (found[0][0], found[0][-1].num_rows) == (13, 47)


def test_a_query_that_fails_is_reported_in_one_line(spark: Any, tmp_path: Path) -> None:
    io, path = SparkDatasetIO(spark), tmp_path / "orders"
    io.write_dataset(frame(spark, 0, 3, "old"), path)
    broken = spark.range(1).selectExpr("id", "cast(raise_error('sensor broken') AS string) AS name")
    with pytest.raises(SparkJobError, match="sensor broken") as caught:
        io.merge(broken, path, strategy="update", key_columns="id", schema_mode="evolve")
    assert "\n" not in str(caught.value)
    assert rows(path) == [expected_row(number, "old") for number in range(3)]


def test_the_command_line_merges(tmp_path: Path) -> None:
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), tmp_path / "lake")
    (tmp_path / "new.csv").write_text("id,v\n2,B\n3,C\n")
    words = ["merge", "new.csv", "lake", "--key", "id", "--engine", "spark", "--json"]
    command = [sys.executable, "-m", "fsspeckit.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["inserted"], told["updated"], told["total"]) == (1, 1, 3)
    assert [row["v"] for row in rows(tmp_path / "lake")] == ["a", "B", "C"]


@pytest.mark.parametrize("between", [False, True], ids=["straight", "by a step"])
def test_a_pipeline_merges_csv_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: bool
) -> None:
    """Types that the source names, types of the dataset, and times without a zone; executors read the files."""
    monkeypatch.chdir(tmp_path)
    lower(monkeypatch, "bytes of a small file", 0)
    schema = pa.schema(
        [("id", pa.int64()), ("zip", pa.string()), ("at", pa.timestamp("us")), ("price", pa.decimal128(9, 2))]
    )
    PyarrowDatasetIO().write_dataset(schema.empty_table(), "lake")
    Path("new.csv").write_text("id,zip,at,price\n1,01234,2026-03-29 01:30:00,1.5\n2,,,\n")
    steps = [{"name": "kept", "do": "filter", "from": "raw", "where": "id > 0"}] if between else []
    load = {"name": "load", "do": "merge", "from": "kept" if between else "raw", "into": "lake", "keys": ["id"]}
    source = {"format": "csv", "path": "new.csv", "columns": "id bigint, at timestamp_ntz"}
    file = {"name": "p", "sources": {"raw": source}, "datasets": {"lake": {"path": "lake"}}, "steps": [*steps, load]}
    assert Pipeline.of(file).run(spark).step("load").details["inserted"] == 2
    assert PyarrowDatasetIO().read_parquet("lake").schema.equals(schema)
    at = dt.datetime(2026, 3, 29, 1, 30)  # noqa: DTZ001 - a time without a zone
    assert rows(tmp_path / "lake") == [
        {"id": 1, "zip": "01234", "at": at, "price": Decimal("1.50")},
        {"id": 2, "zip": None, "at": None, "price": None},
    ]


@pytest.mark.skipif(
    pyspark.__version__.startswith("3."), reason="the package of PySpark 3.5 has no server of Spark Connect"
)
def test_spark_connect_merges(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(HERE), *sys.path])
    env = environment(PYSPARK_PYTHON=sys.executable) | {"PYTHONPATH": paths}
    command = [sys.executable, "-W", "error", "-c", CONNECT, str(tmp_path)]
    with connect_port():
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout.splitlines(), done.returncode) == (["lived"], 0), done.stderr[-5000:]

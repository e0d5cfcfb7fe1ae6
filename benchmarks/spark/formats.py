"""Delta Lake and Apache Iceberg: their tables over the files of a target, and their statements.

Both take part if the session has their jars (`benchmarks.spark.jars`). Their tables are made of the same files, with
statistics, without deletion vectors and with copy-on-write, so that all contenders rewrite files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks.data import copy_target, once
from benchmarks.job import KEY
from benchmarks.spark.contenders import Contender, Facts, Job, full_merge
from benchmarks.spark.contenders import ours as ours_upsert
from benchmarks.spark.upkeep import FILE_BYTES, ORDER, compact_to_bytes, deduplicate, newest_rows, zorder

OURS = "fsspeckit"
DELTA = "Delta"
ICEBERG = "Iceberg"
_CATALOG = "benchmark_iceberg"
_NAMESPACE, _TABLE = "benchmarks", f"{_CATALOG}.benchmarks.target"
_EXTENSIONS = "spark.sql.extensions"
_NAMES = {DELTA: "DeltaSparkSessionExtension", ICEBERG: "IcebergSparkSessionExtensions"}
_UPSERT = f"ON t.{KEY} = s.{KEY} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
_FULL = f"{_UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE"
_PROPERTIES = {
    "format-version": "2",
    "write.merge.mode": "copy-on-write",
    "write.parquet.compression-codec": "snappy",
    "write.target-file-size-bytes": str(FILE_BYTES),
}


def settings(jars: str, warehouse: Path) -> dict[str, str]:
    """Return the settings of a session with both formats."""
    return {
        "spark.jars": jars,
        _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
        "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
        f"spark.sql.catalog.{_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{_CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{_CATALOG}.warehouse": str(warehouse),
    }


@dataclass(frozen=True, slots=True)
class Format:
    """How a table of a format is made of the files of a target, and which files its newest version has.

    Attributes:
        original: Returns the folder to copy for each run, given the target.
        prepare: Makes the copy a table, before the clock starts.
        files: Returns the files of the newest version.
    """

    original: Callable[[SparkSession, Path], Path]
    prepare: Callable[[SparkSession, Path], None]
    files: Callable[[SparkSession, Path], list[str]]


def is_available(spark: SparkSession, label: str) -> bool:
    """Return whether a contender can run in the session: it is no table format, or the session has its jars."""
    return label not in FORMATS or _NAMES[label] in (spark.conf.get(_EXTENSIONS, "") or "")


def _delta_table(spark: SparkSession, target: Path) -> Path:
    """Return a Delta table of the same files, which is built once."""
    folder = target.with_name(target.name + "-delta-spark")

    def write(partial: Path) -> None:
        copy_target(target, partial)
        spark.sql(f"CONVERT TO DELTA parquet.`{partial}`")

    once(folder, write)
    return folder


def _delta_files(spark: SparkSession, target: Path) -> list[str]:
    return spark.read.format("delta").load(str(target)).inputFiles()


def _iceberg_table(spark: SparkSession, target: Path) -> None:
    """Make the copy an Iceberg table: register its files, without copying them."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_CATALOG}.{_NAMESPACE}")
    spark.sql(f"DROP TABLE IF EXISTS {_TABLE} PURGE")
    table = spark.read.parquet(str(target)).limit(0).writeTo(_TABLE).using("iceberg")
    for name, value in _PROPERTIES.items():
        table = table.tableProperty(name, value)
    table.create()
    own_name = _TABLE.removeprefix(f"{_CATALOG}.")
    spark.sql(f"CALL {_CATALOG}.system.add_files(table => '{own_name}', source_table => '`parquet`.`{target}`')")


def _iceberg_files(spark: SparkSession, _target: Path) -> list[str]:
    found = spark.sql(f"SELECT file_path FROM {_TABLE}.files WHERE content = 0").toArrow()
    return [str(path) for path in found["file_path"].to_pylist()]


FORMATS: Mapping[str, Format] = {
    DELTA: Format(_delta_table, lambda _spark, _target: None, _delta_files),
    ICEBERG: Format(lambda _spark, target: target, _iceberg_table, _iceberg_files),
}


def _delta(statement: str) -> Contender:
    return _statement(statement, lambda job: f"delta.`{job.target}`")


def _iceberg(statement: str) -> Contender:
    return _statement(statement, lambda _job: _TABLE)


def _statement(statement: str, table: Callable[[Job], str]) -> Contender:
    """Return a contender that runs one statement; ``{table}`` is the table and ``source`` the source."""

    def run(job: Job) -> Facts:
        job.frame.createOrReplaceTempView("source")
        job.spark.sql(statement.format(table=table(job))).collect()
        return {}

    return run


def _delta_newest(job: Job) -> Facts:
    rows = job.spark.read.format("delta").load(str(job.target))
    newest_rows(rows).write.format("delta").mode("overwrite").save(str(job.target))
    return {}


def _iceberg_newest(job: Job) -> Facts:
    rows: DataFrame = job.spark.table(_TABLE)
    newest_rows(rows).writeTo(_TABLE).overwrite(sql.lit(True))
    return {}


def _rewrite(options: Mapping[str, str], arguments: Sequence[str] = ()) -> Contender:
    """Return Iceberg's `rewrite_data_files`."""
    given = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    named = ["table => '{table}'", *arguments, f"options => map({given})"]
    return _iceberg(f"CALL {_CATALOG}.system.rewrite_data_files({', '.join(named)})")


_SIZE = {"target-file-size-bytes": str(FILE_BYTES)}
_ZORDER = ("strategy => 'sort'", f"sort_order => 'zorder({', '.join(ORDER)})'")
UPSERT: Mapping[str, Contender] = {
    OURS: ours_upsert,
    DELTA: _delta(f"MERGE INTO {{table}} t USING source s {_UPSERT}"),
    ICEBERG: _iceberg(f"MERGE INTO {{table}} t USING source s {_UPSERT}"),
}
FULL_MERGE: Mapping[str, Contender] = {
    OURS: full_merge,
    DELTA: _delta(f"MERGE INTO {{table}} t USING source s {_FULL}"),
    ICEBERG: _iceberg(f"MERGE INTO {{table}} t USING source s {_FULL}"),
}
COMPACT: Mapping[str, Contender] = {
    OURS: compact_to_bytes,
    DELTA: _delta("OPTIMIZE {table}"),
    ICEBERG: _rewrite(_SIZE),
}
ZORDER: Mapping[str, Contender] = {
    OURS: zorder,
    DELTA: _delta(f"OPTIMIZE {{table}} ZORDER BY ({', '.join(ORDER)})"),
    ICEBERG: _rewrite({**_SIZE, "rewrite-all": "true"}, _ZORDER),
}
DEDUPLICATE: Mapping[str, Contender] = {OURS: deduplicate, DELTA: _delta_newest, ICEBERG: _iceberg_newest}

"""Row changes on Spark: fsspeckit, and Delta Lake's DELETE, UPDATE and MERGE on the same files in the same session.

Delta takes part if the session has its jars, see `benchmarks.spark.formats`.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.data import COLUMNS
from benchmarks.job import KEY
from benchmarks.row_queries import DELETE_WHEN, SEQUENCE, SET, VALUE
from benchmarks.spark.contenders import Contender, Facts, Job, row_facts
from benchmarks.spark.formats import DELTA
from fsspeckit.datasets.spark import SparkDatasetIO

_MATCHED = f"ON t.{KEY} = s.{KEY}"
_NEWER = f"s.{SEQUENCE} > t.{SEQUENCE}"
_ALL = ", ".join(f"t.{name} = s.{name}" for name in COLUMNS)
_NAMES, _VALUES = ", ".join(COLUMNS), ", ".join(f"s.{name}" for name in COLUMNS)
_STATEMENTS = {
    "delete": "DELETE FROM {table} WHERE {where}",
    "update": f"UPDATE {{table}} SET {VALUE} = {SET} WHERE {{where}}",
    "columns": f"MERGE INTO {{table}} t USING source s {_MATCHED} WHEN MATCHED THEN UPDATE SET t.{VALUE} = s.{VALUE} "
    "WHEN NOT MATCHED THEN INSERT *",
    "feed": f"MERGE INTO {{table}} t USING source s {_MATCHED} "
    f"WHEN MATCHED AND {_NEWER} AND s.{DELETE_WHEN} THEN DELETE WHEN MATCHED AND {_NEWER} THEN UPDATE SET {_ALL} "
    f"WHEN NOT MATCHED AND NOT s.{DELETE_WHEN} THEN INSERT ({_NAMES}) VALUES ({_VALUES})",
}


def delete_rows(job: Job) -> Facts:
    """Delete rows with fsspeckit."""
    return row_facts(SparkDatasetIO(job.spark).delete(str(job.target), where=job.condition.sql))


def update_rows(job: Job) -> Facts:
    """Update a column with fsspeckit."""
    return row_facts(SparkDatasetIO(job.spark).update(str(job.target), set={VALUE: SET}, where=job.condition.sql))


def merge_columns(job: Job) -> Facts:
    """Merge one column with fsspeckit."""
    call = {"strategy": "upsert", "key_columns": [KEY], "update_columns": [VALUE]}
    return row_facts(SparkDatasetIO(job.spark).merge(job.frame, str(job.target), **call))


def apply_changes(job: Job) -> Facts:
    """Apply a change feed with fsspeckit."""
    call = {"key_columns": KEY, "sequence_by": SEQUENCE, "delete_when": DELETE_WHEN, "except_columns": "op"}
    return row_facts(SparkDatasetIO(job.spark).apply_changes(job.frame, str(job.target), **call))


def _delta(change: str) -> Contender:
    def run(job: Job) -> Facts:
        job.frame.createOrReplaceTempView("source")
        where = job.where.sql if job.where else ""
        job.spark.sql(_STATEMENTS[change].format(table=f"delta.`{job.target}`", where=where)).collect()
        return {}

    return run


_OURS = {"delete": delete_rows, "update": update_rows, "columns": merge_columns, "feed": apply_changes}
CONTENDERS: Mapping[str, Mapping[str, Contender]] = {
    change: {"fsspeckit": ours, DELTA: _delta(change)} for change, ours in _OURS.items()
}

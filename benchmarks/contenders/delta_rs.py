"""delta-rs: the same Parquet files as a Delta table, changed by delta-rs."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from benchmarks.data import COLUMNS
from benchmarks.job import KEY, Job, Work
from benchmarks.row_queries import DELETE_WHEN, SEQUENCE, SET, VALUE


def upsert(job: Job) -> Work:
    return lambda: _merge(job, delete=False)


def full_sync(job: Job) -> Work:
    return lambda: _merge(job, delete=True)


def _merge(job: Job, *, delete: bool) -> dict[str, Any]:
    table = DeltaTable(str(job.target))
    merger = table.merge(job.source, f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
    merger = merger.when_matched_update_all().when_not_matched_insert_all()
    if delete:
        merger = merger.when_not_matched_by_source_delete()
    return _done(table, merger)


def delete_rows(job: Job) -> Work:
    def work() -> dict[str, Any]:
        table = DeltaTable(str(job.target))
        metrics = table.delete(job.condition.sql)
        return {"rewritten_files": metrics["num_removed_files"], "files": table.file_uris()}

    return work


def update_rows(job: Job) -> Work:
    def work() -> dict[str, Any]:
        table = DeltaTable(str(job.target))
        metrics = table.update(updates={VALUE: SET}, predicate=job.condition.sql)
        return {"rewritten_files": metrics["num_removed_files"], "files": table.file_uris()}

    return work


def merge_columns(job: Job) -> Work:
    def work() -> dict[str, Any]:
        table = DeltaTable(str(job.target))
        merger = table.merge(job.source, f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        return _done(table, merger.when_matched_update({VALUE: f"s.{VALUE}"}).when_not_matched_insert_all())

    return work


def apply_changes(job: Job) -> Work:
    newer, columns = f"s.{SEQUENCE} > t.{SEQUENCE}", {name: f"s.{name}" for name in COLUMNS}

    def work() -> dict[str, Any]:
        table = DeltaTable(str(job.target))
        merger = table.merge(job.source, f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        merger = merger.when_matched_delete(f"{newer} AND s.{DELETE_WHEN}").when_matched_update(columns, newer)
        return _done(table, merger.when_not_matched_insert(columns, f"NOT s.{DELETE_WHEN}"))

    return work


def _done(table: DeltaTable, merger: Any) -> dict[str, Any]:
    return {"rewritten_files": merger.execute()["num_target_files_removed"], "files": table.file_uris()}

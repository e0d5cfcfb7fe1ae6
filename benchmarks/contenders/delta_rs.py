"""delta-rs: the same Parquet files as a Delta table, merged by delta-rs."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from benchmarks.job import KEY, Job, Work


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
    metrics = merger.execute()
    return {"rewritten_files": metrics["num_target_files_removed"], "files": table.file_uris()}

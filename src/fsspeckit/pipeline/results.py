"""The result of a pipeline run: one document with a record for each step, in JSON types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.text import printable
from fsspeckit.core.result_view import ResultMapping, columns, quoted, readable_bytes
from fsspeckit.core.results import WITH_SOURCE, MaintenanceResult, MergeResult, WriteResult

Status = Literal["done", "skipped", "failed", "not run", "not selected"]


@dataclass(frozen=True, slots=True, eq=False)
class StepRecord(ResultMapping):
    """The result of one step.

    ``rows`` is the number merged, written, deleted, updated or checked; for maintenance, the rows of the dataset.
    ``files`` and ``bytes`` count what was written. Row steps are lazy and have none of these: Spark runs them with the
    step that writes. ``details`` are the counts of one operation. ``checks`` has "passed" or the violation of each
    check, ``expectations`` the rows that do not meet a condition, by name. ``attempts`` counts repetitions too.
    """

    name: str
    do: str
    status: Status
    dataset: str | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    seconds: float = 0.0
    commit_seq: int | None = None
    details: dict[str, int] = field(default_factory=dict)
    error: str | None = None
    checks: dict[str, str] = field(default_factory=dict)
    expectations: dict[str, int] = field(default_factory=dict)
    attempts: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class PipelineResult(ResultMapping):
    """The result of a run: its key, its status, and its steps in the order in which they ran."""

    pipeline: str
    idempotency_key: str
    status: Literal["done", "failed"]
    started_at: str
    seconds: float
    steps: tuple[StepRecord, ...]
    error: str | None = None

    def step(self, name: str) -> StepRecord:
        """Return the record of a step; raise `KeyError` if the pipeline has no such step."""
        return {record.name: record for record in self.steps}[name]

    def __str__(self) -> str:
        return f"{self._title()}\n" + columns(list(self._table()))

    def _repr_html_(self) -> str:
        head, *body = self._table()
        cells = ["".join(f"<td>{quoted(cell)}</td>" for cell in row) for row in body]
        names = "".join(f"<th>{name}</th>" for name in head)
        rows = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><caption>{quoted(self._title())}</caption><tr>{names}</tr>{rows}</table>"

    def _title(self) -> str:
        return printable(f"{self.pipeline} ({self.idempotency_key}): {self.status}")

    def _table(self) -> Iterator[tuple[str, ...]]:
        yield "step", "does", "status", "rows", "files", "size", "commit", "seconds"
        for step in self.steps:
            numbers = ["-" if value is None else f"{value:,}" for value in (step.rows, step.files)]
            size = "-" if step.bytes is None else readable_bytes(step.bytes)
            commit = "-" if step.commit_seq is None else str(step.commit_seq)
            yield step.name, step.do, step.status, *numbers, size, commit, f"{step.seconds:.2f}"


class StepFailedError(FsspeckitError, RuntimeError):
    """A step of a pipeline failed and ended the run; ``__cause__`` is the error, ``result`` the result up to there."""

    def __init__(self, message: str, step: str, result: PipelineResult) -> None:
        super().__init__(message)
        self.step, self.result = step, result


def facts(result: MergeResult | WriteResult | MaintenanceResult) -> dict[str, Any]:
    """Return the fields of a step record from the result of an operation."""
    if isinstance(result, MergeResult):
        written = [file for file in result.files if file.operation != "preserved"]
        others = {name: result[name] for name in ("unchanged", "stale", "moved")}
        counts = result.stats() | others | {"deleted_files": len(result.deleted_files)}
        rows = result.source_count if result.operation in WITH_SOURCE else result.updated + result.deleted
        seq = result.commit_seq
        return _written(rows, len(written), sum(file.size_bytes or 0 for file in written), seq, counts)
    if isinstance(result, WriteResult):
        counts = {"deleted_files": len(result.deleted_files)}
        if result.replaced is not None:
            counts |= {"replaced": result.replaced, "rewritten_files": len(result.rewritten_files)}
        size = sum(file.size_bytes or 0 for file in result.files)
        return _written(result.rows, len(result.files), size, result.commit_seq, counts)
    counts = {
        "files_before": result.before_file_count,
        "files_after": result.after_file_count,
        "deleted": result.before_row_count - result.after_row_count,
    }
    size = result.after_total_bytes - result.before_total_bytes + result.rewritten_bytes
    commits = result.commits
    return _written(result.after_row_count, len(result.new_files), size, commits[-1] if commits else None, counts)


def _written(rows: int, files: int, size: int, seq: int | None, details: dict[str, int]) -> dict[str, Any]:
    return {"rows": rows, "files": files, "bytes": size, "commit_seq": seq, "details": details}

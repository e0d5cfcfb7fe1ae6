"""What a dry run of a pipeline returns: for each step what is known without reading rows, as text and as JSON types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fsspeckit.common.text import counted, printable
from fsspeckit.core.result_view import ResultMapping, columns, readable_bytes

State = Literal["existing", "new", "written above"]
_STATES = {"new": "a new dataset", "written above": "a dataset that an earlier step creates"}
_NOTE = (
    "Nothing was written. How many rows and files a merge, write or update changes depends on the rows; "
    "`fsspeckit plan` counts them for one operation."
)


@dataclass(frozen=True, slots=True, eq=False)
class StepPreview(ResultMapping):
    """What a step would do, by footers, statistics and the journal.

    ``columns`` are those that it makes, writes or checks, ``effect`` is one sentence. The rest describes the dataset
    of the step: ``state`` says whether it exists, ``files``, ``rows`` and ``bytes`` what it has now, ``added_columns``
    what it gets. ``work`` is what footers say about the operation: ``files_rewritten`` and ``files_after`` of compact
    and optimize, ``files_at_most`` and ``rows_at_most`` of delete and update; if ``changed_above``, before the steps
    above. ``reads`` counts new files, or has the versions of changes. A step with ``committed`` is skipped: this commit
    of an earlier run has the same key.
    """

    name: str
    do: str
    dataset: str | None
    columns: dict[str, str]
    effect: str
    state: State | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    partition_by: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    strategy: str | None = None
    added_columns: dict[str, str] = field(default_factory=dict)
    work: dict[str, int] = field(default_factory=dict)
    changed_above: bool = False
    reads: dict[str, int | None] = field(default_factory=dict)
    expect: dict[str, str] = field(default_factory=dict)
    on_fail: str | None = None
    quarantine: str | None = None
    quarantine_state: State | None = None
    committed: int | None = None

    def lines(self) -> Iterator[str]:
        """Yield what the step would do, one fact in each line."""
        if self.committed is not None:
            yield f"skipped: commit {self.committed} of an earlier run has the same idempotency key"
        yield self.effect
        if self.state is not None:
            yield f"dataset: {self._dataset()}"
        if self.reads:
            yield f"reads: {_reads(self.reads)}"
        if self.columns:
            yield f"columns: {_typed(self.columns)}"
        if self.added_columns:
            yield f"adds: {_typed(self.added_columns)}"
        if self.work:
            yield f"work: {self._work()}"
        if self.expect:
            yield f"rows that do not meet {', '.join(self.expect)}: {self._wrong_rows()}"

    def _dataset(self) -> str:
        parts = [_STATES.get(self.state or "", "")]
        if self.state == "existing":
            numbers = counted(self.files or 0, "file"), counted(self.rows or 0, "row"), readable_bytes(self.bytes or 0)
            parts = [*numbers, *(["changed by steps above"] if self.changed_above else [])]
        return ", ".join([*parts, *([f"partitioned by {', '.join(self.partition_by)}"] if self.partition_by else [])])

    def _work(self) -> str:
        work, before = self.work, " before the steps above" if self.changed_above else ""
        if "files_after" in work:
            files = f"{work['files_rewritten']:,} of {counted(self.files or 0, 'file')}"
            return f"{files} rewritten, {counted(work['files_after'], 'file')} after it, by footers{before}"
        rows = counted(work["rows_at_most"], "row")
        return f"at most {rows} in {counted(work['files_at_most'], 'file')}, by statistics{before}"

    def _wrong_rows(self) -> str:
        if self.quarantine is None:
            return self.on_fail or ""
        return f"quarantine {self.quarantine}, {_STATES.get(self.quarantine_state or '', 'an existing dataset')}"


@dataclass(frozen=True, slots=True, eq=False)
class PipelinePreview(ResultMapping):
    """What the steps of a pipeline would do, in the order in which they run; ``note`` says what is not known."""

    pipeline: str
    steps: tuple[StepPreview, ...]
    note: str = _NOTE

    def step(self, name: str) -> StepPreview:
        """Return the preview of a step; raise `KeyError` if there is no such step."""
        return {step.name: step for step in self.steps}[name]

    def __str__(self) -> str:
        rows = [("step", "does", "")]
        for step in self.steps:
            first, *others = step.lines()
            rows += [(step.name, step.do, first), *(("", "", line) for line in others)]
        return f"{printable(self.pipeline)}: dry run\n{columns(rows)}\n{self.note}"


def _typed(columns_: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns_.items())


def _reads(reads: Mapping[str, int | None]) -> str:
    if "source_files" in reads:
        left = reads["files_left"]
        return counted(reads["source_files"] or 0, "new file") + (f", {left:,} left for the next run" if left else "")
    since, until = reads["since"], reads["until"]
    if since == until:
        return "no changes"
    return f"all rows of version {until}" if since is None else f"changes after version {since} up to {until}"

"""Run the steps of a pipeline in one Spark session, independent ones at the same time.

A step that changes a dataset commits with a key of the pipeline, the step and the run. A repeated run with the same key
skips committed steps, and so does a repetition of a failed step whose commit succeeded after all. Everything that can
be checked without writing is checked before the first step writes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Protocol

from fsspeckit.common.errors import AlreadyCommittedError, CommitConflictError, DatasetExistsError, StorageError
from fsspeckit.common.text import scrub
from fsspeckit.core.commit.terms import Terms
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.operations.read import existing_view
from fsspeckit.core.operations.versions import keep_history
from fsspeckit.core.progress import Progress, Reporter
from fsspeckit.core.results import MaintenanceResult, MergeResult, WriteResult
from fsspeckit.datasets.arguments import parse_duration
from fsspeckit.datasets.spark import SparkDatasetIO, SparkJobCancelledError, SparkJobError
from fsspeckit.datasets.spark.file_source import files_frame
from fsspeckit.datasets.spark.job_progress import OnTasks
from fsspeckit.datasets.spark.session import get_session
from fsspeckit.pipeline.checks import Checker
from fsspeckit.pipeline.dataset_steps import change
from fsspeckit.pipeline.expectations import digest_of, naming_quarantine, refuse, set_aside, sort_rows, with_reason
from fsspeckit.pipeline.frames import Frames
from fsspeckit.pipeline.load import PipelineFileError
from fsspeckit.pipeline.model import AnyStep, ApplyChanges, Check, Merge, PipelineFile, Write
from fsspeckit.pipeline.order import (
    changed_by,
    dataset_of,
    datasets_behind,
    graph,
    incremental_behind,
    inputs_of,
    is_writer,
    makes_rows,
    source_of,
)
from fsspeckit.pipeline.parts import Checks, Repeat
from fsspeckit.pipeline.publishing import check_catalog, publish
from fsspeckit.pipeline.results import PipelineResult, StepFailedError, StepRecord, facts
from fsspeckit.pipeline.trust import reads_undeclared
from fsspeckit.pipeline.windows import AnyWindow, has_read, window_of
from fsspeckit.pipeline.wording import as_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Rows = DataFrame | RowFiles | None

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PASSING = (CommitConflictError, StorageError, OSError, SparkJobError)
"""Errors that another attempt may not meet."""
Changed = MergeResult | WriteResult | MaintenanceResult
Document = Callable[..., PipelineResult]


class Listener(Protocol):
    """Is called when a run and its steps start and end. Steps may run at the same time, in several threads."""

    def run_started(self, file: PipelineFile, key: str) -> None:
        """The run starts."""

    def step_started(self, step: AnyStep) -> None:
        """A step starts."""

    def step_ended(self, step: AnyStep, record: StepRecord) -> None:
        """A step is done, skipped or failed."""

    def run_ended(self, result: PipelineResult) -> None:
        """The run is done or failed."""


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a run: the caller's, or the settings of one to start."""

    given: SparkSession | None = None
    master: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)

    def start(self, file: PipelineFile) -> SparkSession:
        """Return the session; the caller's settings override those of the file."""
        return get_session(self.given, self.master or file.spark.master, {**file.spark.conf, **self.conf})


@dataclass
class Execution:
    """One run."""

    file: PipelineFile
    session: Session
    trusted: bool
    folder: str
    progress: Progress = None
    listeners: tuple[Listener, ...] = ()
    key: str = ""
    is_named: bool = False
    reload: bool = False
    records: dict[str, StepRecord] = field(default_factory=dict)
    checked: dict[str, dict[str, str]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    building: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def spark(self) -> SparkSession:
        """The session, found or started on first use."""
        return self.session.start(self.file)

    @cached_property
    def datasets(self) -> dict[str, SparkDatasetIO]:
        """The engine of each dataset."""
        return {
            name: SparkDatasetIO(self.spark, None, each.storage_options or None, publish=each.publish)
            for name, each in self.file.datasets.items()
        }

    @cached_property
    def frames(self) -> Frames:
        """The rows of sources and steps."""
        return Frames(self.file, self.datasets, self.spark, self.folder)

    def all(self, order: tuple[AnyStep, ...], chosen: set[str]) -> PipelineResult:
        """Run the chosen steps."""
        self.progress, result = _one_at_a_time(self.progress), self.document(order, chosen)
        self._tell(lambda listener: listener.run_started(self.file, self.key))
        try:
            found = self._run(order, chosen, result)
        except StepFailedError as error:
            failed = error.result = result("failed", error.result.error)  # steps that ran at the same time have ended
            self._tell(lambda listener: listener.run_ended(failed))
            raise
        finally:
            if "frames" in vars(self):
                self.frames.views.drop()
        self._tell(lambda listener: listener.run_ended(found))
        return found

    def document(self, order: tuple[AnyStep, ...], chosen: set[str]) -> Document:
        """Return a function that returns the result of the run that starts now, up to its call."""
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()

        def result(status: Any, error: str | None = None) -> PipelineResult:
            seconds = time.perf_counter() - clock
            records = tuple(self.records.get(step.name) or _not_run(step, chosen) for step in order)
            return PipelineResult(self.file.name, self.key, status, started, seconds, records, error)

        return result

    def _run(self, order: tuple[AnyStep, ...], chosen: set[str], result: Document) -> PipelineResult:
        steps = [step for step in order if step.name in chosen]
        with self.failing("", order[0], result):
            done = self.committed_before(steps)
            self.check_reads()
            self._check_queries(steps, done)
            self._prepare_datasets(steps)
        before = graph(self.file)
        sorter = TopologicalSorter({step.name: before[step.name] & chosen for step in steps})
        sorter.prepare()

        def run(step: AnyStep) -> None:
            with self.failing(step.name, step, result):
                self._tell(lambda listener: listener.step_started(step))
                self.records[step.name] = self._repeated(step, done.get(step.name))
                self._tell(lambda listener: listener.step_ended(step, self.records[step.name]))

        _run_sorted(sorter, steps, run, self.file.parallel)
        return result("done")

    def _tell(self, call: Callable[[Listener], None]) -> None:
        for listener in self.listeners:
            call(listener)

    def committed_before(self, steps: list[AnyStep]) -> dict[str, int]:
        """Return the steps that an earlier run with this key has committed, with their commit numbers."""
        writers = [step for step in steps if is_writer(step)]
        if self.reload:
            self._check_reload(writers)
        if not self.is_named:
            return {}
        found = {step.name: self.place_of(step).journal.committed(self._key(step)) for step in writers}
        return {name: seq for name, seq in found.items() if seq is not None}

    def _check_reload(self, steps: list[AnyStep]) -> None:
        """Raise if rows that a step has loaded are in its dataset: it would load them twice."""
        for step in steps:
            journal = self.place_of(step).journal
            has_loaded = self.is_named and journal.committed(self._key(step)) is not None
            if has_loaded or (incremental_behind(step, self.file) and has_read(step, self.file, journal)):
                raise DatasetExistsError(
                    f"--reload would load rows twice: {self._shown_path(step)} has what step {step.name!r} has loaded. "
                    "Delete its rows first, select other steps, or give the step another name to merge all rows again."
                )

    def check_reads(self) -> None:
        """Raise if a file that is not trusted reads something that it does not declare."""
        problems = [] if self.trusted else list(reads_undeclared(self.file, lambda: self.spark))
        if problems:
            raise PipelineFileError(self.file.name, problems)

    def _check_queries(self, steps: list[AnyStep], done: Mapping[str, int]) -> None:
        """Describe all files and let Spark analyse every query before the first commit.

        Queries over changes, new files, and datasets that this run changes are analysed when their step runs. A step
        that provides rows is analysed with its users.
        """
        used = {name for step in self.file.steps for name in inputs_of(step)}
        changed = {name for step in steps for name in changed_by(step)}
        for step in steps:
            is_later = incremental_behind(step, self.file) or datasets_behind(step, self.file) & changed
            if step.name not in used and step.name not in done and not is_later:
                self._rows(step)

    def _prepare_datasets(self, steps: list[AnyStep]) -> None:
        """Check the catalogs of datasets that the steps change, and set the time for which they keep replaced files."""
        changed = sorted({name for step in steps for name in changed_by(step)})
        for name in changed:
            check_catalog(self.file.datasets[name])
        for name in changed:
            found = self.file.datasets[name]
            if found.retain is not None:
                place = self.dataset_place(name)
                retain = parse_duration("retain", found.retain)
                if place.journal.view().log.retain != retain:
                    keep_history(place, retain, may_be_new=True)

    def _rows(self, step: AnyStep) -> Rows:
        """Return the rows that a step writes or provides; None if it has no source."""
        source = source_of(step)
        with self.building:
            if makes_rows(step):
                return self.frames.of(step.name)
            if source is None:
                return None
            if not is_writer(step):
                return self.frames.of(source)
            return self.frames.for_dataset(source, self.target_of(step))

    @contextmanager
    def failing(self, name: str, step: AnyStep, result: Document) -> Iterator[None]:
        """Raise an error as `StepFailedError` with the result of the run up to there."""
        clock = time.perf_counter()
        try:
            yield
        except StepFailedError:
            raise
        except Exception as error:
            message = as_keys(scrub(str(error) or type(error).__name__), step if name else None)
            reason = " ".join(message.split())
            if name:
                seconds = time.perf_counter() - clock
                record = StepRecord(name, step.do, "failed", self._shown_path(step), seconds=seconds, error=reason)
                self.records[name] = replace(
                    record, checks=self.checked.get(name, {}), attempts=self.attempts.get(name, 1)
                )
                self._tell(lambda listener: listener.step_ended(step, self.records[name]))
            where = f"step {name!r}" if name else "before the first step"
            raise StepFailedError(f"{where}: {reason}", name, result("failed", f"{where}: {reason}")) from error

    def _repeated(self, step: AnyStep, committed: int | None) -> StepRecord:
        """Run a step, again after failures that can pass, with growing waits."""
        clock, repeat = time.perf_counter(), step.repeat or self.file.repeat
        for attempt in range(repeat.times + 1):
            self.attempts[step.name] = attempt + 1
            try:
                record = self._one(step, committed)
                for name in changed_by(step):
                    publish(self.datasets[name], self.file.datasets[name])
                return replace(record, seconds=time.perf_counter() - clock, attempts=attempt + 1)
            except _PASSING as error:
                if attempt == repeat.times or isinstance(error, SparkJobCancelledError):
                    raise
                time.sleep(_wait(repeat, attempt))
                committed = self.place_of(step).journal.committed(self._key(step)) if is_writer(step) else None
        raise AssertionError("the last attempt returns or raises")

    def _one(self, step: AnyStep, committed: int | None) -> StepRecord:
        record = StepRecord(step.name, step.do, "done", self._shown_path(step))
        if committed is not None:
            self.place_of(step).journal.recover()
            return replace(record, status="skipped", commit_seq=committed)
        if isinstance(step, Check):
            record = replace(record, rows=self._check(step))
        elif is_writer(step):
            window = window_of(step, self.file, self.datasets, self.place_of(step))
            if window is not None and window.is_empty:
                return replace(record, rows=0)
            try:
                record = replace(record, **self._write(step, window))
                record.details.update({} if window is None else window.details)
            except AlreadyCommittedError as error:
                record = replace(record, status="skipped", commit_seq=error.seq)
        return replace(record, checks=self.checked.get(step.name, {}))

    def _check(self, step: Check) -> int | None:
        checker = self._checker(step, step.checks)
        if step.source is not None:
            with self.building:
                frame = self.frames.of(step.source)
            return checker.frame(frame, step.source)
        place = self.place_of(step)
        return checker.view(place, existing_view(place))

    def _checker(self, step: AnyStep, checks: Checks) -> Checker:
        results = self.checked[step.name] = {}

        def query(text: str, rows: DataFrame) -> DataFrame:
            with self.building:
                return self.frames.check_query(text, rows)

        return Checker(checks, lambda: self.spark, self._on_check_tasks(step), query, results)

    def _on_check_tasks(self, step: AnyStep) -> OnTasks:
        callback = self.progress if callable(self.progress) else None
        return Reporter(step.name, callback).tasks("check")

    def _write(self, step: AnyStep, window: AnyWindow | None) -> dict[str, Any]:
        """Run a step that changes a dataset; return the fields of its record."""
        with self.building, self.frames.reading(window):
            rows = self._rows(step)
        if not isinstance(step, Merge | ApplyChanges | Write) or step.expect is None:
            return facts(self._change(step, rows, window))
        frame = files_frame(self.spark, rows) if isinstance(rows, RowFiles) else rows  # type: ignore[arg-type]
        assert frame is not None
        with sort_rows(step, frame, f"step {step.name!r}", self._on_check_tasks(step)) as found:
            if step.on_fail == "fail":
                refuse(found, self._shown_path(step) or "")
            if step.quarantine is not None and found.failed_rows:
                key = f"{self._key(step)}/quarantine/{digest_of(found)}" if window is None else window.quarantine_key
                with naming_quarantine(step, self.file.datasets[step.quarantine].path):
                    self._set_aside(step.quarantine, with_reason(found, step.name, self.key), key)
            record = facts(self._change(step, found.kept, window))
        if step.on_fail in ("drop", "quarantine"):
            record["details"] |= {"quarantined" if step.quarantine is not None else "dropped": found.failed_rows}
        return record | {"expectations": found.counts}

    def _set_aside(self, quarantine: str, rows: DataFrame, key: str) -> None:
        """Write rows to the quarantine, before the step commits; a run that is repeated does not write them again."""
        io = self.datasets[quarantine].on_terms(idempotency_key=key, reload=self.reload)
        try:
            set_aside(io, self.dataset_place(quarantine), rows)
        except AlreadyCommittedError:
            return

    def _change(self, step: AnyStep, rows: Rows, window: AnyWindow | None) -> Changed:
        checks = getattr(step, "checks", None)
        place = self.place_of(step)
        checker = self._checker(step, checks) if checks is not None else None
        check = checker.commit(place) if checker is not None else None
        io = self.datasets[dataset_of(step) or ""].on_terms(check=check)
        terms = {"key": self._key(step)} if window is None else window.terms
        io.terms = replace(io.terms, **terms, reload=self.reload)
        result = change(io, self.path_of(step), step, rows, self.progress)
        if checker is not None and isinstance(result, MaintenanceResult) and not result.commits:
            checker.view(place, existing_view(place))
        return result

    def target_of(self, step: AnyStep) -> Snapshot | None:
        """Return the dataset whose types are used to read csv and json files; None if there is none."""
        source = source_of(step)
        behind = None if source is None else self.frames.source_behind(source)
        if behind is None or not behind.is_text:
            return None
        if isinstance(step, Write) and step.mode == "overwrite" and step.replace_where is None:
            return None
        place = self.place_of(step)
        view = place.journal.view()
        files = view.files[:1] if isinstance(step, Write) else view.files
        return load_snapshot(place.storage, replace(view, files=files))

    def _key(self, step: AnyStep) -> str:
        return f"{self.file.name}/{step.name}/{self.key}"

    def path_of(self, step: AnyStep) -> str:
        """Return the path of the dataset of a step."""
        return self.file.datasets[dataset_of(step) or ""].path

    def _shown_path(self, step: AnyStep) -> str | None:
        return scrub(self.path_of(step)) if dataset_of(step) is not None else None

    def place_of(self, step: AnyStep) -> Place:
        """Return the dataset of a step."""
        return self.dataset_place(dataset_of(step) or "")

    def dataset_place(self, name: str) -> Place:
        """Return a dataset by its name."""
        found = self.file.datasets[name]
        return Place.of(found.path, None, found.storage_options or None, Terms(reload=self.reload))


def _run_sorted(
    sorter: TopologicalSorter[str], steps: list[AnyStep], run: Callable[[AnyStep], None], parallel: int
) -> None:
    """Run steps when those before them are done; a single one that is ready, in this thread.

    After an error no further step starts. The error is raised when the running steps have ended.
    """
    by_name = {step.name: step for step in steps}
    position = {step.name: number for number, step in enumerate(steps)}
    waiting = list[str]()
    running: dict[Future[None], str] = {}
    with ThreadPoolExecutor(parallel) as pool:
        while sorter.is_active():
            waiting = sorted([*waiting, *sorter.get_ready()], key=position.__getitem__)
            if not running and len(waiting) == 1:
                name = waiting.pop()
                run(by_name[name])
                sorter.done(name)
                continue
            while waiting and len(running) < parallel:
                name = waiting.pop(0)
                running[pool.submit(copy_context().run, run, by_name[name])] = name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                error = future.exception()
                if error is not None:
                    wait(running)
                    raise error
                sorter.done(name)


def _one_at_a_time(progress: Progress) -> Progress:
    """Return a callback that steps in several threads can call."""
    if not callable(progress):
        return progress
    lock = threading.Lock()

    def call(event: Any) -> None:
        with lock:
            progress(event)

    return call


def _not_run(step: AnyStep, chosen: set[str]) -> StepRecord:
    return StepRecord(step.name, step.do, "not run" if step.name in chosen else "not selected")


def _wait(repeat: Repeat, attempt: int) -> float:
    number, unit = re.fullmatch(r"(\d+)\s*([smhd])", repeat.wait).groups()  # type: ignore[union-attr]
    return float(int(number) * _SECONDS[unit] * repeat.factor**attempt)

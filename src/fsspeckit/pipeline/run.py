"""Run a pipeline: each step once, in order, in one Spark session.

A step that changes a dataset commits with a key of the pipeline, the step and the run. A repeated run with the same key
skips committed steps. Everything that can be checked without writing is checked before the first step writes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import AlreadyCommittedError
from fsspeckit.common.text import scrub
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.operations.read import existing_view
from fsspeckit.core.progress import Progress, Reporter
from fsspeckit.core.results import MaintenanceResult, MergeResult, WriteResult
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.job_progress import OnTasks
from fsspeckit.datasets.spark.session import get_session
from fsspeckit.pipeline.checks import check_commit, check_frame, check_view
from fsspeckit.pipeline.dataset_steps import change
from fsspeckit.pipeline.frames import Frames
from fsspeckit.pipeline.load import PipelineFileError, load_file, parse
from fsspeckit.pipeline.model import AnyStep, Check, PipelineFile, Write
from fsspeckit.pipeline.order import dataset_behind, dataset_of, in_order, is_writer, makes_rows, source_of
from fsspeckit.pipeline.results import PipelineResult, StepFailedError, StepRecord, facts
from fsspeckit.pipeline.trust import distrusted
from fsspeckit.pipeline.wording import as_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline.

    Example:
        >>> steps = [{"name": "tidy", "do": "compact", "dataset": "orders"}]
        >>> raw = {"name": "upkeep", "datasets": {"orders": {"path": "lake/orders"}}, "steps": steps}
        >>> Pipeline.of(raw).steps
        ('tidy',)
    """

    file: PipelineFile
    order: tuple[AnyStep, ...]

    @classmethod
    def load(cls, path: str | Path, variables: Mapping[str, str] | None = None, *, trust: bool = False) -> Pipeline:
        """Read a TOML file.

        Args:
            path: The file. It must come from a trusted source: it can read and write whatever you can.
            variables: Values that override the defaults of the file.
            trust: Allow features that can run code: functions that call Java, scripts, Spark settings that load jars.

        Raises:
            PipelineFileError: The file is invalid, or needs ``trust``; each error has its key.
        """
        return cls._checked(load_file(path, variables or {}), str(path), trust=trust)

    @classmethod
    def of(cls, raw: Mapping[str, Any], variables: Mapping[str, str] | None = None, *, trust: bool = False) -> Pipeline:
        """Create a pipeline from a mapping, as `tomllib` returns it."""
        return cls._checked(parse(raw, variables or {}), "pipeline", trust=trust)

    @classmethod
    def _checked(cls, file: PipelineFile, name: str, *, trust: bool) -> Pipeline:
        problems = [] if trust else list(distrusted(file))
        if problems:
            raise PipelineFileError(name, problems)
        return cls(file, tuple(in_order(file, name)))

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON schema of a pipeline file, for editors."""
        return PipelineFile.model_json_schema()

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps in the order in which they run."""
        return tuple(step.name for step in self.order)

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        idempotency_key: str | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        progress: Progress = None,
    ) -> PipelineResult:
        """Run all steps.

        Args:
            spark: The session; by default the active one, one of the environment (spark-submit), or a local one.
            idempotency_key: Key of this run; a run with the same key skips committed steps. By default the key of the
                file, else a new one.
            master: Spark master of a session that is started here; overrides the file.
            conf: Settings of a session that is started here; they override the file.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.

        Returns:
            A record for each step.

        Raises:
            StepFailedError: A step failed; ``result`` is the result so far, ``__cause__`` the error.
        """
        key = idempotency_key or self.file.idempotency_key
        run = _Run(self.file, key or uuid.uuid4().hex, key is not None, progress, spark, master, dict(conf or {}))
        return run.all(self.order)


@dataclass
class _Run:
    file: PipelineFile
    key: str
    is_named: bool
    progress: Progress
    given: SparkSession | None
    master: str | None
    conf: dict[str, Any]
    records: list[StepRecord] = field(default_factory=list)

    @cached_property
    def spark(self) -> SparkSession:
        settings = self.file.spark
        return get_session(self.given, self.master or settings.master, {**settings.conf, **self.conf})

    @cached_property
    def datasets(self) -> dict[str, SparkDatasetIO]:
        found = self.file.datasets.items()
        return {name: SparkDatasetIO(self.spark, None, each.storage_options or None) for name, each in found}

    @cached_property
    def frames(self) -> Frames:
        return Frames(self.file, self.datasets, self.spark)

    def all(self, order: tuple[AnyStep, ...]) -> PipelineResult:
        started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()

        def result(status: Any, error: str | None = None) -> PipelineResult:
            left = [StepRecord(step.name, step.do, "not run") for step in order[len(self.records) :]]
            seconds = time.perf_counter() - clock
            return PipelineResult(self.file.name, self.key, status, started, seconds, (*self.records, *left), error)

        with self._failing("", order[0], result):
            done = self._committed_before(order)
            self._check_queries(order, done)
        for step in order:
            with self._failing(step.name, step, result):
                self.records.append(self._one(step, done.get(step.name)))
        return result("done")

    def _committed_before(self, order: tuple[AnyStep, ...]) -> dict[str, int]:
        """Return the steps that an earlier run with this key has committed, with their commit numbers."""
        if not self.is_named:
            return {}
        writers = [step for step in order if is_writer(step)]
        found = {step.name: self._place(step).journal.committed(self._key(step)) for step in writers}
        return {name: seq for name, seq in found.items() if seq is not None}

    def _check_queries(self, order: tuple[AnyStep, ...], done: Mapping[str, int]) -> None:
        """Describe all files and let Spark analyse every query before the first commit.

        Queries over datasets are analysed when their step runs. A step that provides rows is analysed with its users.
        """
        used = {source_of(step) for step in order}
        for step in order:
            if step.name not in used and step.name not in done and dataset_behind(step, self.file) is None:
                self._rows(step)

    def _rows(self, step: AnyStep) -> DataFrame | RowFiles | None:
        """Return the rows that a step writes or provides; None if it has no source."""
        source = source_of(step)
        if source is None:
            return None
        if not is_writer(step):
            return self.frames.of(step.name if makes_rows(step) else source)
        return self.frames.for_dataset(source, self._target(step))

    @contextmanager
    def _failing(self, name: str, step: AnyStep, result: Any) -> Iterator[None]:
        """Raise an error as `StepFailedError` with the result of the run up to there."""
        clock = time.perf_counter()
        try:
            yield
        except Exception as error:
            message = as_keys(scrub(str(error) or type(error).__name__), step if name else None)
            reason = " ".join(message.split())
            dataset = scrub(self._path(step)) if dataset_of(step) is not None else None
            if name:
                seconds = time.perf_counter() - clock
                self.records.append(StepRecord(name, step.do, "failed", dataset, seconds=seconds, error=reason))
            where = f"step {name!r}" if name else "before the first step"
            raise StepFailedError(f"{where}: {reason}", name, result("failed", f"{where}: {reason}")) from error

    def _one(self, step: AnyStep, committed: int | None) -> StepRecord:
        clock = time.perf_counter()
        dataset = scrub(self._path(step)) if dataset_of(step) is not None else None
        record = StepRecord(step.name, step.do, "done", dataset)
        if committed is not None:
            self._place(step).journal.recover()
            return replace(record, status="skipped", commit_seq=committed)
        if isinstance(step, Check):
            record = replace(record, rows=self._check(step))
        elif is_writer(step):
            try:
                record = replace(record, **facts(self._write(step)))
            except AlreadyCommittedError as error:
                record = replace(record, status="skipped", commit_seq=error.seq)
        return replace(record, seconds=time.perf_counter() - clock)

    def _check(self, step: Check) -> int | None:
        if step.source is not None:
            return check_frame(step.checks, self.frames.of(step.source), step.source, self._on_check_tasks(step))
        place = self._place(step)
        return check_view(step.checks, self.spark, place, existing_view(place), self._on_check_tasks(step))

    def _on_check_tasks(self, step: AnyStep) -> OnTasks:
        callback = self.progress if callable(self.progress) else None
        return Reporter(step.name, callback).tasks("check")

    def _write(self, step: AnyStep) -> MergeResult | WriteResult | MaintenanceResult:
        checks = getattr(step, "checks", None)
        place, on_tasks = self._place(step), self._on_check_tasks(step)
        check = check_commit(checks, lambda: self.spark, place, on_tasks) if checks is not None else None
        io = self.datasets[dataset_of(step) or ""].on_terms(idempotency_key=self._key(step), check=check)
        result = change(io, self._path(step), step, self._rows(step), self.progress)
        if checks is not None and isinstance(result, MaintenanceResult) and not result.commits:
            check_view(checks, self.spark, place, existing_view(place), on_tasks)
        return result

    def _target(self, step: AnyStep) -> Snapshot | None:
        """Return the dataset whose types are used to read csv and json files; None if there is none."""
        source = source_of(step)
        if source is None or not self.frames.source_behind(source).is_text:
            return None
        if isinstance(step, Write) and step.mode == "overwrite" and step.replace_where is None:
            return None
        place = self._place(step)
        view = place.journal.view()
        files = view.files[:1] if isinstance(step, Write) else view.files
        return load_snapshot(place.storage, replace(view, files=files))

    def _key(self, step: AnyStep) -> str:
        return f"{self.file.name}/{step.name}/{self.key}"

    def _path(self, step: AnyStep) -> str:
        return self.file.datasets[dataset_of(step) or ""].path

    def _place(self, step: AnyStep) -> Place:
        options = self.file.datasets[dataset_of(step) or ""].storage_options
        return Place.of(self._path(step), None, options or None)

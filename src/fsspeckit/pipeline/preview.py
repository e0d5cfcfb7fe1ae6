"""Check a pipeline without running it: Spark resolves every column and expression, and nothing is written.

No rows are read. The columns of Parquet files and datasets come from their footers, those of csv and json files from
the beginning of the first file. A dataset that does not exist yet has the columns of the step that writes it first.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError, SourceFileError
from fsspeckit.common.text import scrub
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.formats import COMPRESSED
from fsspeckit.datasets.arguments import keys_for
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.file_source import files_frame
from fsspeckit.datasets.spark.frames import spark_schema
from fsspeckit.datasets.spark.versions import arrow_schema
from fsspeckit.pipeline.execution import Execution
from fsspeckit.pipeline.expectations import marked_rows, naming_quarantine, quarantine_columns
from fsspeckit.pipeline.frames import Frames, Types, as_inserts
from fsspeckit.pipeline.model import AnyStep, ApplyChanges, Delete, Merge, Update, Write
from fsspeckit.pipeline.order import (
    changed_by,
    dataset_of,
    datasets_behind,
    incremental_behind,
    inputs_of,
    is_writer,
    makes_rows,
    source_of,
)
from fsspeckit.pipeline.parts import Checks, Expecting, Source
from fsspeckit.pipeline.preview_result import PipelinePreview, State, StepPreview
from fsspeckit.pipeline.preview_work import work_of
from fsspeckit.pipeline.resolve import resolve_checks, resolve_dataset, resolve_on_model, resolve_rows, result_columns
from fsspeckit.pipeline.windows import AnyWindow, NewFiles, Window, files_of, waits_for_files, window_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fsspeckit.core.ext.file_set import FileSet
    from fsspeckit.core.ext.inputs import InputFile

_HEAD = 256 * 1024
_STRATEGIES = ("strategy", "mode", "curve")


class PreviewFrames(Frames):
    """DataFrames with the right columns, whose rows are not read."""

    planned: dict[str, DataFrame]

    def _dataset(self, name: str) -> DataFrame:
        return self.planned[name] if name in self.planned else super()._dataset(name)

    def _changes(self, source: Source) -> DataFrame:
        if isinstance(self._window, Window):
            return super()._changes(source)
        return as_inserts(self._dataset(source.dataset or ""), Window("", None, 0, "1970-01-01T00:00:00+00:00", 0))

    def _files(self, name: str, source: Source, types: Types) -> Any:
        if not source.is_text:
            return super()._files(name, source, types)
        with tempfile.TemporaryDirectory(prefix="fsspeckit-") as folder:
            new = self._window.groups if isinstance(self._window, NewFiles) else None
            files = files_of(source) if new is None else [file for group in new for file in group]
            head = _head_of_first(files[0], folder)
            if head is None:
                return super()._files(name, source, types)
            try:
                return self._described_head(source, head, types)
            except SourceFileError:  # the cut is inside of a quoted value
                return super()._files(name, source, types)

    def _described_head(self, source: Source, head: str, types: Types) -> FileSet:
        wanted = self.wanted(source, types)
        known = {**types, **{field.name: field.type for field in wanted or ()}}
        return self._text_files(source, files_of(source, head), known, wanted)


def _head_of_first(first: InputFile, folder: str) -> str | None:
    """Copy the beginning of the first file, up to the end of a line; None if the file is small or compressed."""
    name = os.path.basename(first.location)
    if first.size <= _HEAD or name.endswith(tuple(COMPRESSED)):
        return None
    with first.storage.open_input(first.location) as file:
        data = file.read(_HEAD)
    path = Path(folder) / name
    path.write_bytes(data[: data.rindex(b"\n") + 1] if b"\n" in data else data)
    return str(path)


def preview(run: Execution, order: tuple[AnyStep, ...], chosen: set[str]) -> PipelinePreview:
    """Resolve the chosen steps and those that provide their rows, and return what the chosen ones would do.

    Raises:
        PipelineFileError: The file is not trusted and reads something that it does not declare.
        StepFailedError: A step cannot run; the message and the attribute ``step`` name it.
    """
    run.check_reads()
    steps = [step for step in order if step.name in chosen]
    result = run.document(order, chosen)
    with run.failing("", order[0], result):
        planner = _Planner(run, steps)
    found = list[StepPreview]()
    try:
        for step in steps:
            with run.failing(step.name, step, result), translated_analysis(f"step {step.name!r}"):
                found.append(planner.step(step))
    finally:
        planner.close()
    return PipelinePreview(run.file.name, tuple(found))


class _Planner:
    def __init__(self, run: Execution, steps: list[AnyStep]) -> None:
        self._run, self._steps = run, steps
        self._planned: dict[str, DataFrame] = {}
        self._frames: PreviewFrames | None = None
        self._changed = set[str]()
        self._committed = run.committed_before(steps)

    @property
    def frames(self) -> PreviewFrames:
        if self._frames is None:
            run = self._run
            self._frames = PreviewFrames(run.file, run.datasets, run.spark, run.folder)
            self._frames.planned = self._planned
        return self._frames

    def close(self) -> None:
        """Remove the views of queries."""
        if self._frames is not None:
            self._frames.views.drop()

    def step(self, step: AnyStep) -> StepPreview:
        window, is_read = self._window(step), not self._is_idle(step)
        rows = self._rows(step, window) if is_read else None
        found = {} if rows is None else dict(rows.dtypes)
        dataset = dataset_of(step)
        preview = StepPreview(step.name, step.do, None, found, "makes rows" if makes_rows(step) else "checks rows")
        if dataset is None:
            self._resolve_checks(step, rows)
            return preview
        place = self._run.place_of(step)
        step = _with_key(step, place)
        snapshot = load_snapshot(place.storage, place.journal.view())
        preview = self._described(step, preview, dataset, snapshot, window)
        if not is_read:
            return preview
        is_planned = dataset in self._planned
        added = self._resolve(step, dataset, snapshot, rows)
        is_guessed = is_planned and isinstance(step, Delete | Update)
        work = {} if is_guessed else work_of(step, place, snapshot, is_changed=preview.changed_above)
        preview = replace(preview, added_columns=added, work=work, **self._wrong(step, rows))
        if getattr(step, "checks", None) is not None and (snapshot.schema is not None or dataset in self._planned):
            self._resolve_checks(step, self.frames.of(dataset))
        self._changed |= set() if preview.committed is not None else changed_by(step)
        return preview

    def _described(
        self, step: AnyStep, preview: StepPreview, dataset: str, snapshot: Snapshot, window: AnyWindow | None
    ) -> StepPreview:
        """Add what is known about the dataset, and about the commits of earlier runs."""
        state = self._state(dataset, snapshot)
        if state == "new" and not isinstance(step, Merge | ApplyChanges | Write) and not snapshot.view.head:
            raise DatasetNotFoundError(f"no parquet dataset at {self._run.path_of(step)}. Check the path.")
        path = scrub(self._run.path_of(step))
        planned = getattr(step, "partition_by", None) or ()
        return replace(
            preview,
            dataset=path,
            effect=f"{_verb(step)} {path}",
            state=state,
            files=len(snapshot.files),
            rows=snapshot.rows,
            bytes=sum(file.size for file in snapshot.files),
            partition_by=tuple(planned if snapshot.schema is None else snapshot.partition_columns),
            key_columns=tuple(getattr(step, "keys", None) or ()),
            strategy=next((found for name in _STRATEGIES if (found := getattr(step, name, None)) is not None), None),
            changed_above=dataset in self._changed,
            reads={} if window is None else window.reads,
            committed=self._committed.get(step.name) if window is None else None,
        )

    def _state(self, dataset: str, snapshot: Snapshot) -> State:
        if snapshot.schema is not None:
            return "existing"
        return "written above" if dataset in self._planned else "new"

    def _window(self, step: AnyStep) -> AnyWindow | None:
        """Return what the step reads of an incremental source, unless it reads a dataset that steps above change."""
        file = self._run.file
        if not is_writer(step) or not incremental_behind(step, file) or datasets_behind(step, file) & self._changed:
            return None
        return window_of(step, file, self._run.datasets, self._run.place_of(step))

    def _is_idle(self, step: AnyStep) -> bool:
        """Return whether a run neither reads nor changes anything in a step, or in all steps that its rows go to."""
        file = self._run.file
        if is_writer(step):
            is_done = step.name in self._committed and not incremental_behind(step, file)
            return is_done or waits_for_files(step, file, self._run.place_of(step))
        users = [each for each in self._steps if step.name in inputs_of(each)]
        return bool(users) and all(map(self._is_idle, users))

    def _rows(self, step: AnyStep, window: AnyWindow | None) -> DataFrame | None:
        if makes_rows(step):
            return self.frames.of(step.name)
        source = source_of(step)
        if source is None:
            return None
        if not is_writer(step):
            return self.frames.of(source)
        with self.frames.reading(None if window is None or window.is_empty else window):
            rows = self.frames.for_dataset(source, self._target(step))
        return files_frame(self._run.spark, rows) if isinstance(rows, RowFiles) else rows  # type: ignore[arg-type]

    def _target(self, step: AnyStep) -> Snapshot | None:
        """Return the dataset whose types are used to read csv and json files, as the steps above leave it."""
        target, planned = self._run.target_of(step), self._planned.get(dataset_of(step) or "")
        return target if target is None or planned is None else replace(target, schema=arrow_schema(planned.schema))

    def _resolve(self, step: AnyStep, dataset: str, snapshot: Snapshot, rows: DataFrame | None) -> dict[str, str]:
        """Let the library check keys, columns and conditions, plan the columns of the dataset, and return new ones."""
        known = self._known(dataset, snapshot)
        if not isinstance(step, Merge | ApplyChanges | Write):
            if known is not None:
                resolve_dataset(step, known, self._run.path_of(step))
            return {}
        assert rows is not None
        own = arrow_schema(rows.schema)
        if dataset in self._planned and known is not None:
            resolve_on_model(step, own, known, self._run.path_of(step))
        else:
            io = PyarrowDatasetIO(None, self._run.file.datasets[dataset].storage_options or None)
            resolve_rows(step, own, known, io.on_terms(reload=self._run.reload), self._run.path_of(step))
        result = result_columns(step, own, known)
        self._plan(dataset, known, result)
        if known is None:
            return {}
        return {
            field.name: field.dataType.simpleString() for field in spark_schema(result) if field.name not in known.names
        }

    def _known(self, dataset: str, snapshot: Snapshot) -> pa.Schema | None:
        """Return the columns of a dataset after the steps above; None if it does not exist then."""
        planned = self._planned.get(dataset)
        if planned is not None:
            return arrow_schema(planned.schema)
        return None if snapshot.schema is None else full_schema(snapshot)

    def _plan(self, dataset: str, known: pa.Schema | None, result: pa.Schema) -> None:
        if known is None or not result.equals(known):
            self._planned[dataset] = self._run.spark.createDataFrame([], spark_schema(result))

    def _wrong(self, step: AnyStep, rows: DataFrame | None) -> dict[str, Any]:
        """Resolve the conditions of rows and the quarantine; return what happens to rows that do not meet them."""
        if not isinstance(step, Merge | ApplyChanges | Write) or not step.expect or rows is None:
            return {}
        for name, text in step.expect.items():
            with translated_analysis(f"expect.{name} of step {step.name!r}"):
                _ = marked_rows(rows, {name: text}).columns
        facts: dict[str, Any] = {"expect": step.expect, "on_fail": step.on_fail}
        return facts if step.quarantine is None else facts | self._quarantined(step, step.quarantine, rows)

    def _quarantined(self, step: Expecting, quarantine: str, rows: DataFrame) -> dict[str, Any]:
        path, place = self._run.file.datasets[quarantine].path, self._run.dataset_place(quarantine)
        snapshot = load_snapshot(place.storage, place.journal.view())
        known, state = self._known(quarantine, snapshot), self._state(quarantine, snapshot)
        with naming_quarantine(step, path):
            self._plan(quarantine, known, quarantine_columns(arrow_schema(rows.schema), known, path))
        return {"quarantine": scrub(path), "quarantine_state": state}

    def _resolve_checks(self, step: AnyStep, frame: DataFrame | None) -> None:
        checks: Checks | None = getattr(step, "checks", None)
        if checks is None or frame is None:
            return
        resolve_checks(checks, frame.schema)
        for name, text in (checks.sql or {}).items():
            with translated_analysis(f"the check {name!r}"):
                _ = self.frames.check_query(text, frame).columns


def _with_key(step: AnyStep, place: Place) -> AnyStep:
    """Return a step with the key that is recorded with its dataset, if it names none."""
    if not isinstance(step, Merge | ApplyChanges) or step.keys is not None:
        return step
    return step.model_copy(update={"keys": list(keys_for(place, None))})


def _verb(step: AnyStep) -> str:
    match step:
        case Merge():
            return f"merges ({step.strategy} by {', '.join(step.keys or ())}) into"
        case ApplyChanges():
            return f"applies changes by {', '.join(step.keys or ())} to"
        case Write():
            return "appends to" if step.mode == "append" else f"writes ({step.mode}) to"
        case Delete():
            return f"deletes rows where {step.where} of"
        case Update():
            return f"sets {', '.join(step.set)} where {step.where} in"
        case _:
            return f"{step.do}s"

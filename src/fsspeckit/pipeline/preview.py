"""Check a pipeline without running it: Spark resolves every column and expression, and nothing is written.

No rows are read. The columns of Parquet files and datasets come from their footers, those of csv and json files from
the beginning of the first file. A dataset that does not exist yet has the columns of the step that writes it first.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import SourceFileError
from fsspeckit.common.text import counted, scrub
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.formats import COMPRESSED
from fsspeckit.core.result_view import ResultMapping, columns, readable_bytes
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.file_source import files_frame
from fsspeckit.datasets.spark.frames import spark_schema
from fsspeckit.datasets.spark.versions import arrow_schema
from fsspeckit.pipeline.execution import Execution
from fsspeckit.pipeline.frames import Frames, Types, as_inserts
from fsspeckit.pipeline.model import AnyStep, ApplyChanges, Delete, Merge, Update, Write
from fsspeckit.pipeline.order import dataset_of, is_writer, makes_rows, source_of
from fsspeckit.pipeline.parts import Checks, Source
from fsspeckit.pipeline.resolve import resolve_checks, resolve_dataset, resolve_on_model, resolve_rows, result_columns
from fsspeckit.pipeline.windows import Window, files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fsspeckit.core.ext.file_set import FileSet

_HEAD = 256 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class StepPreview(ResultMapping):
    """What a step would do: the columns that it makes, writes or checks, and its effect on a dataset."""

    name: str
    do: str
    dataset: str | None
    columns: dict[str, str]
    effect: str


@dataclass(frozen=True, slots=True, eq=False)
class PipelinePreview(ResultMapping):
    """What the steps of a pipeline would do, in the order in which they run."""

    pipeline: str
    steps: tuple[StepPreview, ...]

    def __str__(self) -> str:
        head = ("step", "does", "effect", "columns")
        return columns([head, *((s.name, s.do, s.effect, ", ".join(s.columns) or "-") for s in self.steps)])


class PreviewFrames(Frames):
    """DataFrames with the right columns, whose rows are not read."""

    planned: dict[str, DataFrame]

    def _dataset(self, name: str) -> DataFrame:
        return self.planned[name] if name in self.planned else super()._dataset(name)

    def _changes(self, source: Source) -> DataFrame:
        return as_inserts(self._dataset(source.dataset or ""), Window("", None, 0, "1970-01-01T00:00:00+00:00"))

    def _files(self, name: str, source: Source, types: Types) -> Any:
        if not source.is_text:
            return super()._files(name, source, types)
        with tempfile.TemporaryDirectory(prefix="fsspeckit-") as folder:
            head = _head_of_first(source, folder)
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


def _head_of_first(source: Source, folder: str) -> str | None:
    """Copy the beginning of the first file, up to the end of a line; None if the file is small or compressed."""
    first = files_of(source)[0]
    name = os.path.basename(first.location)
    if first.size <= _HEAD or name.endswith(tuple(COMPRESSED)):
        return None
    with first.storage.open_input(first.location) as file:
        data = file.read(_HEAD)
    path = Path(folder) / name
    path.write_bytes(data[: data.rindex(b"\n") + 1] if b"\n" in data else data)
    return str(path)


def preview(run: Execution, order: tuple[AnyStep, ...], chosen: set[str]) -> PipelinePreview:
    """Resolve all steps, and return what the chosen ones would do."""
    run.check_reads()
    planner = _Planner(run)
    found = list[StepPreview]()
    try:
        for step in order:
            with translated_analysis(f"step {step.name!r}"):
                found.append(planner.step(step))
    finally:
        planner.close()
    return PipelinePreview(run.file.name, tuple(each for each in found if each.name in chosen))


class _Planner:
    def __init__(self, run: Execution) -> None:
        self._run = run
        self._planned: dict[str, DataFrame] = {}
        self._frames: PreviewFrames | None = None

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
        rows = self._rows(step)
        found = {} if rows is None else dict(rows.dtypes)
        dataset = dataset_of(step)
        path = None if dataset is None else scrub(self._run.path_of(step))
        preview = StepPreview(step.name, step.do, path, found, "makes rows" if makes_rows(step) else "checks rows")
        if dataset is None:
            self._resolve_checks(step, rows)
            return preview
        place = self._run.place_of(step)
        snapshot = load_snapshot(place.storage, place.journal.view())
        now = _now(snapshot, planned=dataset in self._planned)
        effect = f"{_verb(step)} {now}{self._of_expectations(step, rows)}" if is_writer(step) else f"checks {now}"
        self._resolve(step, dataset, snapshot, rows)
        if getattr(step, "checks", None) is not None and (snapshot.files or dataset in self._planned):
            self._resolve_checks(step, self.frames.of(dataset))
        return replace(preview, effect=effect)

    def _rows(self, step: AnyStep) -> DataFrame | None:
        if makes_rows(step):
            return self.frames.of(step.name)
        source = source_of(step)
        if source is None:
            return None
        if not is_writer(step):
            return self.frames.of(source)
        rows = self.frames.for_dataset(source, self._run.target_of(step))
        return files_frame(self._run.spark, rows) if isinstance(rows, RowFiles) else rows  # type: ignore[arg-type]

    def _resolve(self, step: AnyStep, dataset: str, snapshot: Snapshot, rows: DataFrame | None) -> None:
        """Let the library check keys, columns and conditions, and plan the columns that the dataset will have."""
        known = full_schema(snapshot) if snapshot.files else None
        planned = self._planned.get(dataset)
        if planned is not None:
            known = arrow_schema(planned.schema)
        if not isinstance(step, Merge | ApplyChanges | Write):
            if known is not None:
                resolve_dataset(step, known)
            return
        assert rows is not None
        own = arrow_schema(rows.schema)
        if planned is not None and known is not None:
            resolve_on_model(step, own, known)
        else:
            io = PyarrowDatasetIO(None, self._run.file.datasets[dataset].storage_options or None)
            resolve_rows(step, own, known, io, self._run.path_of(step))
        result = result_columns(step, own, known)
        if known is None or result.names != known.names:
            self._planned[dataset] = self._run.spark.createDataFrame([], spark_schema(result))

    def _resolve_checks(self, step: AnyStep, frame: DataFrame | None) -> None:
        checks: Checks | None = getattr(step, "checks", None)
        if checks is None or frame is None:
            return
        resolve_checks(checks, frame.columns)
        for name, text in (checks.sql or {}).items():
            with translated_analysis(f"the check {name!r}"):
                _ = self.frames.check_query(text, frame).columns

    def _of_expectations(self, step: AnyStep, rows: DataFrame | None) -> str:
        expect = getattr(step, "expect", None)
        if not expect or rows is None:
            return ""
        for text in expect.values():
            _ = rows.filter(text).columns
        return f"; rows that do not meet {', '.join(expect)}: {step.on_fail}"  # type: ignore[union-attr]


def _verb(step: AnyStep) -> str:
    match step:
        case Merge():
            return f"merges ({step.strategy} by {', '.join(step.keys)}) into"
        case ApplyChanges():
            return f"applies changes by {', '.join(step.keys)} to"
        case Write():
            return "appends to" if step.mode == "append" else f"writes ({step.mode}) to"
        case Delete():
            return f"deletes rows where {step.where} of"
        case Update():
            return f"sets {', '.join(step.set)} where {step.where} in"
        case _:
            return f"{step.do}s"


def _now(snapshot: Snapshot, *, planned: bool) -> str:
    if not snapshot.files:
        return "a dataset that an earlier step writes" if planned else "a new dataset"
    size = readable_bytes(sum(file.size for file in snapshot.files))
    return f"{counted(len(snapshot.files), 'file')} with {counted(snapshot.rows, 'row')} ({size})"

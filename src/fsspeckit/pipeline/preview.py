"""Check a pipeline without running it: Spark resolves every column and expression, and nothing is written.

No rows are read. The columns of Parquet files and datasets come from their footers, those of csv and json files from
the beginning of the first file. A dataset that does not exist yet has the columns of the step that writes it first.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.common.errors import SourceFileError
from fsspeckit.common.text import counted, scrub
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot
from fsspeckit.core.formats import COMPRESSED
from fsspeckit.core.result_view import ResultMapping, columns, readable_bytes
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.versions import arrow_schema
from fsspeckit.pipeline.dataset_steps import options_of
from fsspeckit.pipeline.execution import Execution
from fsspeckit.pipeline.frames import Frames, Types, as_inserts
from fsspeckit.pipeline.model import AnyStep, ApplyChanges, Delete, Merge, Update, Write
from fsspeckit.pipeline.order import dataset_of, is_writer, makes_rows, source_of
from fsspeckit.pipeline.parts import Source
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
            return preview
        place = self._run.place_of(step)
        snapshot = load_snapshot(place.storage, place.journal.view())
        if not is_writer(step):
            return replace(preview, effect=f"checks {_now(snapshot, planned=dataset in self._planned)}")
        effect = f"{_verb(step)} {_now(snapshot, planned=dataset in self._planned)}"
        if snapshot.files:
            self._resolve(step, place, rows)
        elif rows is not None:
            self._planned.setdefault(dataset, rows.limit(0))
        return replace(preview, effect=effect + self._of_expectations(step, rows))

    def _rows(self, step: AnyStep) -> DataFrame | None:
        if makes_rows(step):
            return self.frames.of(step.name)
        source = source_of(step)
        return None if source is None else self.frames.of(source)

    def _of_expectations(self, step: AnyStep, rows: DataFrame | None) -> str:
        expect = getattr(step, "expect", None)
        if not expect or rows is None:
            return ""
        for text in expect.values():
            _ = rows.filter(text).columns
        return f"; rows that do not meet {', '.join(expect)}: {step.on_fail}"  # type: ignore[union-attr]

    def _resolve(self, step: AnyStep, place: Place, rows: DataFrame | None) -> None:
        """Let the library check keys, columns and conditions: the same call, with no row and as a dry run."""
        options = self._run.file.datasets[dataset_of(step) or ""].storage_options or None
        io = PyarrowDatasetIO(None, options)
        if isinstance(step, Delete | Update):
            given: Mapping[str, Any] = options_of(step) | {"where": f"({step.where}) AND false"}
            getattr(io, step.do)(self._run.path_of(step), dry_run=True, **given)
        elif isinstance(step, Merge | ApplyChanges | Write) and rows is not None:
            target = load_snapshot(place.storage, place.journal.view())
            empty = _typed(arrow_schema(rows.schema), target).empty_table()
            given = dict(options_of(step))
            if isinstance(step, Merge) and step.strategy == "full_merge":
                given |= {"strategy": "upsert"}
                given.pop("scope", None)
            method = io.write_dataset if isinstance(step, Write) else getattr(io, step.do)
            method(empty, self._run.path_of(step), dry_run=True, **given)


def _typed(own: pa.Schema, target: Snapshot) -> pa.Schema:
    """Return the columns of rows with the types of the dataset: text is parsed with them, other types are cast."""
    known = target.schema if target.schema is not None else pa.schema([])
    return pa.schema([known.field(field.name) if field.name in known.names else field for field in own])


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

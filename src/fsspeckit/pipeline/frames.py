"""The rows of sources and steps: files and lazy Spark DataFrames.

Each step that uses rows builds a new DataFrame, so that a dataset source is read in its current state. Csv and json
files are described once for each set of column types, before the first step writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.common.errors import ColumnNameError, SchemaMismatchError
from fsspeckit.core.dataset.parquet_source import ParquetParts, parquet_parts, parts_of_files
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.dataset.text_source import column_types, columns_in_folders
from fsspeckit.core.engine.changes import ADDED, AT, CHANGE_TYPE, VERSION
from fsspeckit.core.storage import resolve
from fsspeckit.core.storage.urls import to_spark
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import ExecutorSetupError, SparkJobError, translated_analysis
from fsspeckit.datasets.spark.file_source import files_frame, text_files
from fsspeckit.datasets.spark.frames import spark_type
from fsspeckit.datasets.spark.versions import arrow_schema, parse_schema
from fsspeckit.pipeline.model import (
    AnyStep,
    Cast,
    Deduplicate,
    Filter,
    PipelineFile,
    Python,
    Rename,
    Select,
    Sql,
)
from fsspeckit.pipeline.order import names_dataset, source_of
from fsspeckit.pipeline.parts import Source, SparkSource, TextOptions
from fsspeckit.pipeline.queries import Views, call_function
from fsspeckit.pipeline.windows import NewFiles, Window, files_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fsspeckit.core.ext.file_set import FileSet
    from fsspeckit.core.ext.inputs import InputFile

Types = Mapping[str, pa.DataType]
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*))\s*")


class Frames:
    """Builds the rows of the sources and steps of one pipeline."""

    def __init__(
        self, file: PipelineFile, datasets: Mapping[str, SparkDatasetIO], spark: SparkSession, folder: str = ""
    ) -> None:
        self._file, self._datasets, self._spark, self._folder = file, datasets, spark, folder
        self.views = Views(spark)
        self._steps = {step.name: step for step in file.steps}
        self._window: Window | NewFiles | None = None
        self._described: dict[tuple[str, frozenset[tuple[str, pa.DataType]]], FileSet] = {}

    def of(self, name: str, types: Types | None = None) -> DataFrame:
        """Return the rows of a source or step; ``types`` are the types of its columns in the target dataset."""
        is_source = name in self._file.sources
        with translated_analysis(f"{'source' if is_source else 'step'} {name!r}"):
            if is_source:
                return self._read(name, types or {})
            step = self._steps.get(name)
            if step is None:
                return self._dataset(name)
            if isinstance(step, Sql):
                return self.views.query(step.query, {each: self.of(each) for each in step.inputs})
            if isinstance(step, Python):
                return call_function(step, [self.of(each) for each in step.inputs], self._folder)
            source = source_of(step)
            assert source is not None
            return transformed(self.of(source, types_before(step, types or {})), step)

    def for_dataset(self, name: str, target: Snapshot | None) -> DataFrame | RowFiles:
        """Return the rows of a source or step for a target dataset; csv and json files are read with its types.

        The files of a source are returned as files: a DataFrame has fewer types than a dataset.
        """
        source, types = self.source_behind(name), {}
        if target is not None and source is not None:
            types = column_types(source.format, target.schema, columns_in_folders(target))  # type: ignore[arg-type]
        if name in self._file.sources and isinstance(source, Source) and source.dataset is None:
            with translated_analysis(f"source {name!r}"):
                return self._files(name, source, types)
        return self.of(name, types)

    def check_query(self, text: str, rows: DataFrame) -> DataFrame:
        """Return the rows of a free query over `this`, the given rows, and the datasets that the text names."""
        named = {name: self._dataset(name) for name in self._file.datasets if names_dataset(text, name)}
        return self.views.query(text, named | {"this": rows})

    @contextmanager
    def reading(self, window: Window | NewFiles | None) -> Iterator[None]:
        """Within this context, the source of the window has the changes or the files in it."""
        self._window = window
        try:
            yield
        finally:
            self._window = None

    def source_behind(self, name: str) -> Source | SparkSource | None:
        """Return the source that the rows of a source or step come from; None if there are several."""
        while name not in self._file.sources:
            source = source_of(self._steps[name]) if name in self._steps else None
            if source is None:
                return None
            name = source
        return self._file.sources[name]

    def _read(self, name: str, types: Types) -> DataFrame:
        source = self._file.sources[name]
        if isinstance(source, SparkSource):
            try:
                with translated_analysis(f"source {name!r}"):
                    return _read_by_spark(self._spark, source)
            except (SparkJobError, ExecutorSetupError) as error:
                raise type(error)(f"source {name!r}: {error}") from error
        if source.format == "changes":
            return self._changes(source)
        if source.dataset is not None:
            return self._dataset(source.dataset)
        return files_frame(self._spark, self._files(name, source, types))

    def _dataset(self, name: str) -> DataFrame:
        return self._datasets[name].read(self._file.datasets[name].path)

    def _changes(self, source: Source) -> DataFrame:
        """Return the changes in the window. The first window has all rows of a version, as inserts."""
        window, dataset = self._window, source.dataset or ""
        assert isinstance(window, Window)
        io, path = self._datasets[dataset], self._file.datasets[dataset].path
        if window.since is not None:
            return io.changes(path, since=window.since, until=window.until, key_columns=source.keys)
        rows = io.read(path, version=window.until)
        for key in source.keys or ():
            if key not in rows.columns:
                raise ColumnNameError(f"keys: {path} has no column {key!r}. Choose among {rows.columns}.")
        return as_inserts(rows, window)

    def wanted(self, source: Source, types: Types) -> pa.Schema | None:
        """Return the columns that a source names, with their types; None if it names none."""
        return None if source.columns is None else _schema(source.columns, types)

    def _files(self, name: str, source: Source, types: Types) -> FileSet | ParquetParts:
        wanted = self.wanted(source, types)
        new = self._window.groups if source.new_files and isinstance(self._window, NewFiles) else None
        if not source.is_text:
            options = source.storage_options or None
            return parquet_parts(source.paths, options, wanted) if new is None else parts_of_files(new, wanted)
        known = {**types, **{field.name: field.type for field in wanted or ()}}
        if new is not None:
            return self._text_files(source, [file for group in new for file in group], known, wanted)
        key = name, frozenset(known.items())
        if key not in self._described:
            self._described[key] = self._text_files(source, files_of(source), known, wanted)
        return self._described[key]

    def _text_files(
        self, source: Source, files: Sequence[InputFile], known: Types, wanted: pa.Schema | None
    ) -> FileSet:
        options = source.options or TextOptions.model_validate({})
        return text_files(
            self._spark,
            files,
            source.format,  # type: ignore[arg-type]
            types=known,
            wanted=wanted,
            delimiter=options.delimiter,
            encoding=options.encoding,
            notation=options.notation,
        )


def as_inserts(frame: DataFrame, window: Window) -> DataFrame:
    """Return rows with the columns of changes, as inserts of the last version of a window."""
    from pyspark.sql import functions as sql

    values = {CHANGE_TYPE: "insert", VERSION: window.until, AT: datetime.fromisoformat(window.at)}
    facts = {field.name: sql.lit(values[field.name]) for field in ADDED}
    return frame.withColumns(facts | {VERSION: facts[VERSION].cast("bigint")})


def _read_by_spark(spark: SparkSession, source: SparkSource) -> DataFrame:
    reader = spark.read.format(source.format).options(**source.options)
    reader = reader if source.columns is None else reader.schema(source.columns)
    paths = [to_spark(path) if "://" in path else resolve(path)[1] for path in source.paths]
    return reader.load(paths) if paths else reader.load()


def types_before(step: AnyStep, types: Types) -> Types:
    """Map the types of a step's output columns to its input columns; computed columns are left out."""
    match step:
        case Select():
            kept = {name for text in step.columns if (name := _plain_name(text)) is not None}
            return types if "*" in step.columns else {name: type_ for name, type_ in types.items() if name in kept}
        case Rename():
            old = {new: before for before, new in step.columns.items()}
            kept = {name for name in types if name in old or name not in step.columns}
            return {old.get(name, name): type_ for name, type_ in types.items() if name in kept}
        case Cast():
            return {name: type_ for name, type_ in types.items() if name not in step.columns}
        case _:
            return types


def _plain_name(expression: str) -> str | None:
    """Return the column if an expression is only a column name, else None."""
    found = _NAME.fullmatch(expression)
    if found is None:
        return None
    return found[2] if found[1] is None else found[1].replace("``", "`")


def _schema(columns: str, types: Types) -> pa.Schema:
    """Parse the columns of a source; use the type of the dataset if both map to the same Spark type."""
    from pyspark.sql.types import StructType

    found = parse_schema(columns)
    if not isinstance(found, StructType):
        raise ValueError(f"columns = {columns!r} is one type; name columns, such as 'id bigint, day date'")
    return pa.schema(
        [
            field.with_type(types[field.name]) if _same_in_spark(types.get(field.name), field.type) else field
            for field in arrow_schema(found)
        ]
    )


def _same_in_spark(type_: pa.DataType | None, other: pa.DataType) -> bool:
    try:
        return type_ is not None and spark_type(type_) == spark_type(other)
    except SchemaMismatchError:
        return False


def transformed(frame: DataFrame, step: AnyStep) -> DataFrame:
    """Apply a row step to a DataFrame."""
    from pyspark.sql import functions as sql

    match step:
        case Select():
            return frame.selectExpr(*step.columns)
        case Rename():
            _check_columns(frame, list(step.columns), step.name)
            return frame.withColumnsRenamed(step.columns)
        case Cast():
            return frame.withColumns({name: _column(name).cast(kind) for name, kind in step.columns.items()})
        case Filter():
            return frame.filter(sql.expr(step.where))
        case Deduplicate():
            return _highest_per_key(frame, step.keys, step.order_by)
        case _:
            raise AssertionError(f"{step.do} makes no rows")


def _highest_per_key(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """Keep the highest row of each key; nulls are lowest, and a minus reverses the order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ranked = [_rank(name, frame.columns) for name in order_by]
    number = sql.row_number().over(Window.partitionBy(*map(_column, keys)).orderBy(*ranked))
    rank = "__fsspeckit_place"
    return frame.withColumn(rank, number).filter(sql.col(rank) == 1).drop(rank)


def _rank(name: str, columns: Sequence[str]) -> Column:
    if name not in columns and name.startswith("-"):
        return _column(name[1:]).asc_nulls_first()
    return _column(name).desc_nulls_last()


def _column(name: str) -> Column:
    """Return a column by its exact name, which may contain dots and spaces."""
    from pyspark.sql import functions as sql

    return sql.col("`" + name.replace("`", "``") + "`")


def _check_columns(frame: DataFrame, names: Sequence[str], step: str) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"step {step!r} renames {missing}, which are not there; choose among {frame.columns}")

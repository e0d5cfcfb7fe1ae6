"""The rows on their way through a pipeline: files and lazy Spark DataFrames.

Frames are made anew for each step that uses them, so that a source which is a dataset is read as it is then. Files of a
source are described once for the types that they are read with, before the first step writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.dataset.parquet_source import ParquetParts, parquet_parts
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.dataset.text_source import column_types, columns_in_folders
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.file_source import files_frame, text_files
from fsspeckit.datasets.spark.frame_source import arrow_schema
from fsspeckit.datasets.spark.frames import spark_type
from fsspeckit.pipeline.model import (
    AnyStep,
    Cast,
    Deduplicate,
    Filter,
    PipelineFile,
    Rename,
    Select,
    Source,
    TextOptions,
)
from fsspeckit.pipeline.order import source_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fsspeckit.core.ext.file_set import FileSet, TextFormat

Types = Mapping[str, pa.DataType]
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*))\s*")


class Frames:
    """Makes the rows of one pipeline."""

    def __init__(self, file: PipelineFile, datasets: Mapping[str, SparkDatasetIO], spark: SparkSession) -> None:
        self._file, self._datasets, self._spark = file, datasets, spark
        self._steps = {step.name: step for step in file.steps}
        self._described: dict[tuple[str, frozenset[tuple[str, pa.DataType]]], FileSet] = {}

    def of(self, name: str, types: Types | None = None) -> DataFrame:
        """The rows that a source or a step gives; ``types`` are those that its columns have in a dataset."""
        is_source = name in self._file.sources
        with translated_analysis(f"{'source' if is_source else 'step'} {name!r}"):
            if is_source:
                return self._read(name, types or {})
            step = self._steps[name]
            source = source_of(step)
            assert source is not None
            return transformed(self.of(source, types_before(step, types or {})), step)

    def for_dataset(self, name: str, target: Snapshot | None) -> DataFrame | RowFiles:
        """The rows that a source or a step gives, for a dataset whose types csv and json files are read with.

        Files without a step in between are not made a DataFrame, which has fewer types than a dataset.
        """
        source, types = self.source_behind(name), {}
        if target is not None:
            types = column_types(source.format, target.schema, columns_in_folders(target))  # type: ignore[arg-type]
        if name in self._file.sources and source.dataset is None:
            with translated_analysis(f"source {name!r}"):
                return self._files(name, types)
        return self.of(name, types)

    def source_behind(self, name: str) -> Source:
        """The source that the rows of a source or a step come from."""
        while name not in self._file.sources:
            name = source_of(self._steps[name]) or ""
        return self._file.sources[name]

    def _read(self, name: str, types: Types) -> DataFrame:
        source = self._file.sources[name]
        if source.dataset is not None:
            return self._datasets[source.dataset].read(self._file.datasets[source.dataset].path)
        return files_frame(self._spark, self._files(name, types))

    def _files(self, name: str, types: Types) -> FileSet | ParquetParts:
        source = self._file.sources[name]
        wanted = None if source.columns is None else _schema(source.columns, types)
        if not source.is_text:
            return parquet_parts(source.paths, source.storage_options or None, wanted)
        known = {**types, **{field.name: field.type for field in wanted or ()}}
        key = name, frozenset(known.items())
        if key not in self._described:
            options = source.options or TextOptions.model_validate({})
            format_: TextFormat = source.format  # type: ignore[assignment]
            self._described[key] = text_files(
                self._spark,
                source.paths,
                format_,
                types=known,
                wanted=wanted,
                delimiter=options.delimiter,
                encoding=options.encoding,
                storage_options=source.storage_options or None,
            )
        return self._described[key]


def types_before(step: AnyStep, types: Types) -> Types:
    """The types of the columns of a step's rows as those of the rows before it; computed columns have none there."""
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
    """The column that an expression names, where it does nothing else."""
    found = _NAME.fullmatch(expression)
    if found is None:
        return None
    return found[2] if found[1] is None else found[1].replace("``", "`")


def _schema(columns: str, types: Types) -> pa.Schema:
    """The columns that a source names; a type is that of the dataset where both are the same to Spark."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(columns)
    if not isinstance(found, StructType):
        raise ValueError(f"columns = {columns!r} is one type; name columns, such as 'id bigint, day date'")
    return pa.schema(
        [
            field.with_type(types[field.name]) if _are_same(types.get(field.name), field.type) else field
            for field in arrow_schema(found)
        ]
    )


def _are_same(type_: pa.DataType | None, other: pa.DataType) -> bool:
    try:
        return type_ is not None and spark_type(type_) == spark_type(other)
    except SchemaMismatchError:
        return False


def transformed(frame: DataFrame, step: AnyStep) -> DataFrame:
    """What a row step makes of the rows before it."""
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
            return _one_of_each(frame, step.keys, step.order_by)
        case _:
            raise AssertionError(f"{step.do} makes no rows")


def _one_of_each(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """The row of each key that is highest; nulls are lowest, and a minus turns the order round."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ranked = [_rank(name, frame.columns) for name in order_by]
    number = sql.row_number().over(Window.partitionBy(*map(_column, keys)).orderBy(*ranked))
    place = "__fsspeckit_place"
    return frame.withColumn(place, number).filter(sql.col(place) == 1).drop(place)


def _rank(name: str, columns: Sequence[str]) -> Column:
    if name not in columns and name.startswith("-"):
        return _column(name[1:]).asc_nulls_first()
    return _column(name).desc_nulls_last()


def _column(name: str) -> Column:
    """A column by its very name, dots and spaces included."""
    from pyspark.sql import functions as sql

    return sql.col("`" + name.replace("`", "``") + "`")


def _check_columns(frame: DataFrame, names: Sequence[str], step: str) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"step {step!r} renames {missing}, which are not there; choose among {frame.columns}")

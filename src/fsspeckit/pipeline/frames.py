"""The rows on their way through a pipeline: sources and row steps as lazy Spark DataFrames.

Frames are made anew for each step that uses them, so that a source which is a dataset is read as it stands then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.common.errors import SourceFileError
from fsspeckit.core.storage.urls import to_spark
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.text_frames import parsed_frame
from fsspeckit.pipeline.model import AnyStep, Cast, Deduplicate, Filter, PipelineFile, Rename, Select, Source
from fsspeckit.pipeline.order import source_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TEXT = ("csv", "json")
_USUAL: dict[str, dict[str, Any]] = {
    "csv": {"mode": "FAILFAST", "enforceSchema": False},
    "json": {"mode": "FAILFAST"},
}
"""Options of Spark's reader where the file names no others: by default it puts null where it cannot parse."""
_REPLACED = "\ufffd"
_NAME_ENCODING = "name the encoding of the file in options.encoding"


class Frames:
    """Makes the DataFrames of one pipeline."""

    def __init__(self, file: PipelineFile, datasets: Mapping[str, SparkDatasetIO], spark: SparkSession) -> None:
        self._file, self._datasets, self._spark = file, datasets, spark
        self._steps = {step.name: step for step in file.steps}

    def of(self, name: str) -> DataFrame:
        """The rows that a source or a step gives."""
        is_source = name in self._file.sources
        with translated_analysis(f"{'source' if is_source else 'step'} {name!r}"):
            if is_source:
                return self._read(self._file.sources[name])
            step = self._steps[name]
            source = source_of(step)
            assert source is not None
            return transformed(self.of(source), step)

    def _read(self, source: Source) -> DataFrame:
        if source.dataset is not None:
            return self._datasets[source.dataset].read(self._file.datasets[source.dataset].path)
        return read_files(self._spark, source)

    def for_dataset(self, name: str, types: pa.Schema | None) -> DataFrame:
        """The rows that a source or a step gives, with the text of csv and json files parsed as a dataset's types."""
        frame, source = self.of(name), self._file_behind(name)
        if types is None or source.format not in _TEXT or source.columns is not None:
            return frame
        return parsed_frame(frame, types)

    def _file_behind(self, name: str) -> Source:
        while name not in self._file.sources:
            name = source_of(self._steps[name]) or ""
        return self._file.sources[name]


def read_files(spark: SparkSession, source: Source) -> DataFrame:
    """The rows of files, read so that no value changes without an error.

    A record that does not fit its columns is an error, and so is a header that names other columns than the first.
    Spark rounds decimals and drops the time after a date, so columns of these types are read as text and parsed here.
    """
    given = {name.lower() for name in source.options}
    usual = {name: value for name, value in _USUAL.get(source.format, {}).items() if name.lower() not in given}
    reader = spark.read.format(source.format).options(**usual, **source.options)
    wanted = None if source.columns is None else _schema(source.columns)
    if wanted is not None:
        reader = reader.schema(_read_as(wanted, source, given))
    paths = [source.path] if isinstance(source.path, str) else source.path or []
    frame = reader.load([_address(path) for path in paths])
    if source.format == "csv":
        frame = _checked(frame, ", ".join(paths))
    return frame if wanted is None or source.format not in _TEXT else parsed_frame(frame, _arrow_types(wanted))


def _schema(columns: str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(columns)
    if not isinstance(found, StructType):
        raise ValueError(f"columns = {columns!r} is one type; name columns, such as 'id bigint, at timestamp'")
    return found


def _read_as(wanted: StructType, source: Source, given: Collection[str]) -> StructType:
    """The schema for Spark's reader, with text in place of types whose values it would change."""
    from pyspark.sql.types import DateType, DecimalType, StringType, StructField, StructType

    if source.format not in _TEXT:
        return wanted
    changed = (DecimalType,) if "dateformat" in given else (DecimalType, DateType)
    return StructType(
        [
            StructField(f.name, StringType() if isinstance(f.dataType, changed) else f.dataType, f.nullable)
            for f in wanted
        ]
    )


def _arrow_types(wanted: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(wanted, timezone="UTC")


def _checked(frame: DataFrame, paths: str) -> DataFrame:
    """The same rows; text with the character that Spark puts in place of undecodable bytes is an error."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StringType

    if any(_REPLACED in name for name in frame.columns):
        raise SourceFileError(f"{paths}: the header has bytes that are not UTF-8 text; {_NAME_ENCODING}")
    said = sql.concat(sql.input_file_name(), sql.lit(" has bytes that are not UTF-8 text, or the character U+FFFD"))
    failed = sql.raise_error(sql.concat(said, sql.lit(f"; {_NAME_ENCODING}")))
    columns = {
        field.name: sql.when(_column(field.name).contains(_REPLACED), failed).otherwise(_column(field.name))
        for field in frame.schema
        if isinstance(field.dataType, StringType)
    }
    return frame.withColumns(columns) if columns else frame


def _address(path: str) -> str:
    """A path for Spark; one that is no URL is a local one of this process, as paths of datasets are."""
    url = to_spark(path)
    return url if "://" in url else f"file://{os.path.abspath(os.path.expanduser(url))}"


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

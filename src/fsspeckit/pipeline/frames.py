"""The rows on their way through a pipeline: sources and row steps as lazy Spark DataFrames.

Frames are made anew for each step that uses them, so that a source which is a dataset is read as it stands then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fsspeckit.core.urls import to_spark
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.pipeline.model import AnyStep, Cast, Deduplicate, Filter, PipelineFile, Rename, Select, Source
from fsspeckit.pipeline.order import source_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


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
        reader = self._spark.read.format(source.format).options(**source.options)
        if source.columns is not None:
            reader = reader.schema(source.columns)
        paths = [source.path] if isinstance(source.path, str) else source.path or []
        return reader.load([_address(path) for path in paths])


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

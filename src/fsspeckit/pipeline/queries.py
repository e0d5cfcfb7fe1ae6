"""Rows that queries in Spark SQL and Python functions make of the DataFrames of a pipeline."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.pipeline.model import Python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FunctionError(FsspeckitError, ValueError):
    """The function of a python step cannot be called, or does not return a DataFrame."""


class Views:
    """Runs queries over DataFrames by names.

    Each name is a common table expression of the query over a temporary view with a name of its own, so that views and
    tables of the session are neither replaced nor, under these names, seen. Spark Connect resolves views when a query
    runs, so they exist until `drop`.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._names = spark, list[str]()

    def query(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of a query."""
        views = {name: self._view(frame) for name, frame in frames.items()}
        return self._spark.sql(wrapped(text, views))

    def _view(self, frame: DataFrame) -> str:
        name = f"fsspeckit_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name

    def drop(self) -> None:
        """Remove the views."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with suppress(Py4JError, PySparkException, OSError):  # a stopped session has no views
            while self._names:
                self._spark.catalog.dropTempView(self._names.pop())


def wrapped(text: str, views: Mapping[str, str]) -> str:
    r"""Return a query over views by their names in a pipeline. In a subquery only a query can stand, no command.

    Examples:
        >>> wrapped("SELECT * FROM a", {"a": "view1"})
        'WITH `a` AS (SELECT * FROM view1) SELECT * FROM (\nSELECT * FROM a\n)'
    """
    tables = ", ".join(f"`{name}` AS (SELECT * FROM {view})" for name, view in views.items())  # noqa: S608
    return f"WITH {tables} SELECT * FROM (\n{text}\n)"  # noqa: S608 - it is the query of the file


def call_function(step: Python, frames: Sequence[DataFrame], folder: str) -> DataFrame:
    """Call the function of a step; its module is searched for in the folder of the pipeline file too."""
    module, _, name = step.call.partition(":")
    try:
        with _importing_from(folder):
            function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise FunctionError(
            f"call = {step.call!r} cannot be found ({error}); put the module beside the pipeline file"
        ) from error
    result = function(*frames, **step.arguments)
    if not hasattr(result, "sparkSession") or not hasattr(result, "mapInArrow"):
        raise FunctionError(f"{step.call} returned {type(result).__name__}, not a DataFrame of Spark; return one")
    return result  # type: ignore[no-any-return]


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    if not folder or folder in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)

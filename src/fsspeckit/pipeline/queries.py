"""Rows that queries in Spark SQL and Python functions make of the DataFrames of a pipeline."""

from __future__ import annotations

import sys
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.text import one_line, scrub
from fsspeckit.datasets.spark.errors import reason
from fsspeckit.pipeline.model import Python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FunctionError(FsspeckitError, ValueError):
    """The function of a python step cannot be called, raises an error, or does not return a DataFrame."""


class FunctionStorageError(FunctionError, OSError):
    """The function of a python step raised an `OSError`. Another attempt may not meet it."""


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

    A semicolon at the end is left out.

    Examples:
        >>> wrapped("SELECT * FROM a;", {"a": "view1"})
        'WITH `a` AS (SELECT * FROM view1) SELECT * FROM (\nSELECT * FROM a\n)'
    """
    tables = ", ".join(f"`{name}` AS (SELECT * FROM {view})" for name, view in views.items())  # noqa: S608
    query = text.rstrip().removesuffix(";")
    return f"WITH {tables} SELECT * FROM (\n{query}\n)"  # noqa: S608 - it is the query of the file


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
    except (Exception, SystemExit) as error:
        raise _failed(f"the module of {step.call}", error, module) from error
    try:
        result = function(*frames, **step.arguments)
    except Exception as error:
        raise _failed(step.call, error, module) from error
    if not hasattr(result, "sparkSession") or not hasattr(result, "mapInArrow"):
        raise FunctionError(f"{step.call} returned {type(result).__name__}, not a DataFrame of Spark; return one")
    return result  # type: ignore[no-any-return]


def _failed(what: str, error: BaseException, module: str) -> FunctionError:
    """Return the error of a user's function, with the last line of its module that was running."""
    from pyspark.errors import PySparkException

    said = reason(str(error)) if isinstance(error, PySparkException) else one_line(scrub(str(error)))
    own = getattr(sys.modules.get(module), "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((each for each in reversed(frames) if each.filename == own), frames[-1])
    where = f'File "{frame.filename}", line {frame.lineno}'
    if isinstance(error, SyntaxError):
        where = f'File "{error.filename}", line {error.lineno}'
    line = f": {frame.line}" if frame.line and not isinstance(error, SyntaxError) else ""
    kind = FunctionStorageError if isinstance(error, OSError) else FunctionError
    raised = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return kind(f"{what} raised {raised.rstrip('.')} ({where}{line}); correct the function")


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

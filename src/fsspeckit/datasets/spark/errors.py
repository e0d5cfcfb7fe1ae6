"""Translate Spark errors to short typed errors that state the problem and the action, without Java stack traces."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fsspeckit.common.errors import FsspeckitError, SchemaMismatchError, SourceFileError
from fsspeckit.common.text import scrub

_JAVA_SIDE = re.compile(r"\s*(?:JVM stacktrace:|Driver stacktrace:|\n\tat )")
_MISSING = re.compile(r"No module named '([\w.]+)'")
_RAISED = re.compile(r"^(?:[\w.]*(?:Error|Exception|Exit|Interrupt|Warning))(?::.*)?$", re.MULTILINE)
_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|Job \d+ cancelled")
_CONDITION = re.compile(r"SQLSTATE: (?:0A|21|22|23|42|54|P0)\w{3}")
"""SQLSTATE classes of queries and values that fail on every run: syntax, data, limits, errors raised by the user."""
_OF_PY4J = re.compile(r"An error occurred while calling [^\n]*\n: (?:[\w.$]+: )?")
_NO_CONNECTOR = re.compile(r"Class [\w.]+\.(\w+FileSystem) not found|No FileSystem for scheme \"?(\w+)")
_NO_CLASS = re.compile(r"java\.lang\.ClassNotFoundException: ([\w.$]+)")
_NO_DRIVER = re.compile(r"java\.sql\.SQLException: No suitable driver")
_OWN = re.compile(r"\b(SourceFileError|SchemaMismatchError): ([^\n]+)")
_OWN_CLASSES = {"SourceFileError": SourceFileError, "SchemaMismatchError": SchemaMismatchError}
"""Errors that executors raise for values in source files."""
_LINE = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"site-packages|pyspark|fsspeckit/|/lib/python|<frozen|<string>")
"""Paths in a traceback that are not code of the user."""
_CAUSE = re.compile(r"Exception thrown in awaitResult: .*?\nCaused by: (?:[\w.$]+: )?([^\n]+)", re.DOTALL)
_LONGEST = 400
_logger = logging.getLogger(__name__)


class SparkJobError(FsspeckitError, RuntimeError):
    """A Spark job failed after all task attempts; the dataset is unchanged."""


class SparkJobCancelledError(SparkJobError):
    """The Spark job was cancelled; the dataset is unchanged."""


class SparkQueryError(FsspeckitError, ValueError):
    """An expression, a column or a path that Spark does not accept."""


class ExecutorSetupError(FsspeckitError, RuntimeError):
    """The executors cannot run the tasks: a package is missing or has another version, or a folder is not visible."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise Spark errors as typed errors. Raise `KeyboardInterrupt` for Ctrl-C, even if Spark wraps it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        if _interrupted(error):
            raise KeyboardInterrupt from None
        text = str(error)
        _logger.info("a Spark job failed: %s", scrub(text))
        raise explain(text) from None


@contextmanager
def translated_analysis(whose: str = "") -> Iterator[None]:
    """Like `translated`, and raise `SparkQueryError` for an unknown column, a wrong type or a missing path."""
    from pyspark.errors import AnalysisException, ParseException

    query = f"the query of {whose}" if whose else "the query"
    with translated(), _without_query_log():
        try:
            yield
        except (AnalysisException, ParseException) as error:
            cause = reason(str(error)).rstrip("; ")
            raise SparkQueryError(f"Spark refuses {query}: {cause}; correct the expression or the path") from None


@contextmanager
def _without_query_log() -> Iterator[None]:
    """Disable the PySpark loggers that print an invalid query with its JVM stack trace."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before PySpark 4.0 it prints nothing
        yield
        return
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _interrupted(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def explain(text: str) -> FsspeckitError:
    """Return the typed error for the text of a Spark error."""
    missing = _MISSING.findall(text)
    if missing:
        return missing_module(missing[-1].partition(".")[0])
    if "PYTHON_VERSION_MISMATCH" in text:
        return ExecutorSetupError(
            f"the Python of the executors is not the driver's {sys.version_info[0]}.{sys.version_info[1]}; set "
            "PYSPARK_PYTHON to the same version on all machines before the session starts"
        )
    if absent := _NO_CONNECTOR.search(text):
        return ExecutorSetupError(
            f"Spark has no connector for this address ({absent[1] or absent[2]} is missing); start it with one by the "
            "setting spark.jars.packages (for S3, org.apache.hadoop:hadoop-aws of Spark's Hadoop version), or read a "
            "Parquet folder as a dataset, which needs none"
        )
    if (unknown := _NO_CLASS.search(text)) or _NO_DRIVER.search(text):
        what = f"Spark does not find the class {unknown[1]}" if unknown else "No suitable driver for this jdbc url"
        return ExecutorSetupError(
            f"{what}; check the name, or start Spark with its jar by the setting spark.jars or spark.jars.packages"
        )
    if own := _OWN.search(text):
        return _OWN_CLASSES[own[1]](scrub(own[2]))
    if _CANCELLED.search(text):
        return SparkJobCancelledError("the Spark job was cancelled. Nothing was changed; run the operation again")
    lines = [found for found in _LINE.findall(text) if not _LIBRARY.search(found[0])]
    if lines and _RAISED.search(text):
        where = f'File "{scrub(lines[-1][0])}", line {lines[-1][1]}'
        return SparkJobError(f"a Python function raised {reason(text)} ({where}). Nothing was changed; correct it")
    condition = _CONDITION.search(text)
    advice = "mend the query that makes the rows" if condition else "run the operation again"
    return SparkJobError(f"the Spark job failed: {reason(text)}. Nothing was changed; {advice}")


def missing_module(name: str) -> ExecutorSetupError:
    """Return the error for a package that is missing on the executors."""
    return ExecutorSetupError(
        f"the Python of the executors has no package {name!r}; install it there, or set PYSPARK_PYTHON, before the "
        f"session starts, to an interpreter that has it (the driver's is {sys.executable})"
    )


def invisible(path: str, host: str) -> ExecutorSetupError:
    """Return the error for a local path that does not exist on an executor."""
    return ExecutorSetupError(
        f"the executor on {host} does not see {path}; put the dataset on a path that all machines share "
        "(NFS, for example), or on an object store"
    )


def reason(text: str) -> str:
    """Return the most specific line of a Spark error: the last Python error, else the first line."""
    cause = _CAUSE.search(text)
    own = cause[1] if cause else _OF_PY4J.sub("", _JAVA_SIDE.split(text)[0])
    raised = _RAISED.findall(own)
    lines = [line.strip() for line in own.splitlines() if line.strip()]
    line = raised[-1] if raised else (lines[0] if lines else "no reason was given")
    return scrub(line)[:_LONGEST].rstrip(". ")

"""Convert errors of DuckDB to errors of fsspeckit that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from fsspeckit.common.errors import FsspeckitError

# Errors of reading an Arrow stream whose producer fails.
_STREAM_ERRORS = (OSError, pa.ArrowException)
# Errors that are not caused by data or query: DuckDB's class, the start of its message in pyarrow, and the advice.
_ENVIRONMENT_ERRORS = (
    (
        "ConnectionException",
        ("Connection Error",),
        "Pass an open connection, or omit connection.",
    ),
    (
        "OutOfMemoryException",
        ("Out of Memory Error",),
        "Free memory on this machine, or increase memory_limit if it is set.",
    ),
    (
        "IOException",
        ("IO Error", "HTTP Error"),
        "Check that temp_directory exists, is writable and has free space.",
    ),
    ("InterruptException", ("INTERRUPT Error",), "Run it again."),
)


class DuckDBNotFoundError(FsspeckitError, ImportError):
    """DuckDB is not installed."""


class DuckDBError(FsspeckitError, RuntimeError):
    """An operation of DuckDB failed."""


@contextmanager
def report_duckdb_errors(
    action: str, data_error: Callable[[str], Exception] | None = None, *, stream: bool = False
) -> Iterator[None]:
    """Convert an error of DuckDB to an error of fsspeckit.

    Args:
        action: What is done, for the message.
        data_error: Returns the error for DuckDB's message if data or query cause it.
        stream: Whether an Arrow stream of DuckDB is read: pyarrow raises its errors, with DuckDB's message.
    """
    import duckdb

    expected = (duckdb.Error, *_STREAM_ERRORS) if stream else (duckdb.Error,)
    try:
        yield
    except expected as error:
        reason = str(error).partition("\n")[0]
        advice = _advice(error)
        if advice is None and data_error is not None:
            raise data_error(reason) from error
        advice = advice or "Run it again, and report the error if it occurs again."
        raise DuckDBError(f"{action}: {reason}. {advice}") from error


def _advice(error: Exception) -> str | None:
    """Return what to do about an error that is not caused by data or query. Errors of pyarrow are matched by text."""
    import duckdb

    for class_name, prefixes, advice in _ENVIRONMENT_ERRORS:
        if isinstance(error, getattr(duckdb, class_name)):
            return advice
        if isinstance(error, _STREAM_ERRORS) and str(error).startswith(prefixes):
            return advice
    return None

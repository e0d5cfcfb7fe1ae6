"""What DuckDB raises, as errors of the house that say what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from fsspeckit.common.errors import FsspeckitError

# What reading an Arrow stream raises when the one who fills it fails.
_STREAM_ERRORS = (OSError, pa.ArrowException)
_BLAMELESS = (
    (
        "ConnectionException",
        ("Connection Error",),
        "the connection is closed: pass one that is open, or leave connection out",
    ),
    (
        "OutOfMemoryException",
        ("Out of Memory Error",),
        "free memory on this machine, or raise memory_limit where one is set",
    ),
    (
        "IOException",
        ("IO Error", "HTTP Error"),
        "see to it that temp_directory exists, can be written and has room",
    ),
    ("InterruptException", ("INTERRUPT Error",), "run it again"),
)


class DuckDBNotFoundError(FsspeckitError, ImportError):
    """DuckDB is not installed."""


class DuckDBError(FsspeckitError, RuntimeError):
    """DuckDB could not do its part of the work."""


@contextmanager
def report_duckdb_errors(
    doing: str, otherwise: Callable[[str], Exception] | None = None, *, stream: bool = False
) -> Iterator[None]:
    """Turn an error of DuckDB into one of ours.

    Args:
        doing: What was tried.
        otherwise: Makes the error from DuckDB's reason where the data is to blame.
        stream: Whether an Arrow stream of DuckDB is read, whose errors are raised by pyarrow with DuckDB's words.
    """
    import duckdb

    expected = (duckdb.Error, *_STREAM_ERRORS) if stream else (duckdb.Error,)
    try:
        yield
    except expected as error:
        reason = str(error).partition("\n")[0]
        advice = _advice(error)
        if advice is None and otherwise is not None:
            raise otherwise(reason) from error
        raise DuckDBError(f"{doing}: {reason}; {advice or 'run it again, and report it if it stays'}") from error


def _advice(error: Exception) -> str | None:
    """What to do where neither data nor query is to blame; what pyarrow raises is known by its first words alone."""
    import duckdb

    for kind, openings, advice in _BLAMELESS:
        if isinstance(error, getattr(duckdb, kind)):
            return advice
        if isinstance(error, _STREAM_ERRORS) and str(error).startswith(openings):
            return advice
    return None

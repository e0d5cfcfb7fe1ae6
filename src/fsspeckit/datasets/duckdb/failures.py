"""What DuckDB raises, as errors of the house that say what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fsspeckit.common.errors import FsspeckitError


class DuckDBNotFoundError(FsspeckitError, ImportError):
    """DuckDB is not installed."""


class DuckDBError(FsspeckitError, RuntimeError):
    """DuckDB could not do its part of the work."""


@contextmanager
def naming_trouble(doing: str, otherwise: Callable[[str], Exception] | None = None) -> Iterator[None]:
    """Turn an error of DuckDB into one of ours; ``otherwise`` makes it from the reason where the data is to blame."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        advice = _advice(error)
        if advice is None and otherwise is not None:
            raise otherwise(reason) from error
        raise DuckDBError(f"{doing}: {reason}; {advice or 'run it again, and report it if it stays'}") from error


def _advice(error: Exception) -> str | None:
    """What to do where neither data nor query is to blame."""
    import duckdb

    match error:
        case duckdb.ConnectionException():
            return "the connection is closed: pass one that is open, or leave connection out"
        case duckdb.OutOfMemoryException():
            return "raise memory_limit, or leave it out"
        case duckdb.IOException():
            return "see to it that temp_directory exists, can be written and has room"
        case duckdb.InterruptException():
            return "run it again"
    return None

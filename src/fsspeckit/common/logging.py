"""Loggers of fsspeckit, logging of unexpected errors, and clean-up that continues after a failure.

The library configures no handler and no level; the application does. Secrets are not logged: options go through
`redact`, paths and messages through `scrub`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fsspeckit.common.causes import system_error
from fsspeckit.common.errors import (
    DamagedFileError,
    FsspeckitError,
    KeyColumnError,
    OutOfMemoryError,
    SchemaMismatchError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from fsspeckit.common.text import scrub

_ROOT = "fsspeckit"
_HIDDEN = "***"
UNEXPECTED = "unexpected"
"""The attribute that only the record of an unexpected error has."""

# Failures of storages, files and memory. Other errors of fsspeckit are those that a caller can cause: not logged.
_FAILURES = (StorageError, DamagedFileError, OutOfMemoryError)
_NAMING_PLACE = (
    DamagedFileError,
    KeyColumnError,
    SchemaMismatchError,
    OutOfMemoryError,
    StoragePermissionError,
    StorageFullError,
)
_MISSING = (FileNotFoundError, FileExistsError)

logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """Return a logger below `fsspeckit`.

    Examples:
        >>> get_logger("fsspeckit.core.commit.transaction").name, get_logger("jobs").name
        ('fsspeckit.core.commit.transaction', 'fsspeckit.jobs')
    """
    inside = name == _ROOT or name.startswith(f"{_ROOT}.")
    return logging.getLogger(name if inside else f"{_ROOT}.{name}")


def redact(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return storage options for a log: all names, and only values that cannot be secret.

    Examples:
        >>> redact({"key": "AKIA", "anon": False, "client_kwargs": {"endpoint_url": "https://user:pw@host"}})
        {'key': '***', 'anon': False, 'client_kwargs': {'endpoint_url': '***'}}
    """
    return {name: _redacted(value) for name, value in (options or {}).items()}


@contextmanager
def log_unexpected(operation: str, path: str) -> Iterator[None]:
    """Log an unexpected error once, with operation and path, on the logger of the module, and raise every error again.

    Errors of the system become typed ones (`system_error`). These, and errors of files, schemas and keys, name
    operation and path.
    Works as a context manager and as a decorator.

    Examples:
        >>> with log_unexpected("merge", "lake/events"):
        ...     rows = 1 + 1
    """
    try:
        yield
    except Exception as error:
        where, modules = f"{operation} of {scrub(path)}", _modules_of(error)
        found = system_error(where, error) or error
        if _is_unexpected(found, modules) and not getattr(error, "_fsspeckit_logged", False):
            # Not exc_info: the handler would format the traceback, including its secrets.
            text, details = scrub(str(found)), scrub(traceback.format_exc())
            get_logger(modules[0]).error("%s failed: %s\n%s", where, text, details, extra={UNEXPECTED: True})
            found._fsspeckit_logged = True  # type: ignore[attr-defined]
        if found is not error:
            raise found from error
        if isinstance(error, _NAMING_PLACE):
            _name_place(error, operation, scrub(path))
        raise


def _name_place(error: Exception, operation: str, path: str) -> None:
    text = str(error)
    if operation not in text or path not in text:
        error.args = (f"{operation} of {path}: {error.args[0] if error.args else text}",)


def _modules_of(error: BaseException) -> list[str]:
    """Return the modules of the calls that raised an error, from the one that logs it to the innermost one."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    names = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    return [name for name in names if name not in (__name__, "contextlib")] or [_ROOT]


def _is_unexpected(error: Exception, modules: Sequence[str]) -> bool:
    """Return whether no caller asked for an error; wrong values and names are expected from this package only."""
    if isinstance(error, FsspeckitError):
        return isinstance(error, _FAILURES)
    is_own = modules[-1].partition(".")[0] == _ROOT
    return not isinstance(error, _MISSING) and not (isinstance(error, (ValueError, pa.ArrowKeyError)) and is_own)


def release_all(resources: Iterable[tuple[str, Callable[[], object]]], operation: str) -> int:
    """Release all resources; log a failure and continue with the next resource.

    Args:
        resources: Name and release function of each resource.
        operation: The operation that used the resources, for the log.

    Returns:
        The number of resources that could not be released.

    Examples:
        >>> release_all([("spool file", lambda: None)], "merge")
        0
    """
    failures = 0
    for name, release in resources:
        try:
            release()
        except Exception as error:  # noqa: BLE001 - the other resources must be released too
            failures += 1
            get_logger(_ROOT).warning("clean-up after %s: %s failed: %s", operation, scrub(name), scrub(repr(error)))
    return failures


def _redacted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact(value)
    return value if value is None or isinstance(value, bool) else _HIDDEN

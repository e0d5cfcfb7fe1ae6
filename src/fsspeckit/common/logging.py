"""Loggers of fsspeckit, logging of unexpected errors, and clean-up that continues after a failure.

The library configures no handler and no level; the application does. Secrets are not logged: options go through
`redact`, paths and messages through `scrub`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.text import scrub

_ROOT = "fsspeckit"
_HIDDEN = "***"

# Errors that a caller can cause; their message is enough, so they are not logged.
_EXPECTED = (FsspeckitError, ValueError, FileNotFoundError, FileExistsError)

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
    """Log an unexpected error once, with operation and path, and raise every error again.

    Works as a context manager and as a decorator.

    Examples:
        >>> with log_unexpected("merge", "lake/events"):
        ...     rows = 1 + 1
    """
    try:
        yield
    except _EXPECTED:
        raise
    except Exception as error:
        if not getattr(error, "_fsspeckit_logged", False):
            # Not exc_info: the handler would format the traceback, including its secrets.
            details = scrub(traceback.format_exc())
            get_logger(_ROOT).error("%s of %s failed: %s\n%s", operation, scrub(path), scrub(str(error)), details)
            error._fsspeckit_logged = True  # type: ignore[attr-defined]
        raise


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

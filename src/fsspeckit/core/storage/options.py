"""Errors of filesystems that their options cause: the names of options are told, their values never.

fsspec hands options on to libraries that refuse them late, at the first call, and with errors of any class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from fsspeckit.common.errors import FsspeckitError, StorageOptionError
from fsspeckit.core.storage.base import report_errors

Options = tuple[tuple[str, Any], ...]
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_SECRET = re.compile("key|secret|token|pass|cred|sas|auth|sign|connection_string", re.IGNORECASE)
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)")


class report_options(report_errors):  # noqa: N801 - used like a function, as its base class
    """Let errors that options cause leave as `StorageOptionError`, and all others without the secrets of options."""

    __slots__ = ("_options",)

    def __init__(self, operation: str, path: str, options: Options) -> None:
        super().__init__(operation, path)
        self._options = options

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._options and error is not None and is_refusal(error):
            raise refusal(error, f"cannot {self._operation} {self._path}", self._options) from None
        if isinstance(error, OSError) and hidden(str(error), self._options) != str(error):
            raise self._renamed(error) from None  # the traceback would tell the secret
        super().__exit__(kind, error, traceback)

    def _reason(self, error: Exception) -> str:
        return hidden(super()._reason(error), self._options)


def option_pairs(options: Mapping[str, Any]) -> Options:
    """Names and values of options, at every depth."""
    return tuple(_pairs(options))


def _pairs(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        yield str(name), value
        if isinstance(value, Mapping):
            yield from _pairs(value)


def hidden(text: str, options: Options) -> str:
    """A text without the values of options that are secret by their names."""
    secrets = {value for name, value in options if isinstance(value, str) and value and _SECRET.search(name)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def is_refusal(error: BaseException) -> bool:
    """Whether a library may have raised an error because of its options, and not this package by a mistake."""
    if isinstance(error, (FsspeckitError, UnicodeError)) or not isinstance(
        error, (TypeError, ValueError, AttributeError)
    ):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or not str(last.tb_frame.f_globals.get("__name__", "")).startswith("fsspeckit.")


def refusal(error: BaseException, what: str, options: Options) -> StorageOptionError:
    """The error to raise; the text of the library's own may hold values, so that only names are taken from it."""
    unknown, missing = _UNKNOWN.search(str(error)), _MISSING.search(str(error))
    names = sorted({name for name, _ in options})
    if unknown and unknown[1] in names:
        said = f"the option {unknown[1]!r} is unknown; correct its name in storage_options"
    elif missing:
        said = f"the filesystem needs {missing[1]}; add it to storage_options"
    elif names:
        said = f"the filesystem refuses its options {', '.join(names)} ({type(error).__name__})"
        said += "; check their names and values in storage_options"
    else:
        said = f"the filesystem refuses the URL ({type(error).__name__}); correct the URL"
    return StorageOptionError(f"{what}: {said}")

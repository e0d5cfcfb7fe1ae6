"""Report errors that filesystem options cause. Messages contain the names of options, never their values.

fsspec passes options to libraries that reject them only at the first call, with errors of any class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from fsspeckit.common.errors import FsspeckitError, StorageOptionError
from fsspeckit.common.text import scrub
from fsspeckit.core.storage.base import report_errors
from fsspeckit.core.storage.refusals import refusal

Options = tuple[tuple[str, Any], ...]
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_SECRET = re.compile("key|secret|token|pass|cred|sas|auth|sign|connection_string", re.IGNORECASE)
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)")


class report_options(report_errors):  # noqa: N801 - used like a function, as its base class
    """Raise errors that options cause as `StorageOptionError`, and remove secrets from all other errors."""

    __slots__ = ("_options",)

    def __init__(self, operation: str, path: str, options: Options) -> None:
        super().__init__(operation, path)
        self._options = options

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, FsspeckitError):
            refused = refusal(error, f"cannot {self._operation} {scrub(self._path)}")
            if refused is not None:
                raise refused from None  # the answer may repeat the credentials
        if self._options and error is not None and is_option_error(error):
            raise option_error(error, f"cannot {self._operation} {self._path}", self._options) from None
        if isinstance(error, OSError) and without_secrets(str(error), self._options) != str(error):
            raise self._with_context(error) from None  # the original error contains the secret
        super().__exit__(kind, error, traceback)

    def _reason(self, error: Exception) -> str:
        return without_secrets(super()._reason(error), self._options)


def option_pairs(options: Mapping[str, Any]) -> Options:
    """Return the names and values of options, including those of nested mappings."""
    return tuple(_pairs(options))


def _pairs(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        yield str(name), value
        if isinstance(value, Mapping):
            yield from _pairs(value)


def without_secrets(text: str, options: Options) -> str:
    """Return a text in which the values of secret options are masked. The name decides whether an option is secret."""
    secrets = {value for name, value in options if isinstance(value, str) and value and _SECRET.search(name)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def is_option_error(error: BaseException) -> bool:
    """Return whether an error may come from a library that rejects its options, and not from a bug in this package."""
    if isinstance(error, (FsspeckitError, UnicodeError)) or not isinstance(
        error, (TypeError, ValueError, AttributeError)
    ):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or not str(last.tb_frame.f_globals.get("__name__", "")).startswith("fsspeckit.")


def option_error(error: BaseException, what: str, options: Options) -> StorageOptionError:
    """Return the error to raise. Only names are taken from the original message, because it may contain values."""
    unknown, missing = _UNKNOWN.search(str(error)), _MISSING.search(str(error))
    names = sorted({name for name, _ in options})
    if unknown and unknown[1] in names:
        reason = f"the option {unknown[1]!r} is unknown; correct its name in storage_options"
    elif missing:
        reason = f"the filesystem needs {missing[1]}; add it to storage_options"
    elif names:
        reason = f"the filesystem rejects its options {', '.join(names)} ({type(error).__name__})"
        reason += "; check their names and values in storage_options"
    else:
        reason = f"the filesystem rejects the URL ({type(error).__name__}); correct the URL"
    return StorageOptionError(f"{what}: {reason}")

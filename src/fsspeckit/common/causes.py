"""The typed error for a failure of the system: a storage that refuses or is full, or too little memory.

Arrow reports a lack of memory, a storage that fails and a damaged file with the same classes.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fsspeckit.common.errors import (
    FsspeckitError,
    OutOfMemoryError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from fsspeckit.common.text import scrub

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = {
    errno.ENOSPC: "Free space there, then run again.",
    errno.EDQUOT: "Free space there or raise the quota, then run again.",
    errno.EFBIG: "Raise the limit of file sizes (`ulimit -f`) or write smaller files, then run again.",
}
_OF_DAMAGE = (errno.EINVAL, errno.EOVERFLOW)  # a damaged file may name places that no file has
_ASKED = re.compile(r"alloc of size (\d+)")
_MOST_ASKED = 2**40  # far more than the largest part of a row group


def reason_of(error: BaseException) -> str:
    """Return what an error of a storage says, without secrets of URLs."""
    return scrub(getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")


def storage_error(failed: str, error: BaseException, reason: str = "") -> StorageError:
    """Return the typed error of a failed operation; ``failed`` says which one of which path, as in "cannot read x"."""
    number, reason = getattr(error, "errno", None), reason or reason_of(error)
    found: StorageError
    if isinstance(error, PermissionError) or number in _FORBIDDEN:
        found = StoragePermissionError(f"{failed}: {reason}. Get access to it, then run again.")
    elif number in _FULL:
        found = StorageFullError(f"{failed}: {reason}. {_FULL[number]}")
    else:
        found = StorageError(f"{failed}: {reason}")
    found.errno = number
    return found


def memory_error(failed: str, error: BaseException) -> OutOfMemoryError:
    """Return the typed error of an operation that lacks memory; ``failed`` as in `storage_error`."""
    details = f" ({reason_of(error)})" if str(error) else ""
    return OutOfMemoryError(
        f"{failed}: there is not enough memory{details}. Give the process more memory, or pass a smaller memory_limit "
        "or batch_rows."
    )


def outer_cause(failed: str, error: BaseException) -> FsspeckitError | None:
    """Return the typed error of a failed read if its data need not be damaged: storage or memory are the cause.

    None if the data can be the cause. A damaged length asks for more memory than any file needs.
    """
    if isinstance(error, FsspeckitError):
        return error
    if isinstance(error, MemoryError):
        asked = _ASKED.search(str(error))
        if asked and int(asked[1]) > _MOST_ASKED:
            return None
        doubt = "; a damaged length in the file could also be the cause, if other programs cannot read it either"
        return memory_error(failed, MemoryError(f"{reason_of(error)}{doubt}"))
    is_outer = isinstance(error, PermissionError | ConnectionError | TimeoutError)
    if is_outer or getattr(error, "errno", None) not in (None, *_OF_DAMAGE):
        return storage_error(failed, error)
    return None


def system_error(failed: str, error: BaseException) -> FsspeckitError | None:
    """Return the typed error if memory, space or a permission is missing, else None."""
    if isinstance(error, FsspeckitError):
        return None
    if isinstance(error, MemoryError):
        return memory_error(failed, error)
    lacks = isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in (*_FORBIDDEN, *_FULL))
    return storage_error(failed, error) if lacks else None


@contextmanager
def report_writing(path: str) -> Iterator[None]:
    """Raise errors of the system as `StorageError`; all files but the one at ``path`` are used with typed errors."""
    try:
        yield
    except (FsspeckitError, FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise storage_error(f"cannot write {scrub(path)}", error) from error

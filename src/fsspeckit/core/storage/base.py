"""The interface of a storage.

Paths are absolute inside the storage, separated by ``/``, without protocol and trailing slash. A path that is created,
moved or deleted is canonical: a symbolic link in it raises. A write is durable only after the caller calls
``sync_files`` and ``sync_dirs``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import pyarrow as pa

from fsspeckit.common.causes import reason_of, storage_error
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.text import scrub

FOLDER = -1
"""The size of an :class:`Entry` that is a folder."""
_KEPT_ERRORS = (
    FsspeckitError,
    TypeError,
    ValueError,
    AttributeError,
    ImportError,
    NotImplementedError,
    AssertionError,
    MemoryError,
)
OWNER = "owner"
"""Name of the file in a staging folder that marks it as in use: written once, deleted only with the folder."""
LOCK = "lock"
"""Name of the lock file, which every sidecar contains."""
JOURNAL_NAMES = (LOCK, "log")
"""Names in a sidecar. A folder with the name of a sidecar and none of these is no sidecar."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A listed file or folder. ``path`` is relative to the listed root.

    ``stamp`` changes with the content, and a rename keeps it, so journal records have it. ``version`` also changes if
    the time of the last write is set back; a rename changes it too.
    """

    path: str
    size: int
    stamp: str
    modified: float = 0.0
    changed: int = 0

    @property
    def version(self) -> str:
        """The stamp, and the time of the last change on storages with such a time."""
        return f"{self.stamp}:{self.changed}" if self.changed else self.stamp


@dataclass(frozen=True, slots=True)
class Tree:
    """All files below a root sorted by path, all folders, and all sidecars. The content of sidecars is not listed."""

    files: tuple[Entry, ...]
    folders: tuple[str, ...]
    sidecars: tuple[str, ...] = ()


class Handle(Protocol):
    """Marks the staging folder of a running transaction as alive. It ends with the process."""

    def release(self) -> None:
        """End the mark."""


class Storage(ABC):
    """One filesystem. Instances are picklable and hold no state about any dataset."""

    is_local: bool = False
    in_place: bool = False
    is_shared: bool = True
    """Whether another process can open the same files."""
    has_folders: bool = True
    knows_owners: bool = True
    """Whether `is_alive` is certain. Otherwise it is an estimate, and a dead writer may count as alive for a day."""
    can_exchange: bool = False
    """Whether two folders can exchange their places with one system call."""
    int96_local: bool = False
    """Whether INT96 timestamps of files here are read without a time zone."""
    workers: int = 1
    """Number of parallel calls: several for a remote store with round trips, 1 where a call takes microseconds."""

    @property
    def client(self) -> str:
        """The library, its version and the server: what decides whether `create_exclusive` works."""
        return "" if self.is_local else type(self).__name__

    @abstractmethod
    def list_tree(self, root: str) -> Tree:
        """List recursively. Raise on unreadable folders and symlinks, and FileNotFoundError if ``root`` is missing."""

    @abstractmethod
    def list_dir(self, path: str) -> list[Entry]:
        """Return the files and folders directly inside, or an empty list if ``path`` is missing."""

    def list_names(self, path: str) -> list[str]:
        """Return the names directly inside, or an empty list if ``path`` is missing. Raise on symbolic links."""
        return [entry.path for entry in self.list_dir(path)]

    def refuse_links(self, folder: str, below: Iterable[str] = ()) -> None:  # noqa: B027 - few storages have links
        """Raise if the folder, or one of the folders ``below`` relative to it, is or contains a symbolic link."""

    @abstractmethod
    def stat(self, path: str) -> Entry | None:
        """Return the file or folder at ``path``, or None."""

    def stat_file(self, path: str) -> Entry | None:
        """Return the file at ``path``, or None. On an object store a folder may count as missing."""
        return self.stat(path)

    def time_in(self, stamp: str) -> float:  # noqa: ARG002 - few stamps have a time
        """Return the time of the last write that a stamp has, or 0.0."""
        return 0.0

    def list_below(self, path: str) -> list[Entry] | None:  # noqa: ARG002 - most storages need several requests
        """Return all files below a folder, if one request lists them, else None. A missing folder is empty."""
        return None

    @abstractmethod
    def read_bytes(self, path: str) -> bytes:
        """Return the content of a small file. On local disks, a file of more than 128 MiB raises."""

    @abstractmethod
    def read_tail(self, path: str, size: int) -> bytes:
        """Return the last ``size`` bytes, or the whole file if it is shorter."""

    def read_tail_and_stat(self, path: str, size: int) -> tuple[bytes, Entry | None]:
        """Return the last ``size`` bytes, and the file itself."""
        return self.read_tail(path, size), self.stat_file(path)

    @abstractmethod
    def create_exclusive(self, path: str, data: bytes) -> None:
        """Create a whole file durably and atomically. Raise FileExistsError if the path exists."""

    @abstractmethod
    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a small file, and replace an existing one. It is not durable before its folder is synced."""

    @abstractmethod
    def open_input(self, path: str, size: int | None = None, stamp: str = "") -> pa.NativeFile:
        """Open a file for random access. With the listed size and stamp, an object store is not asked for them."""

    @abstractmethod
    def open_output(self, path: str) -> pa.NativeFile:
        """Open a new file for writing, and replace an existing one. Its folder must exist."""

    @abstractmethod
    def make_dirs(self, path: str) -> tuple[str, ...]:
        """Create a folder and its parents, and return those that were missing. No-op on storages without folders."""

    @abstractmethod
    def publish(self, staged: str, path: str, size: int | None = None) -> bool:
        """Move or copy a staged file, of this size, to its final path. A file at that path is replaced atomically.

        Return False if the copy was requested more than once, so that an earlier request may still be running.
        """

    @abstractmethod
    def duplicate(self, path: str, other: str, size: int) -> None:
        """Give a file that is never written again a second path, without moving its bytes through this process.

        A local storage links the file, other storages copy it. A file at ``other`` is replaced.
        """

    @abstractmethod
    def retire(self, path: str, trash: str) -> None:
        """Remove a file from the dataset. A local storage moves it to ``trash``. A missing file is not an error."""

    def move_many(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename files in this order and in as little time as possible. Stop at the first one that cannot be moved."""
        raise NotImplementedError

    def link(self, path: str, target: str) -> None:
        """Give a file a second name. Raise FileExistsError if the name exists."""
        raise NotImplementedError

    def copy_folder(self, path: str, target: str) -> None:
        """Create an empty folder with the permissions of another one, if that exists."""
        raise NotImplementedError

    def exchange(self, path: str, other: str) -> None:
        """Let two folders exchange their places, atomically."""
        raise NotImplementedError

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file. A missing file is not an error."""

    def remove_many(self, paths: Iterable[str]) -> None:
        """Delete files, in bulk if the storage can. A missing file is not an error; raise if a file was not deleted."""
        for path in paths:
            self.remove(path)

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Delete a folder with its content. A missing folder is not an error."""

    @abstractmethod
    def remove_dir_if_empty(self, path: str) -> bool:
        """Delete a folder if it is empty, and return whether it was deleted."""

    @abstractmethod
    def sync_files(self, paths: Iterable[str]) -> None:
        """Make the content of files durable."""

    @abstractmethod
    def sync_dirs(self, paths: Iterable[str]) -> None:
        """Make the entries of folders durable."""

    @abstractmethod
    def lock(self, path: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Lock a sidecar against other writers, if the storage supports locks."""

    def is_locked(self, path: str) -> bool:  # noqa: ARG002 - few storages have locks
        """Return whether another writer holds this lock now. It is False if the storage has no locks."""
        return False

    @abstractmethod
    def claim_staging(self, folder: str) -> Handle:
        """Create a staging folder that is alive until the handle is released."""

    @abstractmethod
    def is_alive(self, folder: str) -> bool:
        """Return whether the owner of a staging folder is alive (an estimate unless ``knows_owners``)."""

    @abstractmethod
    def staging_exists(self, folder: str) -> bool:
        """Return whether the staging folder that `claim_staging` created still exists."""

    @abstractmethod
    def check_publishable(self, staging: str, paths: Iterable[str]) -> None:
        """Raise if a staged file cannot be published at one of these paths (device, permission, length of the name)."""

    @abstractmethod
    def sidecar_parent(self, path: str) -> str | None:
        """Return the folder for a sidecar beside ``path``, or None for a bucket, a mount point or the root."""

    @abstractmethod
    def canonical(self, path: str) -> str:
        """Return the canonical form of a path, which is the same for all writers."""

    @abstractmethod
    def url(self, path: str) -> str:
        """Return the URL of a path, for other programs."""


def parent(path: str) -> str:
    """Return the folder of a path, or an empty string."""
    head, _, _ = path.rpartition("/")
    return head if head or not path.startswith("/") else "/"


def join(folder: str, *names: str) -> str:
    """Join with single slashes. Empty names are skipped."""
    parts = [name for name in names if name]
    return "/".join([folder.rstrip("/"), *parts] if folder else parts)


def is_sidecar_name(name: str) -> bool:
    """Return whether a folder name has the form of a sidecar's name. A partition folder may have it too."""
    return name.startswith(".") and name.endswith(".fsspeckit")


class report_errors:  # noqa: N801 - used like a function; a generator costs more, and every filesystem call uses it
    """Add the operation and the path to the message of every storage error."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation, self._path = operation, path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, _KEPT_ERRORS):
            # The message of the library may contain secrets, which a traceback would show.
            raise self._with_context(error) from (error if scrub(str(error)) == str(error) else None)

    def _with_context(self, error: Exception) -> OSError:
        failed, reason = f"cannot {self._operation} {scrub(self._path)}", self._reason(error)
        for kind in (FileNotFoundError, FileExistsError):
            if isinstance(error, kind):
                found = kind(f"{failed}: {reason}")
                found.errno = error.errno
                return found
        return storage_error(failed, error, reason)

    def _reason(self, error: Exception) -> str:
        return reason_of(error)

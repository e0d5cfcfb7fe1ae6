"""The storage contract: what the rest of fsspeckit may ask of a place that holds files.

Paths are absolute inside the storage, separated by ``/``, without protocol and trailing slash. Nothing here knows of
datasets or Parquet; durability (``sync_files``, ``sync_dirs``) is asked for by the caller, never assumed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import pyarrow as pa

from fsspeckit.common.errors import FsspeckitError, StorageError
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
)
OWNER = "owner"
"""The file in a staging folder that stands for its living owner: written once, and deleted only with the folder."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder as listed; ``path`` is relative to the listed root and ``stamp`` changes with the content."""

    path: str
    size: int
    stamp: str
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything below a root: files sorted by path, folders, and sidecars, whose content is not listed."""

    files: tuple[Entry, ...]
    folders: tuple[str, ...]
    sidecars: tuple[str, ...] = ()


class Handle(Protocol):
    """Proof of life of a running transaction; dies with the process."""

    def release(self) -> None:
        """Give the liveness up."""


class Storage(ABC):
    """One filesystem. Instances are picklable and hold no state about any dataset."""

    is_local: bool = False
    in_place: bool = False
    is_shared: bool = True
    """Whether another process can open the same files."""
    has_folders: bool = True
    workers: int = 1
    """How many calls are worth making at once (round trips of a remote store); 1 where a call costs microseconds."""

    @abstractmethod
    def list_tree(self, root: str) -> Tree:
        """List recursively; raise on any unreadable folder or symlink, FileNotFoundError where ``root`` is missing."""

    @abstractmethod
    def list_dir(self, path: str) -> list[Entry]:
        """Files and folders directly inside; empty where ``path`` is missing."""

    def list_names(self, path: str) -> list[str]:
        """Names directly inside, for who needs no more; empty where ``path`` is missing. Raises on symbolic links."""
        return [entry.path for entry in self.list_dir(path)]

    def refuse_links(self, folder: str, below: Iterable[str] = ()) -> None:  # noqa: B027 - few storages have links
        """Raise where the folder, or one of these folders relative to it, is reached through a symbolic link."""

    @abstractmethod
    def stat(self, path: str) -> Entry | None:
        """The file or folder at ``path``, None where there is none."""

    @abstractmethod
    def read_bytes(self, path: str) -> bytes:
        """Content of a small file."""

    @abstractmethod
    def read_tail(self, path: str, size: int) -> bytes:
        """The last ``size`` bytes, or the whole file where it is shorter."""

    @abstractmethod
    def read_into(self, path: str, room: memoryview) -> Entry | None:
        """Fill ``room`` with the first bytes of a file; where names are used again, tell which file it was."""

    @abstractmethod
    def create_exclusive(self, path: str, data: bytes) -> None:
        """Durable put-if-absent of a whole file; FileExistsError where the name is taken."""

    @abstractmethod
    def write_bytes(self, path: str, data: bytes) -> None:
        """Write a small file; not durable before the folder is synced."""

    @abstractmethod
    def open_input(self, path: str) -> pa.NativeFile:
        """Open for random access."""

    @abstractmethod
    def open_output(self, path: str) -> pa.NativeFile:
        """Open a new file for writing; its folder exists."""

    @abstractmethod
    def make_dirs(self, path: str) -> tuple[str, ...]:
        """Create a folder and its parents, and say which were missing. Nothing to do where folders are only names."""

    @abstractmethod
    def publish(self, staged: str, path: str) -> None:
        """Give a staged file its final name, replacing in one step what stands there."""

    @abstractmethod
    def retire(self, path: str, trash: str) -> None:
        """Take a file out of the dataset; ``trash`` is where a local storage may park it. A missing file is fine."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file; a missing one is fine."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Delete a folder with all it holds; a missing one is fine."""

    @abstractmethod
    def remove_dir_if_empty(self, path: str) -> bool:
        """Delete a folder that holds nothing and say whether it is gone."""

    @abstractmethod
    def sync_files(self, paths: Iterable[str]) -> None:
        """Make the content of files durable."""

    @abstractmethod
    def sync_dirs(self, paths: Iterable[str]) -> None:
        """Make the entries of folders durable."""

    @abstractmethod
    def lock(self, path: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Mutual exclusion between writers of one sidecar, where the storage has such a thing."""

    @abstractmethod
    def claim_staging(self, folder: str) -> Handle:
        """Create a staging folder and mark it as alive for as long as the handle is."""

    @abstractmethod
    def is_alive(self, folder: str) -> bool:
        """Whether somebody alive still holds the staging folder (a guess on storages that have only clocks)."""

    @abstractmethod
    def staging_exists(self, folder: str) -> bool:
        """Whether the staging folder that ``hold`` made was never deleted since."""

    @abstractmethod
    def check_publishable(self, staging: str, paths: Iterable[str]) -> None:
        """Raise where a staged file could not be given one of these final names (device, permission, length)."""

    @abstractmethod
    def sidecar_parent(self, path: str) -> str | None:
        """The folder in which a sidecar may stand beside ``path``; None for a bucket, a mount point or the very top."""

    @abstractmethod
    def canonical(self, path: str) -> str:
        """The one spelling of a path that all writers agree on."""

    @abstractmethod
    def url(self, path: str) -> str:
        """The path with its protocol, as other programs name it."""


def parent(path: str) -> str:
    """The folder of a path; empty for a path without one."""
    head, _, _ = path.rpartition("/")
    return head if head or not path.startswith("/") else "/"


def join(folder: str, *names: str) -> str:
    """Join with single slashes; empty names are skipped."""
    parts = [name for name in names if name]
    return "/".join([folder.rstrip("/"), *parts] if folder else parts)


def is_sidecar_name(name: str) -> bool:
    """Whether a folder name is reserved for the bookkeeping of fsspeckit."""
    return name.startswith(".") and name.endswith(".fsspeckit")


class report_errors:  # noqa: N801 - used like a function, around each call of a filesystem, where a generator would cost more
    """Let every storage error leave with operation and path in its message."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation, self._path = operation, path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, _KEPT_ERRORS):
            # The traceback would show the secrets of the library's own message.
            raise self._renamed(error) from (error if scrub(str(error)) == str(error) else None)

    def _renamed(self, error: Exception) -> OSError:
        kept = (FileNotFoundError, FileExistsError, PermissionError)
        base: type[OSError] = next((kind for kind in kept if isinstance(error, kind)), StorageError)
        renamed = base(f"cannot {self._operation} {scrub(self._path)}: {self._reason(error)}")
        renamed.errno = getattr(error, "errno", None)
        return renamed

    def _reason(self, error: Exception) -> str:
        return scrub(getattr(error, "strerror", None) or str(error) or type(error).__name__)

"""All storages except local disks, through fsspec: object stores, ``memory://``, wrappers.

These storages have no rename and need no sync: publishing is a server-side copy, and a path is never reused. Every
call bypasses the listing caches, so that files of other writers are visible.
"""

# ruff: noqa: D102 - the base class documents the methods

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.common.errors import StorageError
from fsspeckit.common.text import scrub
from fsspeckit.core.storage.azure_requests import AzureRequests
from fsspeckit.core.storage.base import (
    FOLDER,
    JOURNAL_NAMES,
    OWNER,
    Entry,
    Handle,
    Storage,
    Tree,
    is_sidecar_name,
    join,
    parent,
)
from fsspeckit.core.storage.options import option_pairs, report_options
from fsspeckit.core.storage.refusals import statuses
from fsspeckit.core.storage.s3_requests import WHOLE_FILE, S3Requests

LEASE_SECONDS = 24 * 3600.0
"""A staging folder without a write for this time counts as abandoned. Correctness does not depend on it."""

_REMOTE_WORKERS = 16
_NO_CACHE = "use_listings_cache"
_MEMORY_RETRIES = 20
_CONFLICT_WAITS = (0.02, 0.05, 0.1, 0.2, 0.4, *(0.8,) * 9, None)
"""Seconds to wait after each answer that a conditional write conflicts with another request (409), about."""
_T = TypeVar("_T")
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "abfss", "oci", "oss", "memory"})

_logger = logging.getLogger(__name__)
_locks: dict[str, threading.RLock] = {}
_live: set[str] = set()
_registry = threading.Lock()


class _MemoryOwner:
    """Marks a staging folder in memory as alive. Only this process can access it."""

    def __init__(self, key: str) -> None:
        self._key = key
        with _registry:
            _live.add(key)

    def release(self) -> None:
        with _registry:
            _live.discard(self._key)


class _LeaseOwner:
    """A handle without state: the age of the files in the staging folder is the lease."""

    def release(self) -> None:
        return None


class _MemoryUpload:
    """A file that becomes visible when it is closed, as in an object store.

    The memory filesystem's own files fail if another thread asks for the size during a write.
    """

    def __init__(self, filesystem: AbstractFileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._parts: list[bytes] = []
        self._size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        return None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._filesystem.pipe_file(self._path, b"".join(self._parts))


class FsspecStorage(Storage):
    """One fsspec filesystem."""

    def __init__(self, filesystem: AbstractFileSystem) -> None:
        filesystem = _without_listing_cache(filesystem)
        self._fs = filesystem
        base = self._base = _unwrapped(filesystem)
        protocols = _protocols(base)
        self._options = tuple(pair for pair in option_pairs(base.storage_options) if pair[0] != _NO_CACHE)
        self._in_memory = isinstance(base, MemoryFileSystem)
        self.knows_owners = self._in_memory
        self._has_buckets = bool(protocols & _OBJECT_STORES) and not self._in_memory
        self._s3 = S3Requests(filesystem) if _takes_requests(filesystem, protocols) else None
        self._azure = AzureRequests(filesystem) if hasattr(filesystem, "service_client") else None
        self.has_folders = not protocols & _OBJECT_STORES
        self._creates_atomically = not self.has_folders
        self.workers = 1 if self._in_memory else _REMOTE_WORKERS
        self.is_shared = not self._in_memory

    def __repr__(self) -> str:
        return f"FsspecStorage({type(self._fs).__name__})"

    def __reduce__(self) -> tuple[Callable[[AbstractFileSystem], FsspecStorage], tuple[AbstractFileSystem], Any]:
        return FsspecStorage, (self._fs,), {"int96_local": self.int96_local}

    @property
    def client(self) -> str:
        kind = type(self._base)
        version = getattr(sys.modules.get(kind.__module__.partition(".")[0]), "__version__", "")
        server = "" if self._s3 is None else f" at {scrub(self._s3.endpoint())}"
        return f"{kind.__name__} {version}{server}"

    def _call(self, operation: str, path: str) -> report_options:
        return report_options(operation, path, self._options)

    def list_tree(self, root: str) -> Tree:
        with self._call("list", root):
            infos = self._walk(root) if self._s3 is None else self._find(self._s3, root)
        prefix = f"{root.rstrip('/')}/"
        journals = _journals(infos)
        files: list[Entry] = []
        folders: set[str] = set()
        sidecars: set[str] = set()
        for info in infos:
            path = str(info["name"]).removeprefix(prefix)
            parts = path.rstrip("/").split("/")
            is_file = info["type"] == "file" and not path.endswith("/")
            above = parts[:-1] if is_file else parts
            inside = ["/".join(above[: depth + 1]) for depth in range(len(above))]
            sidecar = next((folder for folder in inside if prefix + folder in journals), None)
            if sidecar is not None:
                sidecars.add(sidecar)
                continue
            folders.update(inside)
            if is_file:
                files.append(_entry(path, info))
        folders.discard("")
        files.sort(key=lambda entry: entry.path)
        return Tree(tuple(files), tuple(sorted(folders)), tuple(sorted(sidecars)))

    def _find(self, client: S3Requests, root: str) -> list[Mapping[str, Any]]:
        listed = client.list_all(root)
        infos = [info for info in listed if info["name"] != f"{root}/"]
        if not listed and client.stat(root) is None:
            raise FileNotFoundError(root)
        return infos

    def list_below(self, path: str) -> list[Entry] | None:
        if self._s3 is None:
            return None
        with self._call("list", path):
            infos = self._s3.list_page(path)
        prefix = f"{path.rstrip('/')}/"
        return None if infos is None else [_entry(str(info["name"]).removeprefix(prefix), info) for info in infos]

    def _walk(self, root: str) -> list[Mapping[str, Any]]:
        """List level by level. ``find`` and ``walk`` of fsspec ignore errors and can omit whole folders."""
        infos: list[Mapping[str, Any]] = []
        level = [root]
        with ThreadPoolExecutor(self.workers) as pool:
            while level:
                run = pool.map if len(level) > 1 and self.workers > 1 else map
                listed = [info for folder in run(self._ls_or_empty, level) for info in folder]
                if level == [root] and not listed:
                    self._ls(root)
                infos += listed
                journals = _journals(listed)
                folders = (str(info["name"]) for info in listed if info["type"] == "directory")
                level = [name for name in folders if parent(name.rstrip("/")) not in journals]
        return infos

    def _ls_or_empty(self, path: str) -> list[Mapping[str, Any]]:
        try:
            return self._ls(path)
        except FileNotFoundError:
            return []  # deleted after its parent was listed; the caller checks the root itself

    def _ls(self, path: str) -> list[Mapping[str, Any]]:
        with self._call("list", path):
            self._fs.invalidate_cache(path)
            listed: list[Mapping[str, Any]] = self._retry_in_memory(lambda: self._fs.ls(path, detail=True))
        stripped = path.strip("/")
        infos = [info for info in listed if str(info["name"]).strip("/") != stripped]
        if listed and not infos and listed[0]["type"] == "file" and not str(listed[0]["name"]).endswith("/"):
            raise StorageError(f"{path} is a file, but a folder is needed. Use the path of a folder.")
        for info in infos:
            if info.get("islink"):
                raise StorageError(
                    f"{info['name']} is a symbolic link, which not all readers follow. Replace it with the real file."
                )
        return infos

    def _retry_in_memory(self, call: Callable[[], _T]) -> _T:
        """Call again after a KeyError of the memory filesystem: it looks up a path twice and fails on a deletion."""
        for _ in range(_MEMORY_RETRIES if self._in_memory else 0):
            with suppress(KeyError):
                return call()
        return call()

    def list_dir(self, path: str) -> list[Entry]:
        with self._call("list", path):
            infos = self._ls_or_empty(path)
        entries = [_entry(str(info["name"]).rstrip("/").rpartition("/")[2], info) for info in infos]
        return sorted(entries, key=lambda entry: entry.path)

    def stat(self, path: str) -> Entry | None:
        with self._call("stat", path):
            self._fs.invalidate_cache(parent(path))
            try:
                return _entry(path, self._retry_in_memory(lambda: self._fs.info(path)))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def stat_file(self, path: str) -> Entry | None:
        if self._s3 is None:
            return self.stat(path)
        with self._call("stat", path):
            info = self._s3.stat(path)
        return None if info is None else _entry(path, info)

    def read_bytes(self, path: str) -> bytes:
        with self._call("read", path):
            if self._s3 is not None:
                return self._s3.read(path)
            self._fs.invalidate_cache(parent(path))
            return bytes(self._fs.cat_file(path))

    def read_tail(self, path: str, size: int) -> bytes:
        return self.read_tail_and_stat(path, size)[0]

    def read_tail_and_stat(self, path: str, size: int) -> tuple[bytes, Entry | None]:
        if self._s3 is not None:
            with self._call("read", path):
                data, info = self._s3.read_tail(path, size)
            return data, _entry(path, info)
        entry = self.stat_file(path)
        with self._call("read", path):
            if entry is None:
                raise FileNotFoundError(path)
            # A negative start is the offset itself for adlfs, and one more request for the size for the others.
            if self._in_memory or entry.size <= size:
                return bytes(self._fs.cat_file(path))[-size:], entry
            return bytes(self._fs.cat_file(path, start=entry.size - size, end=entry.size)), entry

    def create_exclusive(self, path: str, data: bytes) -> None:
        with self._call("create", path):
            if self._in_memory:
                with self.lock(parent(path)):
                    self._fs.pipe_file(path, data, mode="create")
                return
            for wait in _CONFLICT_WAITS:
                try:
                    self._fs.pipe_file(path, data, mode="create")
                    return
                except Exception as error:  # each client library has its own errors
                    if _is_precondition_failure(error):
                        raise FileExistsError(path) from error
                    if wait is None or 409 not in statuses(error):
                        raise
                    time.sleep(wait * (0.5 + random.random()))  # noqa: S311 - no secret

    def write_bytes(self, path: str, data: bytes) -> None:
        with self._call("write", path):
            self._fs.pipe_file(path, data)

    def open_input(self, path: str, size: int | None = None, stamp: str = "") -> pa.NativeFile:
        with self._call("open", path):
            if self._s3 is not None and size is not None:
                if size <= WHOLE_FILE:
                    return pa.BufferReader(self._s3.read(path, stamp=stamp))
                return pa.PythonFile(self._s3.open(path, size, stamp), mode="r")
            if self._in_memory:
                # Open files of the memory filesystem share one position, so two readers of a file interfere.
                return pa.BufferReader(self._fs.cat_file(path))
            self._fs.invalidate_cache(parent(path))
            return pa.PythonFile(self._fs.open(path, "rb"), mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        with self._call("create", path):
            file = _MemoryUpload(self._fs, path) if self._in_memory else self._fs.open(path, "wb")
            return pa.PythonFile(file, mode="w")

    def make_dirs(self, path: str) -> tuple[str, ...]:
        if self.has_folders:
            with self._call("create folder", path):
                self._fs.makedirs(path, exist_ok=True)
        return ()

    def publish(self, staged: str, path: str, size: int | None = None) -> bool:
        with self._call("publish", path):
            if self._s3 is not None and size is not None and (sent := self._s3.copy(staged, path, size)) is not None:
                return sent == 1
            if self._azure is not None:
                self._azure.copy(staged, path)
                return True
            self._fs.invalidate_cache(parent(staged))
            self._fs.cp_file(staged, path)
        return self._s3 is None

    def duplicate(self, path: str, other: str, size: int) -> None:
        self.publish(path, other, size)

    def retire(self, path: str, trash: str) -> None:  # noqa: ARG002 - a deletion is one call
        self.remove(path)

    def remove(self, path: str) -> None:
        with self._call("remove", path), suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def remove_many(self, paths: Iterable[str]) -> None:
        """Delete with the bulk request of S3, else in parallel. The bulk deletion of s3fs does not report failures."""
        listed = list(paths)
        if self._s3 is not None and listed:
            with self._call("remove", listed[0]):
                self._s3.delete(listed)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(self.remove, listed))

    def remove_tree(self, path: str) -> None:
        try:
            tree = self.list_tree(path)
        except FileNotFoundError:
            return
        self.remove_many([join(path, entry.path) for entry in tree.files])
        if self.has_folders:
            for folder in sorted(tree.folders, reverse=True):
                self.remove_dir_if_empty(join(path, folder))
            self.remove_dir_if_empty(path)

    def remove_dir_if_empty(self, path: str) -> bool:
        if not self.has_folders:
            return False
        with self._call("remove", path):
            try:
                if self._ls(path):
                    return False
                self._fs.rmdir(path)
            except OSError:
                return False
        return True

    def sync_files(self, paths: Iterable[str]) -> None:
        """Do nothing: a finished upload is durable."""

    def sync_dirs(self, paths: Iterable[str]) -> None:
        """Do nothing: there are no folders to sync."""

    @contextmanager
    def lock(self, path: str, *, shared: bool = False) -> Iterator[None]:  # noqa: ARG002
        """Lock within the process on a memory filesystem. Other filesystems have no lock; the journal is enough."""
        if not self._in_memory:
            yield
            return
        with self._memory_lock(path):
            yield

    def is_locked(self, path: str) -> bool:
        if not self._in_memory:
            return False
        lock = self._memory_lock(path)
        if lock.acquire(blocking=False):
            lock.release()
            return False
        return True

    def _memory_lock(self, path: str) -> threading.RLock:
        with _registry:
            return _locks.setdefault(self._key(path), threading.RLock())

    def claim_staging(self, folder: str) -> Handle:
        """Create the folder with its owner file, which is never written again: if it is missing, a fence deleted it."""
        if not self._creates_atomically:
            _logger.warning("%r has no atomic create: run only one writing process at a time", self)
        self.make_dirs(folder)
        self.write_bytes(join(folder, OWNER), b"alive")
        return _MemoryOwner(self._key(folder)) if self._in_memory else _LeaseOwner()

    def is_alive(self, folder: str) -> bool:
        if self._in_memory:
            with _registry:
                return self._key(folder) in _live
        newest = max((entry.modified for entry in self.list_dir(folder)), default=0.0)
        return time.time() - newest < LEASE_SECONDS

    def staging_exists(self, folder: str) -> bool:
        return self.stat_file(join(folder, OWNER)) is not None

    def check_publishable(self, staging: str, paths: Iterable[str]) -> None:  # noqa: ARG002
        for path in paths:
            if len(path.encode()) > 1024:
                raise StorageError(f"The path {path[:60]}... has more than 1024 bytes. Use shorter partition values.")

    def sidecar_parent(self, path: str) -> str | None:
        full = self._full(path).strip("/")
        return parent(path) if ("/" in full if self._has_buckets else full) else None

    def canonical(self, path: str) -> str:
        return path

    def url(self, path: str) -> str:
        container, _, rest = self._full(path).lstrip("/").partition("/")
        account = getattr(self._base, "account_name", None)
        if account and "abfs" in _protocols(self._base):
            return f"abfss://{container}@{account}.dfs.core.windows.net/{rest}"
        return str(self._base.unstrip_protocol(self._full(path)))

    def _full(self, path: str) -> str:
        """Return the path in the innermost filesystem, below all `DirFileSystem` wrappers."""
        base = self._fs
        while isinstance(base, DirFileSystem):
            path, base = base._join(path), base.fs
        return str(base._strip_protocol(path))

    def _key(self, path: str) -> str:
        return f"{id(self._base.store)}:{self._full(path)}"


def _journals(infos: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the folders with the name and the content of a sidecar."""
    journals = set()
    for info in infos:
        path = str(info["name"])
        parts = path.split("/")
        for depth in range(1, len(parts)) if ".fsspeckit/" in path else ():
            if is_sidecar_name(parts[depth - 1]) and parts[depth] in JOURNAL_NAMES:
                journals.add("/".join(parts[:depth]))
    return journals


def _unwrapped(filesystem: AbstractFileSystem) -> AbstractFileSystem:
    while isinstance(filesystem, DirFileSystem):
        filesystem = filesystem.fs
    return filesystem


def _without_listing_cache(filesystem: AbstractFileSystem) -> AbstractFileSystem:
    """Return a copy of a cloud filesystem without a listing cache. The caller's filesystem is not changed.

    Invalidating the cache before each call is not enough: another thread can fill it with an older listing, and a file
    that another writer just created then seems to be missing.
    """
    if isinstance(filesystem, DirFileSystem):
        inner = _without_listing_cache(filesystem.fs)
        return filesystem if inner is filesystem.fs else DirFileSystem(path=filesystem.path, fs=inner)
    caches = getattr(getattr(filesystem, "dircache", None), _NO_CACHE, False)
    if not caches or isinstance(filesystem, MemoryFileSystem) or not _protocols(filesystem) & _OBJECT_STORES:
        return filesystem
    options = {**filesystem.storage_options, _NO_CACHE: False}
    return type(filesystem)(*filesystem.storage_args, **options)


def _takes_requests(filesystem: AbstractFileSystem, protocols: set[str]) -> bool:
    """Return whether single requests can be sent: s3fs, without a wrapper, for the newest versions of files."""
    return "s3" in protocols and hasattr(filesystem, "call_s3") and not getattr(filesystem, "version_aware", False)


def _protocols(filesystem: AbstractFileSystem) -> set[str]:
    protocol = filesystem.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)


def _entry(path: str, info: Mapping[str, Any]) -> Entry:
    if info["type"] == "directory" or str(info["name"]).endswith("/"):
        return Entry(path, FOLDER, "")
    size, modified = int(info["size"]), _modified(info)
    tag = info.get("ETag") or info.get("etag") or info.get("generation")
    return Entry(path, size, str(tag) if tag else f"{size}:{modified!r}", modified)


def _modified(info: Mapping[str, Any]) -> float:
    """Return the time of the last change in seconds since the epoch, or 0.0 if the filesystem does not report it."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
        value = info.get(name)
        if isinstance(value, str):
            with suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
    return 0.0


def _is_precondition_failure(error: BaseException) -> bool:
    """Return whether the path exists already. Only the status 412 says so: 409 is a conflict with another request."""
    return 412 in statuses(error) or type(error).__name__ in {"ResourceExistsError", "FileExistsError"}

"""Everything that is not a local disk, through fsspec: object stores, ``memory://``, wrappers.

There is no rename and nothing to sync here: publishing is a server-side copy, and a name is never used twice. Listing
caches are bypassed on every call, since other writers' files must be seen.
"""

# ruff: noqa: D102 - the methods are described once, in the base class

from __future__ import annotations

import logging
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
from fsspeckit.core.storage.base import FOLDER, OWNER, Entry, Handle, Storage, Tree, is_sidecar_name, join, parent
from fsspeckit.core.storage.options import option_pairs, report_options

LEASE_SECONDS = 24 * 3600.0
"""A staging folder in which nothing was written for so long counts as abandoned. Only liveness hangs on it."""

_REMOTE_WORKERS = 16
_NO_CACHE = "use_listings_cache"
_LOOKS = 20
_T = TypeVar("_T")
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "abfss", "oci", "oss", "memory"})

_logger = logging.getLogger(__name__)
_locks: dict[str, threading.RLock] = {}
_live: set[str] = set()
_registry = threading.Lock()


class _MemoryHold:
    """Liveness inside this process, which is the only one that can see its memory."""

    def __init__(self, key: str) -> None:
        self._key = key
        with _registry:
            _live.add(key)

    def release(self) -> None:
        with _registry:
            _live.discard(self._key)


class _LeaseHold:
    """Nothing to give up: the age of the files in the folder is the lease."""

    def release(self) -> None:
        return None


class _MemoryUpload:
    """A file that appears whole when it is closed, as in an object store.

    A file of the memory filesystem itself cannot be written while another thread asks for its size.
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
        base = filesystem
        while isinstance(base, DirFileSystem):
            base = base.fs
        protocols = _protocols(base)
        self._options = tuple(pair for pair in option_pairs(base.storage_options) if pair[0] != _NO_CACHE)
        self._in_memory = isinstance(base, MemoryFileSystem)
        self._has_buckets = bool(protocols & _OBJECT_STORES) and not self._in_memory
        self._flat_listing = "s3" in protocols and base is filesystem
        self.has_folders = not protocols & _OBJECT_STORES
        self._creates_atomically = not self.has_folders
        self.workers = 1 if self._in_memory else _REMOTE_WORKERS
        self.is_shared = not self._in_memory

    def __repr__(self) -> str:
        return f"FsspecStorage({type(self._fs).__name__})"

    def __reduce__(self) -> tuple[Callable[[AbstractFileSystem], FsspecStorage], tuple[AbstractFileSystem]]:
        return FsspecStorage, (self._fs,)

    def _call(self, operation: str, path: str) -> report_options:
        return report_options(operation, path, self._options)

    def list_tree(self, root: str) -> Tree:
        with self._call("list", root):
            infos = self._find(root) if self._flat_listing else self._walk(root)
        prefix = f"{root.rstrip('/')}/"
        files: list[Entry] = []
        folders: set[str] = set()
        sidecars: set[str] = set()
        for info in infos:
            path = str(info["name"]).removeprefix(prefix)
            parts = path.rstrip("/").split("/")
            is_file = info["type"] == "file" and not path.endswith("/")
            holders = parts[:-1] if is_file else parts
            sidecar = next((depth for depth, part in enumerate(holders) if is_sidecar_name(part)), None)
            if sidecar is not None:
                sidecars.add("/".join(holders[: sidecar + 1]))
                continue
            folders.update("/".join(holders[: depth + 1]) for depth in range(len(holders)))
            if is_file:
                files.append(_entry(path, info))
        folders.discard("")
        files.sort(key=lambda entry: entry.path)
        return Tree(tuple(files), tuple(sorted(folders)), tuple(sorted(sidecars)))

    def _find(self, root: str) -> list[Mapping[str, Any]]:
        """One flat listing, a thousand names to a round trip; only where ``find`` is known to raise on trouble."""
        self._fs.invalidate_cache()  # of a path, it would leave older listings of the folders below it
        found: dict[str, Mapping[str, Any]] = self._fs.find(root, detail=True)
        infos = [info for name, info in found.items() if name != root]
        if not infos and root not in found:
            raise FileNotFoundError(root)
        return infos

    def _walk(self, root: str) -> list[Mapping[str, Any]]:
        """Folder by folder, level by level; ``find`` and ``walk`` of fsspec swallow errors and lose whole folders."""
        infos: list[Mapping[str, Any]] = []
        level = [root]
        with ThreadPoolExecutor(self.workers) as pool:
            while level:
                run = pool.map if len(level) > 1 and self.workers > 1 else map
                found = [info for infos_of_folder in run(self._ls_or_gone, level) for info in infos_of_folder]
                if level == [root] and not found:
                    self._ls(root)
                infos += found
                folders = (str(info["name"]) for info in found if info["type"] == "directory")
                level = [name for name in folders if not is_sidecar_name(name.rstrip("/").rpartition("/")[2])]
        return infos

    def _ls_or_gone(self, path: str) -> list[Mapping[str, Any]]:
        try:
            return self._ls(path)
        except FileNotFoundError:
            return []  # went between its parent's listing and ours; the caller checks the root itself

    def _ls(self, path: str) -> list[Mapping[str, Any]]:
        with self._call("list", path):
            self._fs.invalidate_cache(path)
            found: list[Mapping[str, Any]] = self._steadily(lambda: self._fs.ls(path, detail=True))
        stripped = path.strip("/")
        infos = [info for info in found if str(info["name"]).strip("/") != stripped]
        if found and not infos and found[0]["type"] == "file" and not str(found[0]["name"]).endswith("/"):
            raise StorageError(f"{path} is a file where a folder is expected")
        for info in infos:
            if info.get("islink"):
                raise StorageError(
                    f"{info['name']} is a symbolic link: readers disagree about those. Replace it with the real file."
                )
        return infos

    def _steadily(self, look: Callable[[], _T]) -> _T:
        """The memory filesystem looks a name up twice: a file deleted in between is a KeyError, and we look again."""
        for _ in range(_LOOKS if self._in_memory else 0):
            with suppress(KeyError):
                return look()
        return look()

    def list_dir(self, path: str) -> list[Entry]:
        with self._call("list", path):
            infos = self._ls_or_gone(path)
        entries = [_entry(str(info["name"]).rstrip("/").rpartition("/")[2], info) for info in infos]
        return sorted(entries, key=lambda entry: entry.path)

    def stat(self, path: str) -> Entry | None:
        with self._call("stat", path):
            self._fs.invalidate_cache(parent(path))
            try:
                return _entry(path, self._steadily(lambda: self._fs.info(path)))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_bytes(self, path: str) -> bytes:
        with self._call("read", path):
            self._fs.invalidate_cache(parent(path))
            return bytes(self._fs.cat_file(path))

    def read_tail(self, path: str, size: int) -> bytes:
        with self._call("read", path):
            if self._in_memory:
                return bytes(self._fs.cat_file(path))[-size:]
            self._fs.invalidate_cache(parent(path))
            return bytes(self._fs.cat_file(path, start=-size))

    def read_into(self, path: str, room: memoryview) -> Entry | None:
        with self._call("read", path):
            found = self._fs.cat_file(path, end=len(room))
        if len(found) < len(room):
            raise StorageError(f"{path} ends {len(room) - len(found)} bytes too early")
        room[:] = found[: len(room)]
        return None

    def create_exclusive(self, path: str, data: bytes) -> None:
        with self._call("create", path):
            if self._in_memory:
                with self.lock(parent(path)):
                    self._fs.pipe_file(path, data, mode="create")
                return
            try:
                self._fs.pipe_file(path, data, mode="create")
            except OSError as error:
                if _is_precondition_failure(error):
                    raise FileExistsError(path) from error
                raise

    def write_bytes(self, path: str, data: bytes) -> None:
        with self._call("write", path):
            self._fs.pipe_file(path, data)

    def open_input(self, path: str) -> pa.NativeFile:
        with self._call("open", path):
            if self._in_memory:
                # Its open files share one position, so two readers of a file would disturb each other.
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

    def publish(self, staged: str, path: str) -> None:
        with self._call("publish", path):
            self._fs.invalidate_cache(parent(staged))
            self._fs.cp_file(staged, path)

    def retire(self, path: str, trash: str) -> None:  # noqa: ARG002 - nothing is parked where deleting is one call
        self.remove(path)

    def remove(self, path: str) -> None:
        with self._call("remove", path), suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def remove_tree(self, path: str) -> None:
        """Delete file by file: bulk deletion of s3fs does not report the keys it failed to delete."""
        try:
            tree = self.list_tree(path)
        except FileNotFoundError:
            return
        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(self.remove, [join(path, entry.path) for entry in tree.files]))
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
        """A finished upload is durable."""

    def sync_dirs(self, paths: Iterable[str]) -> None:
        """There are no folders to sync."""

    @contextmanager
    def lock(self, path: str, *, shared: bool = False) -> Iterator[None]:  # noqa: ARG002
        """One process owns a memory filesystem, so a lock of that process is enough; elsewhere the journal decides."""
        if not self._in_memory:
            yield
            return
        key = self._key(path)
        with _registry:
            lock = _locks.setdefault(key, threading.RLock())
        with lock:
            yield

    def claim_staging(self, folder: str) -> Handle:
        """The owner file is written once and never again: where it is missing, the folder was fenced and deleted."""
        if not self._creates_atomically:
            _logger.warning("%r has no atomic create: let only one process write at a time", self)
        self.make_dirs(folder)
        self.write_bytes(join(folder, OWNER), b"alive")
        return _MemoryHold(self._key(folder)) if self._in_memory else _LeaseHold()

    def is_alive(self, folder: str) -> bool:
        if self._in_memory:
            with _registry:
                return self._key(folder) in _live
        newest = max((entry.modified for entry in self.list_dir(folder)), default=0.0)
        return time.time() - newest < LEASE_SECONDS

    def staging_exists(self, folder: str) -> bool:
        return self.stat(join(folder, OWNER)) is not None

    def check_publishable(self, staging: str, paths: Iterable[str]) -> None:  # noqa: ARG002
        for path in paths:
            if len(path.encode()) > 1024:
                raise StorageError(f"{path[:60]}... has more than 1024 bytes. Use shorter partition values.")

    def sidecar_parent(self, path: str) -> str | None:
        full = self._full(path).strip("/")
        return parent(path) if ("/" in full if self._has_buckets else full) else None

    def canonical(self, path: str) -> str:
        return path

    def url(self, path: str) -> str:
        base = self._fs
        while isinstance(base, DirFileSystem):
            base = base.fs
        container, _, rest = self._full(path).lstrip("/").partition("/")
        account = getattr(base, "account_name", None)
        if account and "abfs" in _protocols(base):
            return f"abfss://{container}@{account}.dfs.core.windows.net/{rest}"
        return str(base.unstrip_protocol(self._full(path)))

    def _full(self, path: str) -> str:
        """The path in the filesystem below all folder wrappers."""
        base = self._fs
        while isinstance(base, DirFileSystem):
            path, base = base._join(path), base.fs
        return str(base._strip_protocol(path))

    def _key(self, path: str) -> str:
        base = self._fs
        while isinstance(base, DirFileSystem):
            base = base.fs
        return f"{id(base.store)}:{self._full(path)}"


def _without_listing_cache(filesystem: AbstractFileSystem) -> AbstractFileSystem:
    """A twin of a cloud filesystem that remembers no listings.

    Invalidating before each call is not enough: a thread that lists at that moment fills the cache again, and reading a
    file that another writer just created then fails as if it were missing. The caller's own filesystem stays as it is.
    """
    if isinstance(filesystem, DirFileSystem):
        inner = _without_listing_cache(filesystem.fs)
        return filesystem if inner is filesystem.fs else DirFileSystem(path=filesystem.path, fs=inner)
    caches = getattr(getattr(filesystem, "dircache", None), _NO_CACHE, False)
    if not caches or isinstance(filesystem, MemoryFileSystem) or not _protocols(filesystem) & _OBJECT_STORES:
        return filesystem
    options = {**filesystem.storage_options, _NO_CACHE: False}
    return type(filesystem)(*filesystem.storage_args, **options)


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
    """Seconds since the epoch from whatever the filesystem calls it; 0.0 where it tells nothing."""
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


def _is_precondition_failure(error: BaseException | None) -> bool:
    """Stores and client versions report a taken name in different ways; the HTTP answer is the same."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, Mapping):
            meta = response.get("ResponseMetadata")
            return isinstance(meta, Mapping) and meta.get("HTTPStatusCode") == 412
        if type(error).__name__ in {"ResourceExistsError", "FileExistsError"} or getattr(error, "code", None) == 412:
            return True
        error = error.__cause__
    return False

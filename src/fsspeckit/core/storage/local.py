"""Local POSIX filesystems through the ``os`` module, with atomic rename, fsync and flock.

fsspec's local filesystem is not used: it copies across devices, never syncs, and its exclusive create is not atomic.
"""

# ruff: noqa: D102 - the base class documents the methods

from __future__ import annotations

import fcntl
import os
import stat as stat_module
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pyarrow as pa

from fsspeckit.common.errors import StorageError
from fsspeckit.core.storage.base import (
    FOLDER,
    OWNER,
    Entry,
    Handle,
    Storage,
    Tree,
    is_sidecar_name,
    join,
    parent,
    report_errors,
)

_DISK_THREADS = 8
_NO_FOLLOW = os.O_CLOEXEC | os.O_NOFOLLOW


class _OwnerLock:
    """An flock on the owner file of a staging folder. The kernel releases it when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalStorage(Storage):
    """Files of this machine."""

    is_local = True
    in_place = True

    def __repr__(self) -> str:
        return "LocalStorage()"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def list_tree(self, root: str) -> Tree:
        files: list[Entry] = []
        folders: list[str] = []
        sidecars: list[str] = []
        with report_errors("list", root):
            os.stat(root)
        pending = [""]
        while pending:
            folder = pending.pop()
            with report_errors("list", join(root, folder)):
                try:
                    subfolders = _scan(join(root, folder), f"{folder}/" if folder else "", files, sidecars)
                except FileNotFoundError:
                    if not folder:
                        raise
                    continue  # another process deleted the folder after its parent was listed
            folders += subfolders
            pending += subfolders
        files.sort(key=_by_path)
        return Tree(tuple(files), tuple(sorted(folders)), tuple(sorted(sidecars)))

    def list_dir(self, path: str) -> list[Entry]:
        with report_errors("list", path):
            try:
                with os.scandir(path) as items:
                    entries = [_entry(item.name, _lstat(item)) for item in items]
            except FileNotFoundError:
                return []
        return sorted((entry for entry in entries if entry is not None), key=_by_path)

    def list_names(self, path: str) -> list[str]:
        with report_errors("list", path):
            try:
                with os.scandir(path) as scanned:
                    items = list(scanned)
            except FileNotFoundError:
                return []
            for item in items:
                if item.is_symlink():
                    raise _link_error(item.path)
        return sorted(item.name for item in items)

    def refuse_links(self, folder: str, below: Iterable[str] = ()) -> None:
        names = {"", *below}
        names |= {above for name in names for above in _parent_folders(name)}
        with report_errors("stat", folder):
            for path in sorted(join(folder, name) for name in names):
                if os.path.islink(path):
                    raise _link_error(path)

    def stat(self, path: str) -> Entry | None:
        with report_errors("stat", path):
            try:
                return _entry(path, os.stat(path))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_bytes(self, path: str) -> bytes:
        with report_errors("read", path), open(path, "rb") as file:
            return file.read()

    def read_tail(self, path: str, size: int) -> bytes:
        with report_errors("read", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size))
            finally:
                os.close(descriptor)

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Link a complete and synced temporary file to the path, so that no reader sees a partial file."""
        temporary = join(parent(path), f".{uuid.uuid4().hex}.tmp")
        with report_errors("create", path):
            try:
                self._write(temporary, data, sync=True)
                os.link(temporary, path)
            finally:
                with suppress(OSError):
                    os.unlink(temporary)
        self.sync_dirs([parent(path)])

    def write_bytes(self, path: str, data: bytes) -> None:
        with report_errors("write", path):
            self._write(path, data, sync=False)

    @staticmethod
    def _write(path: str, data: bytes, *, sync: bool) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_FOLLOW, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open_input(self, path: str) -> pa.NativeFile:
        with report_errors("open", path):
            return pa.OSFile(path, "rb")

    def open_output(self, path: str) -> pa.NativeFile:
        with report_errors("create", path):
            return pa.OSFile(path, "wb")

    def make_dirs(self, path: str) -> tuple[str, ...]:
        with report_errors("create folder", path):
            missing: list[str] = []
            folder = path
            while not os.path.isdir(folder):
                missing.insert(0, folder)
                folder = parent(folder)
            for folder in missing:
                with suppress(FileExistsError):
                    os.mkdir(folder)
        return tuple(missing)

    def publish(self, staged: str, path: str) -> None:
        with report_errors("publish", path):
            os.rename(staged, path)

    def retire(self, path: str, trash: str) -> None:
        with report_errors("retire", path):
            try:
                os.rename(path, trash)
            except FileNotFoundError:
                if os.path.lexists(path):
                    raise  # the file exists, so the folder of ``trash`` is missing

    def remove(self, path: str) -> None:
        with report_errors("remove", path), suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with report_errors("remove", path), suppress(FileNotFoundError):
            _remove_tree(path)

    def remove_dir_if_empty(self, path: str) -> bool:
        try:
            os.rmdir(path)
        except OSError:
            return False  # not empty, missing, or no permission: a remaining empty folder is harmless
        return True

    def sync_files(self, paths: Iterable[str]) -> None:
        _sync_all(paths)

    def sync_dirs(self, paths: Iterable[str]) -> None:
        _sync_all(paths)

    @contextmanager
    def lock(self, path: str, *, shared: bool = False) -> Iterator[None]:
        mode = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        with report_errors("lock", path):
            descriptor = os.open(path, mode | _NO_FOLLOW, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(descriptor)

    def claim_staging(self, folder: str) -> Handle:
        with report_errors("create folder", folder):
            os.mkdir(folder)
            descriptor = os.open(join(folder, OWNER), os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _OwnerLock(descriptor)

    def is_alive(self, folder: str) -> bool:
        with report_errors("open", folder):
            try:
                descriptor = os.open(join(folder, OWNER), os.O_RDWR | _NO_FOLLOW)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
        return False

    def staging_exists(self, folder: str) -> bool:
        return self.stat(join(folder, OWNER)) is not None

    def check_publishable(self, staging: str, paths: Iterable[str]) -> None:
        with report_errors("stat", staging):
            device = os.stat(staging).st_dev
        checked: set[str] = set()
        for path in paths:
            folder, missing = parent(path), [path]
            while folder not in checked and not os.path.isdir(folder):
                if os.path.lexists(folder):
                    raise StorageError(
                        f"{folder} is a file, but a folder is needed. Nothing was changed. Move the file."
                    )
                missing.append(folder)
                folder = parent(folder)
            if folder not in checked:
                _check_folder(folder, device)
                checked.add(folder)
            for part in missing:
                _check_length(folder, part)

    def sidecar_parent(self, path: str) -> str | None:
        folder = parent(path)
        if folder == path:
            return None
        with report_errors("stat", path):
            mounted = os.path.isdir(path) and os.stat(path).st_dev != os.stat(folder).st_dev
        return None if mounted else folder

    def canonical(self, path: str) -> str:
        return os.path.realpath(path)

    def url(self, path: str) -> str:
        return f"file://{path}"


def _scan(folder: str, prefix: str, files: list[Entry], sidecars: list[str]) -> list[str]:
    """Append the files and sidecars of one folder and return the names of its other subfolders."""
    folders: list[str] = []
    with os.scandir(folder) as items:
        for item in items:
            if item.is_symlink():
                raise _link_error(f"{folder}/{item.name}")
            if item.is_dir(follow_symlinks=False):
                (sidecars if is_sidecar_name(item.name) else folders).append(prefix + item.name)
                continue
            info = _lstat(item)
            if info is not None:
                files.append(Entry(prefix + item.name, info.st_size, _stamp(info), info.st_mtime, info.st_ctime_ns))
    return folders


def _parent_folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _link_error(path: str) -> StorageError:
    return StorageError(
        f"{path} is a symbolic link. Readers treat links differently, and a link can lead out of the dataset. "
        "Replace it with the real file or folder."
    )


def _remove_tree(folder: str) -> None:
    """Delete depth first. Files that another process deletes at the same time are not an error."""
    if os.path.islink(folder):
        os.unlink(folder)
        return
    with os.scandir(folder) as scanned:
        items = list(scanned)
    files = []
    for item in items:
        if item.is_dir(follow_symlinks=False):
            with suppress(FileNotFoundError):
                _remove_tree(item.path)
        else:
            files.append(item.path)
    _run_in_threads(_unlink, files)
    os.rmdir(folder)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _lstat(item: os.DirEntry[str]) -> os.stat_result | None:
    """Return the attributes of a listed file, or None if it was deleted after the listing."""
    try:
        return item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _entry(path: str, info: os.stat_result | None) -> Entry | None:
    if info is None:
        return None
    size = FOLDER if stat_module.S_ISDIR(info.st_mode) else info.st_size
    return Entry(path, size, _stamp(info), info.st_mtime, info.st_ctime_ns)


def _stamp(info: os.stat_result) -> str:
    """Return a stamp that changes with the file: a rewrite changes the inode, a change in place changes the time."""
    return f"{info.st_mtime_ns}:{info.st_ino}"


def _by_path(entry: Entry) -> str:
    return entry.path


def _sync_all(paths: Iterable[str]) -> None:
    _run_in_threads(_sync, list(dict.fromkeys(paths)))


def _run_in_threads(function: Callable[[str], None], paths: Sequence[str]) -> None:
    """Call a function for every path in parallel. The disk combines requests: 20 files take little longer than one."""

    def run(share: Sequence[str]) -> None:
        for path in share:
            function(path)

    if len(paths) < 2:
        run(paths)
        return
    shares = [paths[first::_DISK_THREADS] for first in range(min(_DISK_THREADS, len(paths)))]
    with ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(run, shares))


def _sync(path: str) -> None:
    with report_errors("sync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_folder(folder: str, device: int) -> None:
    """Raise if a file cannot be renamed into this folder. After the commit, the rename must not fail."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"Cannot write to {folder}: permission denied. Nothing was changed. Grant write access.")
    if os.stat(folder).st_dev != device:
        raise StorageError(
            f"{folder} is on another device than the staging folder of the dataset, so files cannot be moved there "
            "atomically. Nothing was changed. Keep the dataset on one device."
        )


def _check_length(folder: str, path: str) -> None:
    name = os.fsencode(path.rpartition("/")[2])
    limit = os.pathconf(folder, "PC_NAME_MAX")
    if len(name) > limit:
        raise StorageError(
            f"The name {path.rpartition('/')[2][:60]}... has {len(name)} bytes, but {folder} allows {limit}. "
            "Nothing was changed. Use a shorter partition value or file name."
        )


def local_path(path: str) -> str:
    """Return a path or file URL as an absolute path."""
    return os.path.abspath(os.path.expanduser(path.removeprefix("file://").removeprefix("local://")))

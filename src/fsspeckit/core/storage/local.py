"""Local POSIX filesystems through the ``os`` module, with atomic rename, fsync and flock.

fsspec's local filesystem is not used: it copies across devices, never syncs, and its exclusive create is not atomic.
"""

# ruff: noqa: D102 - the base class documents the methods

from __future__ import annotations

import fcntl
import os
import stat as stat_module
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import pyarrow as pa

from fsspeckit.common.errors import StorageError
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
    report_errors,
)
from fsspeckit.core.storage.disk import check_folder, check_length, copy_file, remove_tree, sync_all, temporary_name
from fsspeckit.core.storage.folders import (
    CAN_EXCHANGE,
    NEW,
    SAFE,
    as_arrow_file,
    copy_attributes,
    exchange_names,
    link_error,
    make_folders,
    open_folder,
    open_in_folder,
    open_parent,
    open_to_read,
)

_DIGITS_OF_TIME = 20
_LARGEST_SMALL_FILE = 128 * 2**20


class _OwnerLock:
    """An flock on the owner file of a staging folder. The kernel releases it when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            _unlock(self._descriptor)
            self._descriptor = -1


class LocalStorage(Storage):
    """Files of this machine."""

    is_local = True
    in_place = True
    can_exchange = CAN_EXCHANGE

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
                    raise link_error(item.path)
        return sorted(item.name for item in items)

    def refuse_links(self, folder: str, below: Iterable[str] = ()) -> None:
        names = {"", *below}
        names |= {above for name in names for above in _parent_folders(name)}
        with report_errors("stat", folder):
            for path in sorted(join(folder, name) for name in names):
                if os.path.islink(path):
                    raise link_error(path)

    def stat(self, path: str) -> Entry | None:
        with report_errors("stat", path):
            try:
                return _entry(path, os.stat(path))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def time_in(self, stamp: str) -> float:
        nanoseconds = stamp.partition(":")[0]
        is_time = nanoseconds.isascii() and nanoseconds.isdecimal() and len(nanoseconds) < _DIGITS_OF_TIME
        return int(nanoseconds) / 1e9 if is_time else 0.0

    def read_bytes(self, path: str) -> bytes:
        with report_errors("read", path), open(open_to_read(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_SMALL_FILE:
                raise StorageError(
                    f"{path} has {size:,} bytes, more than the limit of {_LARGEST_SMALL_FILE:,}. "
                    "Delete the file if fsspeckit did not write it."
                )
            return file.read()

    def read_tail(self, path: str, size: int) -> bytes:
        with report_errors("read", path):
            descriptor = open_to_read(path)
            try:
                return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size))
            finally:
                os.close(descriptor)

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Link a complete and synced temporary file to the path, so that no reader sees a partial file."""
        with report_errors("create", path), open_parent(path) as (folder, name):
            temporary = temporary_name()
            try:
                self._write(folder, temporary, data, sync=True)
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
        self.sync_dirs([parent(path)])

    def write_bytes(self, path: str, data: bytes) -> None:
        with report_errors("write", path), open_parent(path) as (folder, name):
            temporary = temporary_name()
            try:
                self._write(folder, temporary, data, sync=False)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    @staticmethod
    def _write(folder: int, name: str, data: bytes, *, sync: bool) -> None:
        descriptor = os.open(name, NEW, 0o666, dir_fd=folder)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open_input(self, path: str, size: int | None = None, stamp: str = "") -> pa.NativeFile:  # noqa: ARG002
        with report_errors("open", path):
            return as_arrow_file(open_to_read(path), "rb")

    def open_output(self, path: str) -> pa.NativeFile:
        with report_errors("create", path), open_parent(path) as (folder, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)  # of an attempt that failed
            return as_arrow_file(os.open(name, NEW, 0o666, dir_fd=folder), "wb")

    def make_dirs(self, path: str) -> tuple[str, ...]:
        with report_errors("create folder", path):
            return make_folders(path)

    def publish(self, staged: str, path: str, size: int | None = None) -> bool:  # noqa: ARG002
        with report_errors("publish", path), open_parent(staged) as (source, old), open_parent(path) as (target, new):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
        return True

    def duplicate(self, path: str, other: str, size: int) -> None:  # noqa: ARG002
        with report_errors("link", path), open_parent(path) as (source, old), open_parent(other) as (target, new):
            with suppress(FileNotFoundError):
                if os.path.samefile(path, other):
                    return
                os.unlink(new, dir_fd=target)
            try:
                os.link(old, new, src_dir_fd=source, dst_dir_fd=target)
            except PermissionError:  # Linux refuses links to files of other users that this one may not write
                copy_file(path, target, new)

    def retire(self, path: str, trash: str) -> None:
        with report_errors("retire", path):
            try:
                with open_parent(path) as (source, old), open_parent(trash) as (target, new):
                    os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
            except FileNotFoundError:
                if os.path.lexists(path):
                    raise  # the file exists, so the folder of ``trash`` is missing

    def move_many(self, moves: Sequence[tuple[str, str]]) -> None:
        with report_errors("move", moves[0][0] if moves else ""), ExitStack() as opened:
            folders: dict[str, int] = {}
            for folder in sorted({parent(path) for move in moves for path in move}):
                folders[folder] = opened.enter_context(open_folder(folder))
            steps = [(*_split(folders, old), *_split(folders, new)) for old, new in moves]
            for source, old, target, new in steps:
                os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)

    def link(self, path: str, target: str) -> None:
        with report_errors("link", target), open_parent(path) as (source, old), open_parent(target) as (folder, new):
            os.link(old, new, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    def copy_folder(self, path: str, target: str) -> None:
        with report_errors("create folder", target):
            with open_parent(target) as (folder, name):
                os.mkdir(name, dir_fd=folder)
            if os.path.isdir(path):
                copy_attributes(path, target)

    def exchange(self, path: str, other: str) -> None:
        with report_errors("exchange", path), open_parent(path) as (one, name), open_parent(other) as (two, twin):
            exchange_names(one, name, two, twin)

    def remove(self, path: str) -> None:
        with report_errors("remove", path), suppress(FileNotFoundError), open_parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_tree(self, path: str) -> None:
        with report_errors("remove", path), suppress(FileNotFoundError), open_parent(path) as (folder, name):
            remove_tree(folder, name)

    def remove_dir_if_empty(self, path: str) -> bool:
        try:
            with open_parent(path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return False  # not empty, missing, or no permission: a remaining empty folder is harmless
        return True

    def sync_files(self, paths: Iterable[str]) -> None:
        sync_all(paths)

    def sync_dirs(self, paths: Iterable[str]) -> None:
        sync_all(paths)

    @contextmanager
    def lock(self, path: str, *, shared: bool = False) -> Iterator[None]:
        mode = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        with report_errors("lock", path):
            descriptor = open_in_folder(path, mode | SAFE)
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        try:
            yield
        finally:
            _unlock(descriptor)

    def is_locked(self, path: str) -> bool:
        with report_errors("open", path):
            return _has_lock(path)

    def claim_staging(self, folder: str) -> Handle:
        with report_errors("create folder", folder):
            with open_parent(folder) as (above, name):
                os.mkdir(name, dir_fd=above)
            descriptor = open_in_folder(join(folder, OWNER), NEW)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _OwnerLock(descriptor)

    def is_alive(self, folder: str) -> bool:
        with report_errors("open", folder):
            return _has_lock(join(folder, OWNER))

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
                check_folder(folder, device)
                checked.add(folder)
            for part in missing:
                check_length(folder, part)

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
                raise link_error(f"{folder}/{item.name}")
            if item.is_dir(follow_symlinks=False):
                is_sidecar = is_sidecar_name(item.name) and _is_journal(f"{folder}/{item.name}")
                (sidecars if is_sidecar else folders).append(prefix + item.name)
                continue
            info = _lstat(item)
            if info is not None:
                files.append(Entry(prefix + item.name, info.st_size, _stamp(info), info.st_mtime, info.st_ctime_ns))
    return folders


def _is_journal(folder: str) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in JOURNAL_NAMES)


def _parent_folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _split(folders: Mapping[str, int], path: str) -> tuple[int, str]:
    """Return the descriptor of the folder of a path, and the name in it."""
    folder, _, name = path.rpartition("/")
    return folders[folder], name


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


def local_path(path: str) -> str:
    """Return a path or file URL as an absolute path."""
    return os.path.abspath(os.path.expanduser(path.removeprefix("file://").removeprefix("local://")))


def _has_lock(path: str) -> bool:
    """Return whether a process holds the flock of a file. A missing file has none."""
    try:
        descriptor = open_in_folder(path, os.O_RDWR | SAFE)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        _unlock(descriptor)
    return False


def _unlock(descriptor: int) -> None:
    """Release a lock. To close the file is not enough: a process that was forked meanwhile has it open too."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)

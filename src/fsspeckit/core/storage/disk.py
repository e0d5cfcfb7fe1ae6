"""Calls on local files and folders that are durable, or that run in parallel."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache, partial

from fsspeckit.common.errors import StorageError, StoragePermissionError
from fsspeckit.core.storage.base import report_errors
from fsspeckit.core.storage.folders import NEW, SAFE, open_to_read

_THREADS = 8
_COPIED_BYTES = 2**20
_FEW_FILES = 16
"""So many files are removed faster by one thread."""


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads of this process. To start them for each call would take longer than most calls."""
    return ThreadPoolExecutor(_THREADS, "fsspeckit-disk")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not exist in the child


def sync_all(paths: Iterable[str]) -> None:
    """Make files or folders durable. The disk combines requests: 20 files take little longer than one."""
    _run_in_threads(_sync, list(dict.fromkeys(paths)))


def _run_in_threads(function: Callable[[str], None], paths: Sequence[str]) -> None:
    """Call a function for every path in parallel. All calls have ended when it returns or raises.

    If no thread can be started, a path may be passed twice.
    """

    def run(share: Sequence[str]) -> None:
        for path in share:
            function(path)

    own, *others = [paths[first::_THREADS] for first in range(min(_THREADS, len(paths)))] or [paths]
    futures = []
    try:
        for share in others:
            try:
                futures.append(_pool().submit(run, share))
            except RuntimeError:  # the interpreter exits, or the system has a limit
                run(share)
        run(own)
    finally:
        wait(futures)
    for future in futures:
        future.result()


def _sync(path: str) -> None:
    with report_errors("sync", path):
        descriptor = os.open(path, os.O_RDONLY | SAFE)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_tree(above: int, folder: str) -> None:
    """Delete depth first. Files that another process deletes at the same time are not an error."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | SAFE, dir_fd=above)
    except NotADirectoryError:
        os.unlink(folder, dir_fd=above)  # a symbolic link or a file
        return
    try:
        with os.scandir(descriptor) as scanned:
            items = [(item.name, item.is_dir(follow_symlinks=False)) for item in scanned]
        for name, is_folder in items:
            if is_folder:
                with suppress(FileNotFoundError):
                    remove_tree(descriptor, name)
        names = [name for name, is_folder in items if not is_folder]
        if len(names) <= _FEW_FILES:
            for name in names:
                _unlink(descriptor, name)
        else:
            _run_in_threads(partial(_unlink, descriptor), names)
    finally:
        os.close(descriptor)
    os.rmdir(folder, dir_fd=above)


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def copy_file(path: str, folder: int, name: str) -> None:
    """Copy a file with its time durably, so that no reader sees a partial copy."""
    temporary = temporary_name()
    with (
        open(open_to_read(path), "rb") as source,
        open(os.open(temporary, NEW, 0o666, dir_fd=folder), "wb") as target,
    ):
        shutil.copyfileobj(source, target, _COPIED_BYTES)
        target.flush()
        info = os.fstat(source.fileno())
        os.utime(target.fileno(), ns=(info.st_atime_ns, info.st_mtime_ns))
        os.fsync(target.fileno())
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def temporary_name() -> str:
    """Return a name that no other file has, and no reader lists."""
    return f".{uuid.uuid4().hex}.tmp"


def check_folder(folder: str, device: int) -> None:
    """Raise if a file cannot be renamed into this folder. After the commit, the rename must not fail."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoragePermissionError(
            f"Cannot write to {folder}: permission denied. Nothing was changed. Get write access, then run again."
        )
    if os.stat(folder).st_dev != device:
        raise StorageError(
            f"{folder} is on another device than the staging folder of the dataset, so files cannot be moved there "
            "atomically. Nothing was changed. Keep the dataset on one device."
        )


def check_length(folder: str, path: str) -> None:
    """Raise if the name of a file is too long for a folder."""
    name = os.fsencode(path.rpartition("/")[2])
    limit = os.pathconf(folder, "PC_NAME_MAX")
    if len(name) > limit:
        raise StorageError(
            f"The name {path.rpartition('/')[2][:60]}... has {len(name)} bytes, but {folder} allows {limit}. "
            "Nothing was changed. Use a shorter partition value or file name."
        )

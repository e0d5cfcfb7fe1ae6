"""Open local folders and files without following symbolic links, and local files without waiting for a writer.

Another program can replace a folder with a symbolic link at any moment. A path that was checked before may then lead
out of the dataset. So the folder of a file is opened first, without following links, and the file is created, moved
or deleted inside the open folder. The paths are canonical: no folder in them is a symbolic link.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat as stat_module
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from fsspeckit.common.errors import StorageError

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
"""Flags that create a file and never write into an existing one, which may be a hard link to another file."""
SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
# With O_PATH, the folders above a dataset need no read permission.
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
_RENAME_EXCHANGE = 2
_LIBC = ctypes.CDLL(None, use_errno=True)
CAN_EXCHANGE = hasattr(_LIBC, "renameat2")
"""Whether the system has a call that lets two folders exchange their names; only Linux has it."""


@contextmanager
def open_folder(path: str) -> Iterator[int]:
    """Yield a descriptor of a folder. Raise if a folder of the path is a symbolic link."""
    descriptor = _open_at_once(path) or _open_step_by_step(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_at_once(path: str) -> int | None:
    """Open a folder in three system calls, or return None if the kernel does not confirm that this is its real path."""
    try:
        descriptor = os.open(path or "/", _FOLDER)
    except OSError:
        return None
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") == path:
            return descriptor
    except OSError:
        pass  # /proc exists only on Linux
    os.close(descriptor)
    return None


def _open_step_by_step(path: str, created: list[str] | None = None) -> int:
    """Open a folder by the names of its path. With ``created``, create missing folders and append them to it."""
    descriptor, reached = os.open("/", _FOLDER), ""
    try:
        for name in filter(None, path.split("/")):
            reached += f"/{name}"
            try:
                child = _open_child(descriptor, name, reached)
            except FileNotFoundError:
                if created is None:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                created.append(reached)
                child = _open_child(descriptor, name, reached)
            os.close(descriptor)
            descriptor = child
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def open_parent(path: str) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder of a file, and the name of the file in it."""
    folder, _, name = path.rpartition("/")
    with open_folder(folder) as descriptor:
        yield descriptor, name


def make_folders(path: str) -> tuple[str, ...]:
    """Create a folder and its parents, and return those that were missing."""
    created: list[str] = []
    os.close(_open_step_by_step(path, created))
    return tuple(created)


def open_in_folder(path: str, flags: int) -> int:
    """Open a regular file in a folder that is reached without symbolic links."""
    with open_parent(path) as (folder, name):
        return _regular(os.open(name, flags, 0o666, dir_fd=folder), path)


def open_to_read(path: str) -> int:
    """Open a regular file. A named pipe or a device raises; reading it could block forever."""
    return _regular(os.open(path, _READ), path)


def as_arrow_file(descriptor: int, mode: str) -> pa.NativeFile:
    """Return an Arrow file of an open file, and close the descriptor. Arrow opens files by path only."""
    try:
        return pa.OSFile(f"/dev/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def exchange_names(folder: int, name: str, other_folder: int, other_name: str) -> None:
    """Let two names, each in an open folder, exchange what they name, with one system call."""
    names = (os.fsencode(name), os.fsencode(other_name))
    if _LIBC.renameat2(folder, names[0], other_folder, names[1], _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def copy_attributes(path: str, target: str) -> None:
    """Give a folder the owner, the permissions and the extended attributes of another one. Raise if that fails."""
    wanted, current = os.stat(path, follow_symlinks=False), os.stat(target, follow_symlinks=False)
    if (wanted.st_uid, wanted.st_gid) != (current.st_uid, current.st_gid):
        os.chown(target, wanted.st_uid, wanted.st_gid, follow_symlinks=False)
    shutil.copystat(path, target, follow_symlinks=False)


def link_error(path: str) -> StorageError:
    """Return the error for a symbolic link in a dataset."""
    return StorageError(
        f"{path} is a symbolic link. Readers treat links differently, and a link can lead out of the dataset. "
        "Replace it with the real file or folder."
    )


def _open_child(folder: int, name: str, path: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        if _is_link(folder, name):
            raise link_error(path) from error
        raise


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat_module.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _regular(descriptor: int, path: str) -> int:
    if stat_module.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StorageError(f"{path} is not a regular file. Remove it, or use the path of a regular file.")

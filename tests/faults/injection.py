"""A storage with one injected fault at its N-th call: a crash, a partial write, an error, or a full disk."""

from __future__ import annotations

import copy
import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.common.errors import FsspeckitError, StorageError
from inside import Entry, Handle, Storage, Tree, join, parent

Kind = Literal[
    "crash before",
    "crash after",
    "torn",
    "error before",
    "error after",
    "two errors",
    "stays broken",
    "breaks after",
    "disk full",
]
CRASHES: tuple[Kind, ...] = ("crash before", "crash after", "torn")
ERRORS: tuple[Kind, ...] = ("error before", "error after", "two errors", "stays broken", "breaks after", "disk full")


class Crash(BaseException):
    """The process has crashed. Nothing catches this, and later calls do not reach the storage."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The kind of a fault and the number of the call at which it happens."""

    kind: Kind
    call: int


class FaultStorage(Storage):
    """Forwards every call to a real storage until the fault."""

    def __init__(self, inner: Storage, fault: Fault | None = None) -> None:
        self.inner = inner
        self.fault = fault
        self.calls: list[str] = []
        self._counting = threading.Lock()
        self.dead = False
        self.broken = False
        self.full = False
        self.is_local = inner.is_local
        self.in_place = inner.in_place
        self.can_exchange = inner.can_exchange
        self.has_folders = inner.has_folders
        self.knows_owners = inner.knows_owners
        self.workers = 1
        self._handles: list[Handle] = []
        self._locks = 0
        self.outcome: Any = None
        self.on_call: Callable[[str], None] = lambda name: None

    def __reduce__(self) -> Any:
        """A task of a distributed engine runs in another process, which the fault does not strike."""
        return (copy.copy, (self.inner,))

    def meanwhile(self, call: int, act: Callable[[], Any]) -> None:
        """Act at a call as another process would: at the given one, or at the next one that holds no lock.

        ``outcome`` is what the act returns or raises.
        """

        def on_call(name: str) -> None:
            if len(self.calls) >= call and not self._locks:
                self.on_call = lambda name: None
                try:
                    self.outcome = act()
                except (FsspeckitError, ValueError) as error:
                    self.outcome = error

        self.on_call = on_call

    @property
    def client(self) -> str:
        return self.inner.client

    def _call(
        self, name: str, effect: Callable[[], Any], *, writes: bool, tear: Callable[[], Any] | None = None
    ) -> Any:
        with self._counting:
            if self.dead:
                raise Crash
            self.calls.append(name)
            number = len(self.calls)
        self.on_call(name)
        fault = self.fault
        hit = fault is not None and number == fault.call
        if fault is not None and fault.kind == "two errors" and number == fault.call + 1:
            raise _failure(name, errno.EIO)
        if self.broken:
            raise _failure(name, errno.EIO)
        if hit and fault is not None:
            self._strike(fault, name, tear)
        if self.full and writes:
            raise _failure(name, errno.ENOSPC)
        result = effect()
        if hit and fault is not None:
            self._strike_after(fault, name)
        return result

    def _strike(self, fault: Fault, name: str, tear: Callable[[], Any] | None) -> None:
        if fault.kind == "torn" and tear is not None:
            tear()
        if fault.kind in ("crash before", "torn"):
            self.die()
        if fault.kind == "stays broken":
            self.broken = True
        if fault.kind in ("error before", "stays broken"):
            raise _failure(name, errno.EIO)
        if fault.kind == "disk full":
            self.full = True

    def _strike_after(self, fault: Fault, name: str) -> None:
        if fault.kind == "crash after":
            self.die()
        if fault.kind == "breaks after":
            self.broken = True
        if fault.kind in ("error after", "two errors", "breaks after"):
            raise _failure(name, errno.EIO)

    def die(self) -> None:
        """Crash as a process does: the kernel releases its locks."""
        self.dead = True
        for handle in self._handles:
            handle.release()
        raise Crash

    def list_tree(self, root: str) -> Tree:
        return self._call("list_tree", lambda: self.inner.list_tree(root), writes=False)

    def list_dir(self, path: str) -> list[Entry]:
        return self._call("list_dir", lambda: self.inner.list_dir(path), writes=False)

    def list_names(self, path: str) -> list[str]:
        return self._call("list_names", lambda: self.inner.list_names(path), writes=False)

    def stat(self, path: str) -> Entry | None:
        return self._call("stat", lambda: self.inner.stat(path), writes=False)

    def stat_file(self, path: str) -> Entry | None:
        return self._call("stat", lambda: self.inner.stat_file(path), writes=False)

    def time_in(self, stamp: str) -> float:
        return self.inner.time_in(stamp)

    def list_below(self, path: str) -> list[Entry] | None:
        return self._call("list_below", lambda: self.inner.list_below(path), writes=False)

    def read_bytes(self, path: str) -> bytes:
        return self._call("read_bytes", lambda: self.inner.read_bytes(path), writes=False)

    def read_tail(self, path: str, size: int) -> bytes:
        return self._call("read_tail", lambda: self.inner.read_tail(path, size), writes=False)

    def read_tail_and_stat(self, path: str, size: int) -> tuple[bytes, Entry | None]:
        return self._call("read_tail", lambda: self.inner.read_tail_and_stat(path, size), writes=False)

    def create_exclusive(self, path: str, data: bytes) -> None:
        def tear() -> None:
            if self.is_local:
                self.inner.write_bytes(join(parent(path), ".torn.tmp"), data[: len(data) // 2])

        self._call("create_exclusive", lambda: self.inner.create_exclusive(path, data), writes=True, tear=tear)

    def write_bytes(self, path: str, data: bytes) -> None:
        def tear() -> None:
            if self.is_local:
                self.inner.write_bytes(path, data[: len(data) // 2])

        self._call("write_bytes", lambda: self.inner.write_bytes(path, data), writes=True, tear=tear)

    def open_input(self, path: str, size: int | None = None, stamp: str = "") -> pa.NativeFile:
        return self._call("open_input", lambda: self.inner.open_input(path, size, stamp), writes=False)

    def open_output(self, path: str) -> pa.NativeFile:
        def tear() -> None:
            self.inner.write_bytes(path, b"PAR1 and then nothing")

        return self._call("open_output", lambda: self.inner.open_output(path), writes=True, tear=tear)

    def make_dirs(self, path: str) -> tuple[str, ...]:
        def tear() -> None:
            self.inner.make_dirs(parent(path))

        return self._call("make_dirs", lambda: self.inner.make_dirs(path), writes=True, tear=tear)

    def publish(self, staged: str, path: str, size: int | None = None) -> bool:
        return self._call("publish", lambda: self.inner.publish(staged, path, size), writes=not self.is_local)

    def duplicate(self, path: str, other: str, size: int) -> None:
        self._call("duplicate", lambda: self.inner.duplicate(path, other, size), writes=True)

    def retire(self, path: str, trash: str) -> None:
        self._call("retire", lambda: self.inner.retire(path, trash), writes=False)

    def move_many(self, moves: Sequence[tuple[str, str]]) -> None:
        def tear() -> None:
            self.inner.move_many(moves[: len(moves) // 2])

        self._call("move_many", lambda: self.inner.move_many(moves), writes=False, tear=tear)

    def link(self, path: str, target: str) -> None:
        self._call("link", lambda: self.inner.link(path, target), writes=True)

    def copy_folder(self, path: str, target: str) -> None:
        self._call("copy_folder", lambda: self.inner.copy_folder(path, target), writes=True)

    def exchange(self, path: str, other: str) -> None:
        self._call("exchange", lambda: self.inner.exchange(path, other), writes=False)

    def remove(self, path: str) -> None:
        self._call("remove", lambda: self.inner.remove(path), writes=False)

    def remove_many(self, paths: Iterable[str]) -> None:
        listed = list(paths)

        def tear() -> None:
            self.inner.remove_many(listed[::2])

        self._call("remove_many", lambda: self.inner.remove_many(listed), writes=False, tear=tear)

    def remove_tree(self, path: str) -> None:
        def tear() -> None:
            for entry in self.inner.list_dir(path)[::2]:
                self.inner.remove(join(path, entry.path))

        self._call("remove_tree", lambda: self.inner.remove_tree(path), writes=False, tear=tear)

    def remove_dir_if_empty(self, path: str) -> bool:
        return self._call("remove_dir_if_empty", lambda: self.inner.remove_dir_if_empty(path), writes=False)

    def sync_files(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        self._call("sync_files", lambda: self.inner.sync_files(listed), writes=False)

    def sync_dirs(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        self._call("sync_dirs", lambda: self.inner.sync_dirs(listed), writes=False)

    @contextmanager
    def lock(self, path: str, *, shared: bool = False) -> Iterator[None]:
        self._call("lock", lambda: None, writes=False)
        with self.inner.lock(path, shared=shared):
            self._locks += 1
            try:
                yield
            finally:
                self._locks -= 1

    def is_locked(self, path: str) -> bool:
        return self._call("is_locked", lambda: self.inner.is_locked(path), writes=False)

    def claim_staging(self, folder: str) -> Handle:
        def take() -> Handle:
            handle = self.inner.claim_staging(folder)
            self._handles.append(handle)
            return handle

        def tear() -> None:
            self.inner.make_dirs(folder)

        return self._call("claim_staging", take, writes=True, tear=tear)

    def is_alive(self, folder: str) -> bool:
        return self._call("is_alive", lambda: self.inner.is_alive(folder), writes=False)

    def staging_exists(self, folder: str) -> bool:
        return self._call("staging_exists", lambda: self.inner.staging_exists(folder), writes=False)

    def check_publishable(self, staging: str, paths: Iterable[str]) -> None:
        listed = list(paths)
        self._call("check_publishable", lambda: self.inner.check_publishable(staging, listed), writes=False)

    def sidecar_parent(self, path: str) -> str | None:
        return self._call("sidecar_parent", lambda: self.inner.sidecar_parent(path), writes=False)

    def canonical(self, path: str) -> str:
        return self._call("canonical", lambda: self.inner.canonical(path), writes=False)

    def url(self, path: str) -> str:
        return self.inner.url(path)


def _failure(name: str, number: int) -> StorageError:
    error = StorageError(f"cannot {name}: injected fault")
    error.errno = number
    return error

"""A model of a disk that loses power: it records the system calls of `LocalStorage` and loses unsynced changes.

The model: a folder edit (create, link, unlink, mkdir, rmdir, rename) is atomic by itself, reaches the disk in any
order, and is certain only after an fsync of a folder it touches. The content of a file is certain only after an fsync
of the file. The same recorder can kill the process before or after any system call.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

from faults.injection import Crash
from inside import Handle, LocalStorage, disk_calls, folders, local


@dataclass(slots=True, eq=False)
class Node:
    """A file or a folder, independent of its names."""

    is_folder: bool
    entries: dict[str, Node] = field(default_factory=dict)
    data: bytes | None = None
    modified: int = 0


@dataclass(frozen=True, slots=True)
class Edit:
    """One atomic change of one or two folders: each name gets or loses a node."""

    changes: tuple[tuple[Node, str, Node | None], ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync: earlier edits of this folder, or the content of this file, are durable after it."""

    node: Node


class Disk:
    """Replaces the `os` module of `LocalStorage`. Every call also runs on the real disk."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.top = _read(base)
        self.start = [(node, dict(node.entries)) for node in _walk(self.top)]
        self.events: list[Edit | Sync] = []
        self.steps = 0
        self.crash_at: int | None = None
        self.crash_when: Literal["before", "after"] = "before"
        self.dead = False
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @contextmanager
    def _step(self) -> Iterator[None]:
        with self._lock:
            if self.dead:
                raise Crash
            self.steps += 1
            strikes = self.steps == self.crash_at
            if strikes and self.crash_when == "before":
                self.dead = True
                raise Crash
            yield
            if strikes:
                self.dead = True
                raise Crash

    def _find(self, path: str) -> tuple[Node, str]:
        node = self.top
        *folders, name = os.path.relpath(path, self.base).split("/")
        for folder in folders:
            node = node.entries[folder]
        return node, name

    def _edit(self, *changes: tuple[Node, str, Node | None]) -> None:
        for folder, name, node in changes:
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
        self.events.append(Edit(changes))

    def _capture(self, path: str, node: Node) -> None:
        if not node.is_folder:
            with open(path, "rb") as file:
                node.data = file.read()
            node.modified = os.stat(path).st_mtime_ns

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & os.O_CREAT:
            return os.open(path, flags, mode, dir_fd=dir_fd)
        with self._step():
            full = _full(path, dir_fd)
            existed = os.path.exists(full)
            descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
            if not existed:
                self._edit((*self._find(full), Node(False)))
            return descriptor

    def write(self, descriptor: int, data: Any) -> int:
        with self._step():
            written = os.write(descriptor, data)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            folder, name = self._find(path)
            self._capture(path, folder.entries[name])
            return written

    def fsync(self, descriptor: int) -> None:
        with self._step():
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path == self.base:
                self.events.append(Sync(self.top))
                return
            folder, name = self._find(path)
            self._capture(path, folder.entries[name])
            self.events.append(Sync(folder.entries[name]))

    def mkdir(self, path: str, *, dir_fd: int) -> None:
        with self._step():
            os.mkdir(path, dir_fd=dir_fd)
            self._edit((*self._find(_full(path, dir_fd)), Node(True)))

    def rmdir(self, path: str, *, dir_fd: int) -> None:
        with self._step():
            os.rmdir(path, dir_fd=dir_fd)
            self._edit((*self._find(_full(path, dir_fd)), None))

    def unlink(self, path: str, *, dir_fd: int) -> None:
        with self._step():
            os.unlink(path, dir_fd=dir_fd)
            self._edit((*self._find(_full(path, dir_fd)), None))

    def link(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool = True) -> None:
        with self._step():
            os.link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
            folder, name = self._find(_full(source, src_dir_fd))
            self._edit((*self._find(_full(target, dst_dir_fd)), folder.entries[name]))

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        with self._step():
            os.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            full = _full(target, dst_dir_fd)
            folder, name = self._find(_full(source, src_dir_fd))
            node = folder.entries[name]
            self._capture(full, node)
            self._edit((folder, name, None), (*self._find(full), node))

    def exchange_names(self, folder: int, name: str, other_folder: int, other_name: str) -> None:
        with self._step():
            folders.exchange_names(folder, name, other_folder, other_name)
            one, two = self._find(_full(name, folder)), self._find(_full(other_name, other_folder))
            self._edit((*one, two[0].entries[two[1]]), (*two, one[0].entries[one[1]]))

    def lose_power(self, at: int, rng: random.Random, into: str) -> None:
        """Write to ``into`` one of the disks that a power loss after ``at`` events may leave."""
        events = self.events[:at]
        luck = rng.choice((0.1, 0.5, 0.9))
        synced: set[int] = set()
        kept: list[Edit] = []
        for event in reversed(events):
            if isinstance(event, Sync):
                synced.add(id(event.node))
            elif any(id(folder) in synced for folder, _, _ in event.changes) or rng.random() < luck:
                kept.append(event)
        nodes: dict[int, Node] = {}
        for node, entries in self.start:
            _twin(node, nodes).entries = {name: _twin(child, nodes) for name, child in entries.items()}
        for edit in reversed(kept):
            for folder, name, node in edit.changes:
                entries = _twin(folder, nodes).entries
                if node is None:
                    entries.pop(name, None)
                else:
                    entries[name] = _twin(node, nodes)
        started = {id(node) for node, _ in self.start}
        certain = {id(twin) for number, twin in nodes.items() if number in synced | started}
        shutil.rmtree(into, ignore_errors=True)
        _write(nodes[id(self.top)], into, certain, rng)


def _full(path: str, folder: int | None) -> str:
    return path if folder is None else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)


def _twin(node: Node, nodes: dict[int, Node]) -> Node:
    """Return a copy of the node for the disk after the power loss: own entries, same content."""
    return nodes.setdefault(id(node), Node(node.is_folder, data=node.data, modified=node.modified))


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.entries.values():
        yield from _walk(child)


def _read(path: str) -> Node:
    if os.path.isdir(path):
        return Node(True, {name: _read(os.path.join(path, name)) for name in os.listdir(path)})
    with open(path, "rb") as file:
        return Node(False, data=file.read(), modified=os.stat(path).st_mtime_ns)


def _write(node: Node, path: str, certain: set[int], rng: random.Random) -> None:
    if node.is_folder:
        os.mkdir(path)
        for name, child in node.entries.items():
            _write(child, f"{path}/{name}", certain, rng)
        return
    data = node.data if node.data is not None else b"PAR1, never synced"
    if id(node) not in certain:
        data = data[: rng.choice((0, len(data) // 2, len(data)))]
    with open(path, "wb") as file:
        file.write(data)
    os.utime(path, ns=(node.modified, node.modified))


class RecordedStorage(LocalStorage):
    """`LocalStorage` that can release its locks as the kernel does."""

    def __init__(self) -> None:
        self._handles: list[Handle] = []

    def claim_staging(self, folder: str) -> Handle:
        handle = super().claim_staging(folder)
        self._handles.append(handle)
        return handle

    def release(self) -> None:
        """Release all locks, as the kernel does at the end of a process."""
        for handle in self._handles:
            handle.release()


@contextmanager
def recording(disk: Disk) -> Iterator[RecordedStorage]:
    """Use the disk under `LocalStorage` inside the context."""
    with (
        mock.patch.object(local, "os", disk),
        mock.patch.object(folders, "os", disk),
        mock.patch.object(disk_calls, "os", disk),
        mock.patch.object(local, "exchange_names", disk.exchange_names),
    ):
        storage = RecordedStorage()
        try:
            yield storage
        finally:
            storage.release()


@contextmanager
def stamps_that_survive_copying() -> Iterator[None]:
    """Identify files by their time alone: a disk that is written again has other inodes."""
    with mock.patch.object(local, "_stamp", lambda info: str(info.st_mtime_ns)):
        yield

"""Locks of a process whose threads work while it is forked, as `multiprocessing` and job servers do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsspeckit.core.storage import LocalStorage


@contextmanager
def _forked() -> Iterator[None]:
    """Run a child that has a copy of all open files, and does nothing."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_does_not_keep_the_lock_of_a_commit(tmp_path: Path) -> None:
    storage, path = LocalStorage(), str(tmp_path / "lock")
    lock = storage.lock(path)
    lock.__enter__()
    with _forked():
        assert storage.is_locked(path)
        lock.__exit__(None, None, None)
        assert not storage.is_locked(path)


def test_a_child_does_not_keep_a_staging_folder_alive(tmp_path: Path) -> None:
    storage, folder = LocalStorage(), str(tmp_path / "staging")
    handle = storage.claim_staging(folder)
    with _forked():
        assert storage.is_alive(folder)
        handle.release()
        assert not storage.is_alive(folder)

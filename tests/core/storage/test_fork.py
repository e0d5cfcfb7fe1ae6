"""Locks of a process that is forked while its threads work, and calls where no thread can be started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from fsspeckit.core.storage import LocalStorage, disk

_AT_EXIT = """
import sys, threading, time
import concurrent.futures.thread as pools
from fsspeckit.core.storage import LocalStorage

def work():
    while not pools._shutdown:
        time.sleep(0.01)
    LocalStorage().sync_files(sys.argv[1:])
    print("synced")

LocalStorage().sync_files(sys.argv[1:])
threading.Thread(target=work).start()
"""


def _files(folder: Path) -> list[str]:
    folder.mkdir()
    paths = [folder / str(number) for number in range(40)]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


def test_a_system_without_free_threads(tmp_path: Path) -> None:
    paths = _files(tmp_path / "files")
    disk._pool.cache_clear()
    with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
        LocalStorage().sync_files(paths)
        LocalStorage().remove_tree(str(tmp_path / "files"))
    disk._pool.cache_clear()
    assert not (tmp_path / "files").exists()


def test_a_thread_that_works_while_the_interpreter_exits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _AT_EXIT, *_files(tmp_path / "files")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("synced\n", "")


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


def test_a_child_keeps_neither_a_lock_nor_a_staging_folder(tmp_path: Path) -> None:
    storage, path, folder = LocalStorage(), str(tmp_path / "lock"), str(tmp_path / "staging")
    lock, handle = storage.lock(path), storage.claim_staging(folder)
    lock.__enter__()
    with _forked():
        assert (storage.is_locked(path), storage.is_alive(folder)) == (True, True)
        lock.__exit__(None, None, None)
        handle.release()
        assert (storage.is_locked(path), storage.is_alive(folder)) == (False, False)

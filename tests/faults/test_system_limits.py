"""Too little memory, a full disk, a limit of file sizes and missing permissions, as the system really reports them."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import pickle
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.common.causes import memory_error, storage_error
from fsspeckit.common.errors import (
    DamagedFileError,
    FsspeckitError,
    OutOfMemoryError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import report_damage

NOBODY = 65_534
_DETACH = 2  # the library that wrote last may keep files open
ENGINES = pytest.mark.parametrize("make_io", [PyarrowDatasetIO, DuckDBDatasetIO])
ROWS = pa.table({"id": range(200_000), "v": np.random.default_rng(1).random(200_000)})
OTHER = ROWS.set_column(1, "v", ROWS["v"].take(pa.array(np.random.default_rng(2).permutation(200_000))))
CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda io, path: io.write_dataset(ROWS, path),
    "merge": lambda io, path: io.merge(OTHER, path, strategy="upsert", key_columns=["id"]),
    "update": lambda io, path: io.update(path, set={"v": "v + 1"}, where="id >= 0"),
    "compact": lambda io, path: io.compact_parquet_dataset(path, 100, compression="zstd"),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, ["v"]),
}
READS = {"read": lambda io, path: io.read_parquet(path), "merge": CHANGES["merge"]}
WITH_TEXT: dict[str, Callable[[Any, str], Any]] = {
    "read": lambda io, path: io.read_parquet(path),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, ["text", "v"]),
}
MakeIo = Callable[[], Any]


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that every user can enter and write, unlike that of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def dataset(base: Path) -> Path:
    """Two files in a folder."""
    for number in range(2):
        PyarrowDatasetIO().write_dataset(ROWS.slice(number * 100_000, 100_000), str(base / "ds"))
    return base / "ds"


def in_child(limit: Callable[[], None], work: Callable[[], Any]) -> BaseException | None:
    """Run a function under a limit in another process, and return its error."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        found: BaseException | None = None
        try:
            limit()
            work()
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            found = error
        os.write(write_end, pickle.dumps((type(found), None if found is None else found.args)))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answers:
        kind, args = pickle.loads(answers.read())
    os.waitpid(child, 0)
    return None if args is None else kind(*args)


@contextmanager
def unchanged(dataset: Path) -> Iterator[None]:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in dataset.rglob("*.parquet")}

    before = files()
    yield
    assert files() == before


def check(error: BaseException | None, kind: type[Exception], *words: str) -> None:
    assert isinstance(error, kind), repr(error)
    assert isinstance(error, FsspeckitError)
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{missing} in {error}"
    assert not any(word in str(error) for word in ("restore", "move the file")), error


def little_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 150 * 2**20,) * 2)


def be_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)


def small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


@pytest.mark.parametrize("name", WITH_TEXT)
def test_too_little_memory_is_not_damage(tmp_path: Path, name: str) -> None:
    rows = 3_000_000
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), ["x" * 2000])
    table = pa.table({"id": range(rows), "v": np.zeros(rows), "text": text})
    (tmp_path / "ds").mkdir()
    pq.write_table(table, tmp_path / "ds" / "a.parquet", row_group_size=rows, store_schema=False)
    io = PyarrowDatasetIO()
    with unchanged(tmp_path / "ds"):
        error = in_child(little_memory, lambda: WITH_TEXT[name](io, str(tmp_path / "ds")))
    check(error, OutOfMemoryError, f"{name} of {tmp_path}/ds", "not enough memory", "memory_limit")
    assert isinstance(error, MemoryError)


def test_a_length_that_no_file_has_is_damage_and_others_are_told_with_both_causes() -> None:
    with pytest.raises(DamagedFileError, match=r"reading: d/a\.parquet"), report_damage("reading", "d/a.parquet"):
        pa.allocate_buffer(2**61)

    def work() -> None:
        with report_damage("reading", "d/a.parquet"):
            pa.allocate_buffer(2**38)

    error = in_child(little_memory, work)
    check(error, OutOfMemoryError, "reading", "d/a.parquet", "274877906944", "damaged", "more memory")


@ENGINES
@pytest.mark.parametrize("name", READS)
def test_files_without_read_permission(make_io: MakeIo, name: str, dataset: Path) -> None:
    for file in dataset.rglob("*.parquet"):
        file.chmod(0)
    io = make_io()
    for path in (dataset, *dataset.parent.rglob("*")):
        if path.is_dir() and os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
    with unchanged(dataset) if os.geteuid() == 0 else unchanged(dataset / "none"):
        error = in_child(be_nobody, lambda: READS[name](io, str(dataset)))
    check(error, StoragePermissionError, name, str(dataset), ".parquet", "Permission denied", "Get access")
    assert isinstance(error, PermissionError)
    assert isinstance(error, StorageError)


@ENGINES
@pytest.mark.parametrize("name", CHANGES)
def test_a_folder_without_write_permission(make_io: MakeIo, name: str, dataset: Path) -> None:
    io = make_io()
    for folder in (dataset.parent, *filter(Path.is_dir, dataset.parent.rglob("*"))):
        folder.chmod(0o555)
    with unchanged(dataset):
        error = in_child(be_nobody, lambda: CHANGES[name](io, str(dataset)))
    check(error, StoragePermissionError, f" of {dataset}", "ermission denied", "cannot")
    dataset.parent.chmod(0o777)


def test_a_change_that_cannot_remove_files_makes_no_commit(dataset: Path) -> None:
    for path in dataset.parent.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    dataset.chmod(0o555)
    io, records = PyarrowDatasetIO(), {*dataset.parent.rglob("*.json")}
    with unchanged(dataset):
        error = in_child(be_nobody, lambda: io.delete(str(dataset), where="true"))
    check(error, StoragePermissionError, str(dataset), "permission denied. Nothing was changed. Get write access")
    assert {*dataset.parent.rglob("*.json")} == records


@ENGINES
@pytest.mark.parametrize("name", CHANGES)
def test_a_limit_of_file_sizes(make_io: MakeIo, name: str, dataset: Path) -> None:
    io = make_io()
    with unchanged(dataset):
        error = in_child(small_files, lambda: CHANGES[name](io, str(dataset)))
    check(error, StorageFullError, f" of {dataset}: cannot write", "too large", "ulimit")


@pytest.fixture
def full_disk(base: Path) -> Iterator[Path]:
    libc = ctypes.CDLL(None, use_errno=True)
    disk = base / "disk"
    disk.mkdir()
    if libc.mount(b"tmpfs", str(disk).encode(), b"tmpfs", 0, b"size=6m") != 0:
        pytest.skip("this user cannot mount a small disk")
    yield disk
    libc.umount2(str(disk).encode(), _DETACH)


@ENGINES
@pytest.mark.parametrize("name", CHANGES)
def test_a_full_disk(make_io: MakeIo, name: str, full_disk: Path) -> None:
    io, path = make_io(), full_disk / "ds"
    io.write_dataset(ROWS, str(path))
    free = shutil.disk_usage(full_disk).free
    (full_disk / "other").write_bytes(bytes(free - 300_000))
    with unchanged(path), pytest.raises(StorageFullError) as caught:
        CHANGES[name](io, str(path))
    check(caught.value, StorageFullError, f" of {path}: cannot write", "No space left", "Free space")
    assert caught.value.errno == errno.ENOSPC
    (full_disk / "other").unlink()
    CHANGES[name](io, str(path))


class Closed(MemoryFileSystem):  # type: ignore[misc]
    """A storage that shows its files and refuses to read some of them."""

    protocol = "closed"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's memory filesystem keeps its files in the class
    pseudo_dirs = [""]  # noqa: RUF012
    failure: Callable[[], Exception] | None = None

    def cat_file(self, path: str, *positions: Any, **options: Any) -> bytes:
        if self.failure is not None and path.endswith(".parquet"):
            raise self.failure()
        return bytes(super().cat_file(path, *positions, **options))


FAILURES = {
    "permission": (lambda: PermissionError(13, "Access Denied"), StoragePermissionError),
    "network": (lambda: ConnectionResetError(104, "Connection reset by peer"), StorageError),
    "disk": (lambda: OSError(5, "Input/output error"), StorageError),
    "library": (lambda: ValueError("the client is closed"), ValueError),
}


@ENGINES
@pytest.mark.scenario("UP-62", "UP-64")
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("operation", ["read", "merge", "compact", "optimize"])
def test_a_storage_that_fails_to_read_is_named_and_logged_once(
    make_io: Callable[..., Any], name: str, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    fs = Closed(skip_instance_cache=True)
    fs.store.clear()
    io = make_io(filesystem=fs)
    for _ in range(2):
        io.write_dataset(ROWS.slice(0, 10), "/d")
    fs.failure, kind = FAILURES[name]
    with caplog.at_level(logging.ERROR), pytest.raises(kind) as caught:
        (READS | CHANGES)[operation](io, "/d")
    assert not isinstance(caught.value, DamagedFileError)
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.name == f"fsspeckit.core.operations.{operation}"
    assert f"{operation} of /d failed: " in record.getMessage()
    if kind is not ValueError:
        assert ".parquet" in str(caught.value)
        assert isinstance(caught.value, pa.ArrowIOError)


@ENGINES
@pytest.mark.scenario("UP-62", "UP-64")
@pytest.mark.parametrize("operation", ["read", "merge", "compact", "optimize"])
def test_a_damaged_file_is_logged_once(
    make_io: MakeIo, operation: str, dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = next(dataset.rglob("*.parquet"))
    file.write_bytes(b"PAR1" + bytes(500) + b"PAR1")
    named = f"^{operation} of {dataset}.*{file.name}"
    with caplog.at_level(logging.ERROR), pytest.raises(DamagedFileError, match=named):
        (READS | CHANGES)[operation](make_io(), str(dataset))
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert (record.name, file.name in record.getMessage()) == (f"fsspeckit.core.operations.{operation}", True)


@ENGINES
@pytest.mark.scenario("UP-64")
def test_a_wrong_name_is_not_logged(make_io: MakeIo, dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(pa.ArrowKeyError, match="nope"):
        make_io().read_parquet(str(dataset), columns=["nope"])
    assert not caplog.records


def test_typed_errors_survive_the_way_from_another_process() -> None:
    for error in (storage_error("cannot read x", PermissionError(13, "no")), memory_error("merge of x", MemoryError())):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))

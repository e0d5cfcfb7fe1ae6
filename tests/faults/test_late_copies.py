"""Copies that a server ends after later commits have removed their files: these stand there again, and are not data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from faults.injection import Crash, FaultStorage
from faults.verbs import NAMED, call, start
from faults.worlds import MemoryWorld, Rows, World
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage, is_data_file, recover

REMOVALS = {
    "delete": call("delete", where="true"),
    "compact": call("compact_parquet_dataset", target_mb_per_file=1),
    "overwrite": NAMED["write overwrite"].run,
    "update": call("update", set={"value": "value || '!'"}, where="true"),
}
APPEND = call("write_dataset", pa.table({"id": [900], "day": ["a"], "lsn": [1], "value": ["appended"]}))
VERBS = ["write append", "upsert", "write overwrite", "compact", "optimize"]


class LateStorage(FaultStorage):
    """The server executes one copy of this process later: it has read the file, and writes it when it is released."""

    def __init__(self, inner: Storage, late: int, meantime: Callable[[], object]) -> None:
        super().__init__(inner)
        self._late, self._meantime = late, meantime
        self._copies = 0
        self.held: tuple[str, bytes] | None = None

    def publish(self, staged: str, path: str, size: int | None = None) -> bool:
        self._copies += 1
        if self._copies != self._late:
            return super().publish(staged, path, size)
        self.held = (path, self.inner.read_bytes(staged))
        return self._meantime() or super().publish(staged, path, size)

    def land(self) -> bool:
        """The server ends the copy. Return whether that puts a file back."""
        assert self.held is not None
        path, data = self.held
        is_back = self.inner.stat_file(path) is None
        self.inner.write_bytes(path, data)
        return is_back


def run_late(world: World, run: Callable[[Storage, str], object], late: int, meantime: Callable[..., Any]) -> Any:
    """Run with one late copy. Return the storage, or None if there are not so many copies."""
    world.reset()
    storage = LateStorage(world.new_storage(), late, lambda: meantime(storage))
    with suppress(Crash):
        run(storage, world.root)
    return storage if storage.held else None


def dies(storage: LateStorage) -> None:
    storage.die()


def keys(rows: Rows) -> Counter[Any]:
    return Counter(row[0] for row in rows.elements())


@pytest.fixture
def world() -> MemoryWorld:
    made = MemoryWorld()
    start(made)
    made.keep()
    return made


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("verb", VERBS)
def test_rows_stay_removed_when_the_copy_of_a_dead_writer_ends(world: MemoryWorld, verb: str, removal: str) -> None:
    """Another writer finishes the commit, and another one removes its files. Each copy is late once."""
    put_back = 0
    for late in range(1, 9):
        storage = run_late(world, NAMED[verb].run, late, dies)
        if storage is None:
            break
        recover(world.new_storage(), world.root)
        REMOVALS[removal](world.new_storage(), world.root)
        rows = world.raw_rows()
        put_back += storage.land()
        assert world.seen_rows() == rows
        APPEND(world.new_storage(), world.root)
        assert world.raw_rows() == world.seen_rows(), "the next writer removes the file"
        assert keys(world.raw_rows()) == keys(rows) + Counter([900])
    assert put_back or removal == "compact", "a file that is large enough is not compacted"


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_writer_whose_copy_ends_late_removes_the_file(world: MemoryWorld, removal: str) -> None:
    """Its own commit is closed by another one, while the server copies."""
    rows = Rows()

    def others(storage: LateStorage) -> bool:
        nonlocal rows
        recover(world.new_storage(), world.root)
        REMOVALS[removal](world.new_storage(), world.root)
        rows = world.raw_rows()
        return bool(storage.land()) or True

    assert run_late(world, NAMED["upsert"].run, 1, others)
    assert world.raw_rows() == world.seen_rows() == rows


def test_rows_stay_removed_after_the_first_of_two_requests_for_a_copy_ends(world: MemoryWorld) -> None:
    """A client whose connection failed sends its request again, and nobody else takes part."""

    class Repeating(LateStorage):
        def publish(self, staged: str, path: str, size: int | None = None) -> bool:
            self.held = self.held or (path, self.inner.read_bytes(staged))
            return FaultStorage.publish(self, staged, path, size) and len(self.held) == 0

    storage = Repeating(world.new_storage(), 0, lambda: None)
    NAMED["upsert"].run(storage, world.root)
    REMOVALS["delete"](world.new_storage(), world.root)
    assert storage.land()
    assert world.seen_rows() == Rows()
    PyarrowDatasetIO(filesystem=world.new_storage()).recover(world.root)
    assert world.raw_rows() == Rows()


def test_removed_names_are_known_when_their_records_are_gone(world: MemoryWorld) -> None:
    storage = run_late(world, NAMED["write append"].run, 1, dies)
    recover(world.new_storage(), world.root)
    REMOVALS["compact"](world.new_storage(), world.root)
    first = {path for path in world.files() if path.endswith(".json")}
    for _ in range(70):
        APPEND(world.new_storage(), world.root)
    rows = world.raw_rows()
    assert not first & world.files().keys()
    assert storage.land()
    assert world.seen_rows() == rows
    for name in ("compact", "delete"):
        REMOVALS[name](world.new_storage(), world.root)
        assert world.raw_rows() == world.seen_rows()
    assert not any(is_data_file(path) for path in world.dataset_files())


def test_a_dataset_without_late_copies_pays_nothing(world: MemoryWorld) -> None:
    for run in REMOVALS.values():
        run(world.new_storage(), world.root)
    assert not [path for path in world.files() if "/late-" in path or "/gone-" in path]


def test_a_name_that_is_used_again_is_data(world: MemoryWorld) -> None:
    """`basename_template` may give a name twice. The list of removed files must not hide the second one."""
    again = {"basename_template": "same-{i}.parquet", "mode": "overwrite"}
    write = call("write_dataset", pa.table({"id": [1], "day": ["a"], "lsn": [1], "value": ["x"]}), **again)
    storage = run_late(world, write, 1, dies)
    assert storage is not None
    recover(world.new_storage(), world.root)
    NAMED["write overwrite"].run(world.new_storage(), world.root)
    assert storage.land()
    assert not world.seen_rows() & Rows([(1, "a", 1, "x")])
    write(world.new_storage(), world.root)
    assert keys(world.seen_rows()) == keys(world.raw_rows()) == Counter([1])

"""Orders of events that need several processes: delayed writers, lost responses, delayed recoveries."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from unittest import mock

import pyarrow.parquet as pq
import pytest

from core.commit.steps import append_files, overwrite, rewrite, stage, start, table
from faults.injection import Crash, Fault, FaultStorage
from faults.sweep import check_clean, run_with
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import CommitConflictError, OutcomeUnknownError, StorageError
from fsspeckit.core.commit import log as log_module
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.record import Record, new_id
from fsspeckit.core.commit.replay import Replayer
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.storage import LocalStorage, Storage, join
from fsspeckit.core.storage.fsspec import FsspecStorage


def one(name: str, ids: range) -> dict[str, object]:
    return {name: table(ids, "new")}


@pytest.fixture(params=[LocalWorld, MemoryWorld])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = request.param()
    start(made)
    made.keep()
    yield made
    made.close()


@pytest.fixture
def memory() -> MemoryWorld:
    made = MemoryWorld()
    start(made)
    made.keep()
    return made


@pytest.fixture
def local() -> Iterator[LocalWorld]:
    made = LocalWorld()
    start(made)
    made.keep()
    yield made
    made.close()


@pytest.fixture
def kept() -> Iterator[int]:
    """A journal that prunes early, so that few commits are enough to prune a slot."""
    with mock.patch.object(log_module, "KEPT_RECORDS", 4):
        yield 4


def log_of(world: World) -> Log:
    sidecar = SidecarLocations(world.storage, world.root).find()
    assert sidecar is not None
    return Log(world.storage, sidecar)


class Interrupted(FaultStorage):
    """Runs a function just before or just after one call."""

    def __init__(self, inner: Storage, name: str, happens: Callable[[], None], *, after: bool = False) -> None:
        super().__init__(inner)
        self._name, self._happens, self._after = name, happens, after

    def _call(self, name, effect, *, writes, tear=None):  # type: ignore[no-untyped-def]
        happens = self._happens if name == self._name else None
        if happens is not None:
            self._happens = lambda: None
        if happens is not None and not self._after:
            happens()
        result = super()._call(name, effect, writes=writes, tear=tear)
        if happens is not None and self._after:
            happens()
        return result


def lose_answer() -> None:
    raise StorageError("the answer was lost")


def test_pruned_slot_cannot_be_used_again(memory: MemoryWorld, kept: int) -> None:
    journal = Journal(memory.storage, memory.root)
    with journal.begin(journal.view(), "late") as late:
        staged = stage(memory.storage, late, table(range(90, 93), "late"))
        for number in range(kept + 60):
            append_files(memory.storage, memory.root, one(f"n{number}.parquet", range(1)))
        log = log_of(memory)
        assert 2 not in log.state().records
        record = Record(seq=2, kind="commit", owner=late.staging.rpartition("_")[2])
        with pytest.raises(CommitConflictError):
            log.claim(record)
        assert 2 not in log.state().records
        assert memory.storage.stat(staged) is not None
    check_clean(memory)


def test_writer_succeeds_if_another_process_applied_its_record(memory: MemoryWorld) -> None:
    def others() -> None:
        append_files(memory.storage, memory.root, one("other.parquet", range(70, 73)))
        lose_answer()

    storage = Interrupted(memory.storage, "create_exclusive", others, after=True)
    commit = append_files(storage, memory.root, one("mine.parquet", range(80, 83)))
    assert isinstance(commit, Commit)
    rows = memory.raw_rows()
    assert all(rows[(number, "new")] == 1 for number in (70, 71, 72, 80, 81, 82))
    check_clean(memory)


def test_outcome_is_unknown_if_others_applied_and_pruned_the_record(memory: MemoryWorld, kept: int) -> None:
    def others() -> None:
        for number in range(kept + 60):
            append_files(memory.storage, memory.root, one(f"n{number}.parquet", range(1)))

    storage = Interrupted(memory.storage, "create_exclusive", others, after=True)
    with pytest.raises(OutcomeUnknownError):
        append_files(storage, memory.root, one("mine.parquet", range(80, 83)))
    assert memory.raw_rows()[(80, "new")] == 1


def test_writer_with_an_old_view_commits_in_a_new_slot(memory: MemoryWorld, kept: int) -> None:
    """Its next slot was used and pruned. It appends, so it does not conflict with the other appends."""
    journal = Journal(memory.storage, memory.root)
    with journal.begin(journal.view(), "late") as late:
        staged = stage(memory.storage, late, table(range(80, 83), "new"))
        for number in range(kept + 40):
            append_files(memory.storage, memory.root, one(f"n{number}.parquet", range(1)))
        newest = log_of(memory).state().newest
        assert 2 not in log_of(memory).state().records
        assert late.commit(Changes(publish=(Publish(staged, "mine.parquet", 3),))).seq == newest + 1
    assert memory.raw_rows()[(80, "new")] == 1
    assert 2 not in log_of(memory).state().records
    check_clean(memory)


def test_pending_commit_is_finished_before_the_next(memory: MemoryWorld) -> None:
    run_with(memory, rewrite, Fault("crash before", _call_number(memory, rewrite, "publish")))
    with mock.patch.object(Journal, "recover"):
        append_files(memory.storage, memory.root, one("mine.parquet", range(80, 83)))
    rows = memory.raw_rows()
    assert rows[(0, "new")] == rows[(80, "new")] == 1
    check_clean(memory)


@pytest.mark.parametrize("moment", ["open_output", "create_exclusive"])
def test_fenced_writer_cannot_commit(memory: MemoryWorld, moment: str) -> None:
    old = memory.raw_rows()

    def fence() -> None:
        for handle in storage._handles:
            handle.release()
        assert Journal(memory.storage, memory.root).recover().removed

    storage = Interrupted(memory.storage, moment, fence)
    with pytest.raises(CommitConflictError, match="considered this writer dead"):
        append_files(storage, memory.root, one("mine.parquet", range(80, 83)))
    assert memory.raw_rows() == old
    check_clean(memory)


def test_writer_without_staging_folder_cannot_commit(local: LocalWorld) -> None:
    old = local.dataset_files()

    def lose() -> None:
        local.storage.remove_tree(log_of(local).staging_path(log_of(local).stagings()[0]))

    storage = Interrupted(local.storage, "staging_exists", lose)
    with pytest.raises(CommitConflictError, match="considered this writer dead"):
        append_files(storage, local.root, one("mine.parquet", range(80, 83)))
    assert local.dataset_files() == old


def test_fence_is_written_before_any_deletion(world: World) -> None:
    run_with(world, rewrite, Fault("crash before", _call_number(world, rewrite, "create_exclusive")))
    storage = FaultStorage(world.new_storage())
    removed = Journal(storage, world.root).recover().removed
    assert removed
    assert "create_exclusive" in storage.calls
    assert storage.calls.index("create_exclusive") < storage.calls.index("remove_tree")
    newest = log_of(world).read(log_of(world).state().newest)
    assert (newest.kind, newest.fenced) == ("fence", removed)
    assert newest.owner not in removed


def test_live_writer_is_not_fenced(world: World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "slow") as transaction:
        staged = stage(world.storage, transaction, table(range(80, 83), "new"))
        assert not Journal(world.new_storage(), world.root).recover()
        transaction.commit(Changes(publish=(Publish(staged, "mine.parquet", 3),)))
    assert world.raw_rows()[(80, "new")] == 1


def test_delayed_replay_restores_no_file(memory: MemoryWorld) -> None:
    storage = FaultStorage(memory.storage)
    storage.on_call = lambda name: storage.die() if name == "publish" else None
    with pytest.raises(Crash):
        append_files(storage, memory.root, one("mine.parquet", range(80, 83)))
    log = log_of(memory)
    record = log.read(log.state().newest)
    overwrite(memory.storage, memory.root)
    rows, files = memory.raw_rows(), memory.dataset_files()
    Replayer(memory.storage, memory.root, log).publish_all(record, log.state())
    Replayer(memory.storage, memory.root, log).replay(record, log.state())
    assert memory.raw_rows() == rows
    assert memory.dataset_files() == files


def test_delayed_replay_restores_no_file_within_the_lease(memory: MemoryWorld) -> None:
    names = {"mine.parquet": table(range(80, 83), "new")}
    last = _call_number(memory, lambda storage, root: append_files(storage, root, names), "publish") + 1
    with mock.patch.object(FsspecStorage, "is_alive", return_value=True):
        while True:
            memory.reset()
            outcome = run_with(
                memory, lambda storage, root: append_files(storage, root, names), Fault("crash before", last)
            )
            if not isinstance(outcome, Crash):
                break
            log = log_of(memory)
            record = log.read(log.state().newest)
            overwrite(memory.storage, memory.root)
            rows = memory.raw_rows()
            Replayer(memory.storage, memory.root, log).publish_all(record, log.state())
            assert memory.raw_rows() == rows
            last += 1


def test_delayed_replay_restores_no_file_after_a_recovery_that_crashed(memory: MemoryWorld) -> None:
    names = {"mine.parquet": table(range(80, 83), "new")}
    publish = _call_number(memory, lambda storage, root: append_files(storage, root, names), "publish")
    with mock.patch.object(FsspecStorage, "is_alive", return_value=True):
        for call in itertools.count(1):
            memory.reset()
            run_with(memory, lambda storage, root: append_files(storage, root, names), Fault("crash before", publish))
            log = log_of(memory)
            record = log.read(log.state().newest)
            recover = run_with(
                memory, lambda storage, root: Journal(storage, root).recover(), Fault("crash before", call)
            )
            if not isinstance(recover, Crash):
                break
            overwrite(memory.storage, memory.root)
            rows = memory.raw_rows()
            Replayer(memory.storage, memory.root, log).publish_all(record, log.state())
            assert memory.raw_rows() == rows


def test_replay_keeps_a_new_file_at_a_retired_path(world: World) -> None:
    call = _call_number(world, rewrite, "move_many" if world.storage.is_local else "remove_many")
    run_with(world, rewrite, Fault("crash before", call))
    foreign = table(range(500, 503), "foreign")
    with world.storage.open_output(join(world.root, "day=2/c.parquet")) as file:
        pq.write_table(foreign, file)
    Journal(world.new_storage(), world.root).recover()
    rows = world.raw_rows()
    assert rows[(500, "foreign")] == 1
    assert rows[(0, "new")] == 1


def test_replay_keeps_a_file_changed_after_the_commit(local: LocalWorld) -> None:
    with mock.patch.object(Journal, "publish", "replace"):
        call = _call_number(local, rewrite, "move_many")
        run_with(local, rewrite, Fault("crash before", call))
    pq.write_table(table(range(500, 503), "foreign"), join(local.root, "day=1/a.parquet"))
    Journal(local.new_storage(), local.root).recover()
    rows = local.raw_rows()
    assert rows[(500, "foreign")] == 1
    assert rows[(0, "new")] == 0
    check_clean(local)


def _call_number(world: World, run: Callable[[Storage, str], object], name: str) -> int:
    storage = FaultStorage(world.new_storage())
    run(storage, world.root)
    world.reset()
    return storage.calls.index(name) + 1


def test_only_the_newest_record_is_replayed(world: World) -> None:
    first = "move_many" if world.storage.is_local else "publish"
    run_with(world, rewrite, Fault("crash before", _call_number(world, rewrite, first)))
    log = log_of(world)
    ghost = log.state().newest
    world.storage.create_exclusive(
        join(log.folder, f"{ghost + 1:020d}.json"), Record(ghost + 1, "abort", new_id()).to_bytes()
    )
    rows = world.raw_rows()
    Journal(world.new_storage(), world.root).recover()
    assert world.raw_rows() == rows
    assert ghost not in log.state().done


def test_prune_deletes_done_before_records_and_keeps_the_newest(world: World, kept: int) -> None:
    removed: list[str] = []
    storage = FaultStorage(world.storage)
    original = storage.remove_many
    storage.remove_many = lambda paths: (removed.extend(paths), original(paths))[1]  # type: ignore[method-assign]
    for number in range(kept + 40):
        append_files(storage, world.root, one(f"n{number}.parquet", range(1)))
    slots = [path for path in removed if "/log/" in path]
    assert slots
    for path in slots:
        if path.endswith(".json"):
            assert slots.index(path.replace(".json", ".done")) < slots.index(path)
    state = log_of(world).state()
    assert state.newest == kept + 41
    assert kept <= len(state.records) <= kept + 33
    check_clean(world)


def _calls_with_lock(local: LocalWorld, lock: str, run: Callable[[Storage, str], object]) -> set[str]:
    """Return the names of the storage calls during which a lock is held."""
    seen = set()

    def probe(name: str) -> None:
        with suppress(FileNotFoundError):
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen.add(name)
            finally:
                os.close(descriptor)

    storage = FaultStorage(local.storage)
    storage.on_call = probe
    run(storage, local.root)
    return seen


def test_lock_is_held_during_publishing(local: LocalWorld) -> None:
    seen = _calls_with_lock(local, log_of(local).lock_path, rewrite)
    assert {"list_names", "create_exclusive", "move_many"} <= seen
    assert "claim_staging" not in seen  # a writer can begin while another one commits


def test_no_recovery_searches_dead_writers_while_one_begins(local: LocalWorld) -> None:
    def add(storage: Storage, root: str) -> None:
        append_files(storage, root, {"one.parquet": table(range(3), "new")})

    lock = log_of(local).staging_lock_path
    run_with(local, add, Fault("crash before", _call_number(local, add, "create_exclusive")))
    searched = _calls_with_lock(local, lock, lambda storage, root: Journal(storage, root).recover())
    assert {"is_alive", "create_exclusive", "remove_tree"} <= searched
    assert "claim_staging" in _calls_with_lock(local, lock, add)


def test_slot_of_a_withdrawn_record_is_retried(memory: MemoryWorld) -> None:
    class Withdrawn(FaultStorage):
        ghosts = 1

        def create_exclusive(self, path: str, data: bytes) -> None:
            if self.ghosts:
                self.ghosts -= 1
                raise FileExistsError(path)
            super().create_exclusive(path, data)

    assert append_files(Withdrawn(memory.storage), memory.root, one("mine.parquet", range(80, 83))).seq == 2
    assert memory.raw_rows()[(80, "new")] == 1
    check_clean(memory)


def test_client_that_repeats_its_own_create_succeeds(world: World) -> None:
    class Repeating(FaultStorage):
        def create_exclusive(self, path: str, data: bytes) -> None:
            self.inner.create_exclusive(path, data)
            self.inner.create_exclusive(path, data)

    append_files(Repeating(world.storage), world.root, one("mine.parquet", range(80, 83)))
    assert world.raw_rows()[(80, "new")] == 1
    check_clean(world)


def test_delayed_create_fails_on_the_abort_record(memory: MemoryWorld) -> None:
    """The request is still pending when the client gives up and writes the abort record."""
    delayed: list[tuple[str, bytes]] = []

    class Slow(FaultStorage):
        def create_exclusive(self, path: str, data: bytes) -> None:
            if not delayed:
                delayed.append((path, data))
                lose_answer()
            self.inner.create_exclusive(path, data)

    old = memory.raw_rows()
    with pytest.raises(StorageError, match="answer was lost"):
        append_files(Slow(memory.storage), memory.root, one("mine.parquet", range(80, 83)))
    with pytest.raises(FileExistsError):
        memory.storage.create_exclusive(*delayed[0])
    Journal(memory.new_storage(), memory.root).recover()
    assert memory.raw_rows() == old
    check_clean(memory)


def test_all_spellings_of_a_path_share_one_journal(local: LocalWorld) -> None:
    os.symlink(local.root, join(local.folder, "alias"))
    Journal(LocalStorage(), join(local.folder, "alias")).view()
    assert (
        SidecarLocations(LocalStorage(), join(local.folder, "alias")).find()
        == SidecarLocations(LocalStorage(), local.root).find()
    )

"""Run an operation with a fault at every call, recover, and compare with the old and the new dataset."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from faults.injection import Crash, Fault, FaultStorage
from faults.operations import Operation, append_files, table
from faults.worlds import Rows, Violation, World
from fsspeckit.common.errors import OutcomeUnknownError, VersionNotFoundError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.tombstones import mark_of
from fsspeckit.core.commit.transaction import Commit
from fsspeckit.core.storage import Storage, join
from sweeps import Sweep

_T = TypeVar("_T")
USABLE = table([999], "usable")


@dataclass(frozen=True, slots=True)
class Expected:
    """The old and the new dataset. No other state may be visible."""

    old: Rows
    new: Rows
    old_files: dict[str, bytes]
    foreign: dict[str, bytes]
    calls: int
    old_versions: list[Rows]
    new_versions: list[Rows]


def expect(world: World, operation: Operation) -> Expected:
    """Build the dataset, keep it as the template, and run the operation once without a fault."""
    operation.prepare(world)
    world.keep()
    old, old_files, old_versions = world.raw_rows(), world.dataset_files(), versions_of(world)
    storage = FaultStorage(world.new_storage())
    operation.run(storage, world.root)
    foreign = {path: data for path, data in world.dataset_files().items() if path.endswith(".txt")}
    new = world.raw_rows()
    if old == new if not operation.same_rows else old_files == world.dataset_files():
        raise Violation(f"{operation.name} changes nothing, so old and new states are equal")
    check_clean(world)
    return Expected(old, new, old_files, foreign, len(storage.calls), old_versions, versions_of(world))


def run_with(world: World, run: Callable[[Storage, str], object], fault: Fault | None) -> object:
    """Run and return the outcome: a result, an exception, or Crash."""
    storage = FaultStorage(world.new_storage(), fault)
    try:
        return run(storage, world.root)
    except Crash as crash:
        return crash.with_traceback(None)  # whose frames hold open files
    except Exception as error:  # noqa: BLE001 - whatever comes out is judged below
        return error
    finally:
        if not storage.dead:
            for handle in storage._handles:
                handle.release()


def single_fault(world: World, operation: Operation, expected: Expected, fault: Fault) -> str:
    """Run with one fault, then recover. Return the outcome that the caller saw."""
    world.reset()
    outcome = run_with(world, operation.run, fault)
    where = f"{operation.name}, {fault.kind} at call {fault.call}"
    check_before_recovery(world, expected, where)
    if isinstance(outcome, Exception) and not isinstance(outcome, (OSError, OutcomeUnknownError)):
        raise Violation(f"{where}: {outcome!r} instead of an I/O error") from outcome
    reported = _reported(outcome)
    if reported == "error" and world.dataset_files() != expected.old_files:
        raise Violation(f"{where}: an error was reported, but the dataset is not the old one byte for byte")
    if reported == "published" and world.raw_rows() != expected.new:
        raise Violation(f"{where}: success was reported, but the dataset is not the new one")
    rows = recover_and_check(world, expected, where)
    if reported == "error" and rows != expected.old:
        raise Violation(f"{where}: an error was reported, and recovery made the change after all")
    if reported in ("decided", "published") and rows != expected.new:
        raise Violation(f"{where}: success was reported, and the change is lost")
    return reported


def recovery_calls(world: World, operation: Operation, first: Fault) -> int:
    """Return the number of storage calls of the recovery from a fault."""
    world.reset()
    run_with(world, operation.run, first)
    storage = FaultStorage(world.new_storage())
    Journal(storage, world.root).recover()
    return len(storage.calls)


def double_fault(world: World, operation: Operation, expected: Expected, first: Fault, second: Fault) -> None:
    """Run with a crash, and with a fault in the recovery from it."""
    world.reset()
    run_with(world, operation.run, first)
    outcome = run_with(world, lambda storage, root: Journal(storage, root).recover(), second)
    where = f"{operation.name}, {first.kind} at call {first.call}, then {second.kind} at call {second.call} of recovery"
    if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
        raise Violation(f"{where}: {outcome!r} instead of an I/O error") from outcome
    check_before_recovery(world, expected, where)
    recover_and_check(world, expected, where)


def _reported(outcome: object) -> str:
    if isinstance(outcome, Crash):
        return "crash"
    if isinstance(outcome, OutcomeUnknownError):
        return "unknown"
    if isinstance(outcome, Exception):
        return "error"
    return "published" if isinstance(outcome, Commit) and outcome.published else "decided"


def check_before_recovery(world: World, expected: Expected, where: str) -> None:
    """Before recovery: no file is broken, no row of both states is missing, and our reader sees one of the states.

    The same holds for the kept versions.
    """
    try:
        raw = world.raw_rows()
        if (expected.old & expected.new) - raw:
            raise Violation("rows that are in the old and in the new dataset were gone for a while")
        if raw - (expected.old + expected.new):
            raise Violation("rows stand in the dataset that are in neither state")
        seen = world.view_rows(Journal(world.new_storage(), world.root).view())
        if seen not in (expected.old, expected.new):
            raise Violation("our own reader sees neither the old nor the new dataset")
        if versions_of(world) not in (expected.old_versions, expected.new_versions):
            raise Violation("the kept versions are neither those before nor those after the commit")
    except Violation as violation:
        raise Violation(f"{where}: {violation}") from violation


def recover_and_check(world: World, expected: Expected, where: str) -> Rows:
    """Recover as the next process does, check the state, and return its rows."""
    seen = world.view_rows(Journal(world.new_storage(), world.root).view())
    Journal(world.new_storage(), world.root).recover()
    rows = world.raw_rows()
    if rows not in (expected.old, expected.new):
        missing, extra = expected.new - rows, rows - expected.new
        raise Violation(f"{where}: neither old nor new; against the new one missing {missing}, extra {extra}")
    if rows != seen:
        raise Violation(f"{where}: recovery changed what our own reader saw before it")
    kept = {path: data for path, data in world.dataset_files().items() if path.endswith(".txt")}
    if kept != expected.foreign:
        raise Violation(f"{where}: files that are none of our business changed")
    check_clean(world, where)
    if versions_of(world) != (expected.new_versions if rows == expected.new else expected.old_versions):
        raise Violation(f"{where}: the kept versions have other rows")
    check_usable(world, rows, where)
    return rows


def versions_of(world: World) -> list[Rows]:
    """Return the rows of every version that is said to be readable, oldest first."""
    journal = Journal(world.new_storage(), world.root)
    versions = journal.versions(journal.view(), world.root)
    readable = [each.version for each in versions.history if each.readable]
    try:
        return [world.view_rows(versions.view_of(number)) for number in reversed(readable)]
    except (VersionNotFoundError, FileNotFoundError) as error:
        raise Violation(f"a readable version cannot be read: {error}") from error


def check_usable(world: World, rows: Rows, where: str) -> None:
    """Check that the next writer can commit."""
    append_files(world.new_storage(), world.root, {"usable.parquet": USABLE})
    if world.raw_rows() != rows + Counter({(999, "usable"): 1}):
        raise Violation(f"{where}: the next append does not give what it should")


def check_clean(world: World, where: str = "after a clean run") -> None:
    """Check that no temporary file is left, and that a second recovery writes nothing."""
    storage = FaultStorage(world.new_storage())
    if Journal(storage, world.root).recover():
        raise Violation(f"{where}: a second recovery still found something to do")
    writes = {
        "create_exclusive",
        "write_bytes",
        "remove",
        "remove_tree",
        "publish",
        "duplicate",
        "retire",
        "make_dirs",
        "claim_staging",
    }
    if writes & set(storage.calls):
        raise Violation(f"{where}: a recovery with nothing to do called {writes & set(storage.calls)}")
    sidecar = SidecarLocations(world.new_storage(), world.root).find()
    if sidecar is None:
        return
    log = Log(world.new_storage(), sidecar)
    state = log.state()
    if log.stagings() or state.leftovers or state.is_pending:
        raise Violation(f"{where}: left behind {log.stagings()} {state.leftovers}, pending {state.is_pending}")
    known = {join(log.folder, f"{seq:020d}.{kind}") for seq in state.records for kind in ("json", "done")}
    marks = [
        name for name in world.new_storage().list_names(log.folder) if name.startswith(("retain-", "floor-", "probed-"))
    ]
    known |= {log.lock_path, log.staging_lock_path, *(join(log.folder, name) for name in marks)}
    for seq in state.records:
        known |= {join(log.kept_folder, item.name) for item in log.read(seq).kept}
    deleted = log.tombstones(state)
    known |= {join(log.tombstones_folder, file.name) for file in deleted.files}
    known |= {join(log.folder, mark_of(deleted.slot, len(deleted.files)))}
    listed = {entry.path for entry in world.new_storage().list_tree(sidecar).files}
    listed = {path for path in listed if not path.startswith("index/")}  # a cache, which the next commit cleans
    stray = {join(sidecar, path) for path in listed} - known
    if stray:
        raise Violation(f"{where}: stray files {sorted(stray)}")


def choose(sweep: Sweep, rng: random.Random, points: Sequence[_T], limit: int) -> list[_T]:
    """Return all points for a full sweep, else one random point of each of ``limit`` equal parts.

    An even grid would repeat the same kinds of faults.
    """
    limit = max(1, round(limit * sweep.faults))
    if sweep.full or len(points) <= limit:
        return list(points)
    cuts = [len(points) * part // limit for part in range(limit + 1)]
    return [points[rng.randrange(low, high)] for low, high in pairwise(cuts)]


class Tally(Counter[str]):
    """Number of faults by kind and outcome."""

    def __str__(self) -> str:
        return ", ".join(f"{name}: {count}" for name, count in sorted(self.items()))

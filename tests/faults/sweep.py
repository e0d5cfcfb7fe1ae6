"""Run an operation with a fault at every call, recover, and compare with the old and the new dataset."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

from faults.injection import Crash, Fault, FaultStorage
from faults.verbs import SCHEMA, Operation
from faults.worlds import Rows, Violation, World
from fsspeckit.common.errors import DatasetNotFoundError, OutcomeUnknownError, VersionNotFoundError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage, left_behind, recover
from inside import versions_of as files_of_versions
from sweeps import Sweep

_T = TypeVar("_T")
WRITES = {
    *("create_exclusive", "write_bytes", "remove", "remove_tree", "publish", "duplicate", "retire", "make_dirs"),
    "claim_staging",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The old and the new dataset. No other state may be visible."""

    old: Rows
    new: Rows
    old_files: dict[str, bytes]
    foreign: dict[str, bytes]
    calls: int
    moves: list[int]
    """The calls in the middle of which files are moved: faults in them are always tried."""
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
    moves = [number for number, name in enumerate(storage.calls, 1) if name == "move_many"]
    return Expected(old, new, old_files, foreign, len(storage.calls), moves, old_versions, versions_of(world))


class Unpublished(logging.Handler):
    """Notices the warning that a commit is final, and not all of its files are published."""

    seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or "not all of its files are published" in record.getMessage()


def run_with(world: World, run: Callable[[Storage, str], object], fault: Fault | None) -> object:
    """Run and return the outcome: a result, an exception, Crash, or the warning that a commit is not published."""
    storage, warned, logger = FaultStorage(world.new_storage(), fault), Unpublished(), logging.getLogger("fsspeckit")
    logger.addHandler(warned)
    try:
        done = run(storage, world.root)
    except Crash as crash:
        return crash.with_traceback(None)  # whose frames hold open files
    except Exception as error:  # noqa: BLE001 - whatever comes out is judged below
        return error
    else:
        return warned if warned.seen else done
    finally:
        logger.removeHandler(warned)
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
    recover(storage, world.root)
    return len(storage.calls)


def double_fault(world: World, operation: Operation, expected: Expected, first: Fault, second: Fault) -> None:
    """Run with a crash, and with a fault in the recovery from it."""
    world.reset()
    run_with(world, operation.run, first)
    outcome = run_with(world, recover, second)
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
    return "decided" if isinstance(outcome, Unpublished) else "published"


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
        seen = world.seen_rows()
        if seen not in (expected.old, expected.new):
            raise Violation("our own reader sees neither the old nor the new dataset")
        if versions_of(world) not in (expected.old_versions, expected.new_versions):
            raise Violation("the kept versions are neither those before nor those after the commit")
    except Violation as violation:
        raise Violation(f"{where}: {violation}") from violation


def recover_and_check(world: World, expected: Expected, where: str) -> Rows:
    """Recover as the next process does, check the state, and return its rows."""
    seen = world.seen_rows()
    recover(world.new_storage(), world.root)
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
    try:
        return [world.rows_at(files) for files in files_of_versions(world.new_storage(), world.root)]
    except (VersionNotFoundError, FileNotFoundError) as error:
        raise Violation(f"a readable version cannot be read: {error}") from error


def check_usable(world: World, rows: Rows, where: str) -> None:
    """Check that the next writer can commit."""
    io = PyarrowDatasetIO(filesystem=world.new_storage())
    try:
        schema = io.read_parquet(world.root).schema
    except DatasetNotFoundError:
        schema = SCHEMA
    io.write_dataset(pa.Table.from_pylist([{"id": 999, "day": "a"}], schema), world.root)
    after = world.raw_rows()
    if rows - after or [row[0] for row in (after - rows).elements()] != [999]:
        raise Violation(f"{where}: the next append does not give what it should")


def check_clean(world: World, where: str = "after a clean run") -> None:
    """Check that no temporary file is left, and that a second recovery writes nothing."""
    storage = FaultStorage(world.new_storage())
    if recover(storage, world.root):
        raise Violation(f"{where}: a second recovery still found something to do")
    called = WRITES & {*storage.calls}
    if called:
        raise Violation(f"{where}: a recovery with nothing to do called {called}")
    if stray := left_behind(world.new_storage(), world.root):
        raise Violation(f"{where}: left behind {sorted(stray)}")


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

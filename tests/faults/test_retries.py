"""Operations with an idempotency key that are interrupted at any call and retried are committed once.

If a check before the commit fails, no fault can cause the commit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from faults.injection import CRASHES, ERRORS, Crash, Fault
from faults.sweep import check_clean, choose, expect, run_with
from faults.verbs import CHANGED, Operation, start
from faults.worlds import Violation, World
from fsspeckit import AlreadyCommittedError, CheckFailedError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage
from sweeps import Sweep

KEY = "orders/load/2026-11-03"
_IN_CI = 40


def append(io: PyarrowDatasetIO, root: str) -> Any:
    return io.write_dataset(CHANGED, root, partition_by=["day"])


def upsert(io: PyarrowDatasetIO, root: str) -> Any:
    return io.merge(CHANGED, root, strategy="upsert", key_columns=["id"])


def update(io: PyarrowDatasetIO, root: str) -> Any:
    """Change values in a way that is visible if it is done twice."""
    return io.update(root, set={"value": "value || ' and new'"}, where="id < 12")


def nothing_new(io: PyarrowDatasetIO, root: str) -> Any:
    """Append no rows: nothing changes, and the commit is still recorded once."""
    return io.write_dataset(CHANGED.slice(0, 0), root, partition_by=["day"])


CALLS = {"append": append, "upsert": upsert, "update": update}


def under_key(call: Callable[[PyarrowDatasetIO, str], Any], check: Any = None) -> Callable[[Storage, str], Any]:
    def run(storage: Storage, root: str) -> Any:
        return call(PyarrowDatasetIO(filesystem=storage).on_terms(idempotency_key=KEY, check=check), root)

    return run


def commits_under(world: World, key: str) -> int:
    """Return how many journal records contain the bytes of the key."""
    wanted = f'"idempotency_key": "{key}"', f'"idempotency_key":"{key}"'
    records = [data.decode() for path, data in world.files().items() if path.endswith(".json") and "/log/" in path]
    return sum(any(text in record for text in wanted) for record in records)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_change_retried_until_success_is_committed_once(
    world: World, name: str, sweep: Sweep, rng: random.Random
) -> None:
    run = under_key(CALLS[name])
    expected = expect(world, Operation(name, start, run))
    faults = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in (*CRASHES, *ERRORS)]
    seen = Counter[str]()
    for fault in choose(sweep, rng, faults, _IN_CI):
        world.reset()
        first = run_with(world, run, fault)
        storage = world.new_storage()
        before = PyarrowDatasetIO(filesystem=storage).committed(world.root, KEY)
        second = run_with(world, run, None)
        where = f"{name}, {fault.kind} at call {fault.call}"
        if (before is None) == isinstance(second, AlreadyCommittedError):
            raise Violation(f"{where}: committed as {before}, and the second try gave {second!r}")
        if not isinstance(first, (Crash, Exception)) and before is None:
            raise Violation(f"{where}: success was reported, and the key is not known")
        PyarrowDatasetIO(filesystem=storage).recover(world.root)
        if world.raw_rows() != expected.new or commits_under(world, KEY) != 1:
            raise Violation(f"{where}: {commits_under(world, KEY)} commits, rows {world.raw_rows()}")
        check_clean(world, where)
        seen["skipped" if before is not None else "done by the second"] += 1
    print(dict(seen))
    assert sum(seen.values()) > 0
    if sweep.faults > 0.3:
        assert min(seen["skipped"], seen["done by the second"]) > 0, seen


def test_empty_change_is_recorded_once(world: World, sweep: Sweep, rng: random.Random) -> None:
    start(world)
    world.keep()
    rows, run = world.raw_rows(), under_key(nothing_new)
    for call in choose(sweep, rng, range(1, 60), 15):
        world.reset()
        run_with(world, run, Fault("crash after", call))
        run_with(world, run, None)
        assert isinstance(run_with(world, run, None), AlreadyCommittedError)
        assert (world.raw_rows(), commits_under(world, KEY)) == (rows, 1)
        check_clean(world, f"crash after call {call}")


def refuse(before: Any, after: Any, info: Any) -> None:
    """A check that rejects every change, as a check of a pipeline can."""
    assert len(after.files) > len(before.files)
    assert info["operation"] == "write"
    raise CheckFailedError("not these rows; correct them")


def test_failed_check_keeps_the_old_dataset_under_any_fault(world: World, sweep: Sweep, rng: random.Random) -> None:
    expected = expect(world, Operation("append", start, under_key(append)))
    run = under_key(append, refuse)
    refused = 0
    faults = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in (*CRASHES, *ERRORS)]
    for fault in choose(sweep, rng, faults, _IN_CI):
        world.reset()
        refused += isinstance(run_with(world, run, fault), CheckFailedError)
        where = f"{fault.kind} at call {fault.call}"
        if world.dataset_files() != expected.old_files:
            raise Violation(f"{where}: the dataset is not the old one byte for byte")
        PyarrowDatasetIO(filesystem=world.new_storage()).recover(world.root)
        assert (world.dataset_files(), commits_under(world, KEY)) == (expected.old_files, 0), where
        check_clean(world, where)
    assert refused > 0

"""Files that are set aside by the footer index leave the plan, the counts and the rows as they are without it."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations.index import rebuild_index
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

SWITCHES = (
    "fsspeckit.core.planning.pruned_files.MIN_FILES",
    "fsspeckit.core.dataset.indexed_files.MIN_LOCAL_FILES",
    "fsspeckit.core.commit.listing.MANY_FILES",
)
TYPES = {
    "int": lambda n: n,
    "text": lambda n: f"key {n:05}",
    "float": float,
    "decimal": lambda n: pa.scalar(f"{n}.25").cast(pa.decimal128(12, 2)).as_py(),
    "ts": lambda n: pa.scalar(n * 10**9, pa.int64()).cast(pa.timestamp("us")).as_py(),
    "uint": lambda n: 2**63 + n,
    "bool": lambda n: n % 2 == 0,
}
ARROW = {"uint": pa.uint64(), "decimal": pa.decimal128(12, 2)}


def make(root: Path, kind: str, rng: random.Random, *, partitioned: bool, stored: bool, files: int = 24) -> None:
    """Files with narrow, wide, null, absent and empty ranges of keys, in several schemas."""
    for number in range(files):
        count = rng.choice([0, 1, 5, 8])
        first = rng.choice([number * 10, number * 10, 0])
        keys = [TYPES[kind](first + i) for i in range(count)]
        table = pa.table({"id": pa.array(keys, ARROW.get(kind) or pa.array([TYPES[kind](0)]).type)})
        table = table.append_column("v", pa.array([number] * count, rng.choice([pa.int32(), pa.int64()])))
        day = rng.choice(["a", "b", "c"])
        if partitioned and stored:
            table = table.append_column("day", pa.array([day] * count, pa.string()))
        if rng.random() < 0.2:
            table = table.append_column("extra", pa.array([1.5] * count, pa.float64()))
        folder = root / f"day={day}" if partitioned else root
        folder.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {"write_statistics": False} if rng.random() < 0.15 else {}
        pq.write_table(table, folder / f"part-{number:03}.parquet", row_group_size=3, **options)
    rebuild_index(Place.of(str(root), None, None))


def source(kind: str, rng: random.Random, *, partitioned: bool) -> pa.Table:
    numbers = sorted(rng.sample(range(260), rng.choice([1, 2, 6])))
    type_ = ARROW.get(kind) or pa.array([TYPES[kind](0)]).type
    keys = list(dict.fromkeys(TYPES[kind](n) for n in numbers))
    columns = {"id": pa.array(keys, type_), "v": pa.array([-1] * len(keys), pa.int64())}
    if partitioned:
        columns["day"] = pa.array([rng.choice(["a", "b", "d"]) for _ in keys])
    return pa.table(columns)


def plan_facts(run: Any) -> Any:
    try:
        plan = run()
    except FsspeckitError as error:
        return type(error), str(error)
    lines = [
        (e.path if e.action != "insert" else "", e.action, e.reason, e.rows, e.bytes, e.updated) for e in plan.entries
    ]
    return lines, plan.inserted, plan.updated, plan.deleted, plan.total


def agree(patch: pytest.MonkeyPatch, run: Any) -> Any:
    """Plan without an index and with one, which sets files aside, and return the facts of both plans."""
    found = []
    for value in (10**9, 1):
        for name in SWITCHES:
            patch.setattr(name, value)
        found.append(plan_facts(run))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("number", range(round(40 * sweep_size().examples) or 1))
def test_same_plan_and_rows_as_without_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rng = random.Random(number)
    kind, partitioned, stored = rng.choice(list(TYPES)), rng.random() < 0.6, rng.random() < 0.5
    make(tmp_path / "ds", kind, rng, partitioned=partitioned, stored=stored)
    rows = source(kind, rng, partitioned=partitioned)
    options = {
        "strategy": rng.choice(["upsert", "insert", "update", "full_merge"]),
        "key_columns": rng.choice([["id"], ["id", "day"]]) if partitioned else ["id"],
        "partition_move": rng.choice(["check", "move", "unchecked"]),
        "schema_mode": "evolve",
        "null_keys": rng.choice(["error", "match"]),
    }
    merge = partial(PyarrowDatasetIO().merge, rows, str(tmp_path / "ds"), **options)
    facts = agree(monkeypatch, lambda: merge(dry_run=True))
    if len(facts) > 2:
        entries, *counts, _ = facts
        result = merge()
        assert [result.inserted, result.updated, result.deleted] == counts
        kept = [path for path, action, *_ in entries if action == "keep"]
        assert result.preserved_files == [f"{tmp_path}/ds/{path}" for path in kept]


CONDITIONS = (
    "id = {0}",
    "id < {0}",
    "{0} >= id",
    "id > {0}",
    "id <> {0}",
    "id BETWEEN {0} AND {1}",
    "id IN ({0}, {1}, NULL)",
    "id >= {0} AND id < {1} AND v >= 3",
    "NOT (id < {0})",
    "id = {0} OR v = 5",
    "id IS NULL AND id < {0}",
    "v > 2 AND day = 'a'",
    "id > {0} AND extra = 1.5",
)
LITERALS = {
    "int": str,
    "text": lambda n: f"'key {n:05}'",
    "float": lambda n: f"{n}.0",
    "decimal": lambda n: f"{n}.25",
    "uint": lambda n: str(2**63 + n),
}


@pytest.mark.parametrize("number", range(round(30 * sweep_size().examples) or 1))
def test_same_deletes_as_without_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rng = random.Random(number)
    kind = rng.choice(list(LITERALS))
    make(tmp_path / "ds", kind, rng, partitioned=True, stored=rng.random() < 0.5)
    for condition in CONDITIONS:
        low, high = sorted(rng.sample(range(250), 2))
        where = condition.format(LITERALS[kind](low), LITERALS[kind](high))
        agree(monkeypatch, partial(PyarrowDatasetIO().delete, str(tmp_path / "ds"), where=where, dry_run=True))

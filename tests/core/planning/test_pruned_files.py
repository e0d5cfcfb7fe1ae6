"""Files that are set aside by the footer index leave the plan, the counts and the rows as they are without it."""

from __future__ import annotations

import random
from collections import Counter
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


def outcome(run: Any) -> Any:
    try:
        return run()
    except FsspeckitError as error:
        return type(error), str(error)


def plan_facts(plan: Any) -> Any:
    if isinstance(plan, tuple):
        return plan
    lines = [
        (e.path if e.action != "insert" else "", e.action, e.reason, e.rows, e.bytes, e.updated) for e in plan.entries
    ]
    return lines, plan.inserted, plan.updated, plan.deleted, plan.total


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

    def merge(**more: Any) -> Any:
        return outcome(lambda: PyarrowDatasetIO().merge(rows, str(tmp_path / "ds"), **options, **more))

    for name in SWITCHES:
        monkeypatch.setattr(name, 10**9)
    without = merge(dry_run=True)
    for name in SWITCHES:
        monkeypatch.setattr(name, 1)
    with_index = merge(dry_run=True)
    assert plan_facts(with_index) == plan_facts(without), (kind, partitioned, options)
    if not isinstance(without, tuple):
        assert len(with_index.to_dict()["entries"]) == len(without.entries)
        result = merge()
        assert (result.inserted, result.updated, result.deleted) == (
            without.inserted,
            without.updated,
            without.deleted,
        )
        assert result.preserved_files == [f"{tmp_path}/ds/{e.path}" for e in without.entries if e.action == "keep"]
        assert Counter(file.operation for file in result.files)["preserved"] == without.count("keep")


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

        def delete(where: str = where) -> Any:
            return outcome(lambda: PyarrowDatasetIO().delete(str(tmp_path / "ds"), where=where, dry_run=True))

        for name in SWITCHES:
            monkeypatch.setattr(name, 10**9)
        without = delete()
        for name in SWITCHES:
            monkeypatch.setattr(name, 1)
        assert plan_facts(delete()) == plan_facts(without), (kind, where)

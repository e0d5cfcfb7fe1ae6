"""The same random operations on several engines, alone and in turns: the same rows, counts and files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.tree import data_files
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from sweeps import sweep_size

Step = Callable[[Any, str], Any]
_REGIONS = ["north", "south", None]


def _rows(rng: random.Random, first: int, count: int) -> pa.Table:
    ids = rng.sample(range(first, first + 3 * count), count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "region": pa.array([_REGIONS[i % 3] for i in ids]),
            "amount": pa.array([rng.choice([None, i / 4]) for i in ids], pa.float64()),
            "note": pa.array([f"note {rng.randrange(9)}" for _ in ids]).dictionary_encode(),
        }
    )


def _merge(strategy: str) -> Callable[[random.Random], Step]:
    def draw(rng: random.Random) -> Step:
        rows = _rows(rng, rng.randrange(40), rng.randrange(1, 20))
        return lambda io, path: io.merge(rows, path, strategy=strategy, key_columns=["id"]).stats()

    return draw


def _append(rng: random.Random) -> Step:
    rows = _rows(rng, 1000 + rng.randrange(10_000), 6)
    return lambda io, path: io.write_dataset(rows, path).rows


def _compact(rng: random.Random) -> Step:
    target = rng.randrange(4, 40)
    return lambda io, path: _counts(io.compact_parquet_dataset(path, target_rows_per_file=target))


def _optimize(rng: random.Random) -> Step:
    curve, target = rng.choice(["linear", "zorder", "hilbert"]), rng.randrange(5, 40)
    return lambda io, path: _counts(
        io.optimize_parquet_dataset(path, zorder_columns=["amount", "id"], curve=curve, target_rows_per_file=target)
    )


def _deduplicate(rng: random.Random) -> Step:
    columns = rng.choice([["id"], ["note"], ["amount", "note"]])
    return lambda io, path: _counts(
        io.deduplicate_parquet_dataset(path, key_columns=columns, dedup_order_by=["-id"], null_keys="match")
    )


def _counts(result: Any) -> tuple[int, ...]:
    return tuple(result[name] for name in ("before_file_count", "after_file_count", "compacted_file_count"))


_STEPS = [
    *(_merge(strategy) for strategy in ("upsert", "insert", "update", "full_merge", "deduplicate")),
    _merge("upsert"),
    _append,
    _compact,
    _optimize,
    _deduplicate,
]


def _files(dataset: Path) -> list[tuple[str, list[dict[str, Any]], str]]:
    """Folder, rows in order and schema of every file; names are unique by design, so they cannot agree."""
    found = []
    for path in data_files(dataset):
        table = pq.ParquetFile(path).read()
        found.append((str(path.parent.relative_to(dataset)), table.to_pylist(), str(table.schema)))
    return sorted(found, key=repr)


@pytest.fixture(scope="module")
def engines() -> list[Any]:
    """Engines that must agree."""
    return [PyarrowDatasetIO(), SparkDatasetIO(), SparkDatasetIO(share_limit=0)]


@pytest.mark.spark
@pytest.mark.parametrize("partition_by", [None, ["region"]], ids=["flat", "partitioned"])
@pytest.mark.parametrize("seed", range(sweep_size().size(ci=1, full=40)))
def test_the_same_operations_on_every_engine_and_in_turns(
    engines: list[Any], tmp_path: Path, seed: int, partition_by: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsspeckit.datasets.spark.engine.LOCAL_ROWS", -1)  # executors scan even few keys
    rng = random.Random(f"{seed} {partition_by}")
    alone = [(io, tmp_path / f"alone-{number}") for number, io in enumerate(engines)]
    together = tmp_path / "together"
    start = _rows(rng, 0, 30)
    for path in (*(path for _, path in alone), together):
        engines[0].write_dataset(start, str(path), partition_by=partition_by, max_rows_per_file=7)
    for number in range(5):
        step = rng.choice(_STEPS)(rng)
        results = [step(io, str(path)) for io, path in alone]
        results.append(step(engines[number % len(engines)], str(together)))
        assert results.count(results[0]) == len(results)
        states = [_files(path) for path in (*(path for _, path in alone), together)]
        assert states.count(states[0]) == len(states)

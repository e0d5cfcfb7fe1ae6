"""Joined files come near the target size for any mix of sizes, partitions, contents and codecs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet.writer_options import filter_bytes
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import put
from sweeps import sweep_size

pytestmark = pytest.mark.sweep
SEEDS = range(20) if sweep_size().full else range(2)


def mixed(dataset: Path, random: np.random.Generator) -> None:
    """Folders with different contents and codecs, each with files of three very different sizes."""
    for day in range(3):
        words = np.array([f"word number {i}" for i in range([5, 300, 4000][day])])
        codecs = random.choice(["snappy", "zstd", "none", "gzip"], 1 + day % 2)
        for i in range(60):
            rows = int(random.choice([40, 150, 350]))
            columns = {"id": random.integers(0, 10**9, rows), "word": random.choice(words, rows)}
            if day != 1:
                columns["text"] = [f"{x:.17f}" for x in random.random(rows)]
            put(dataset / f"day={day}" / f"{i:02d}.parquet", pa.table(columns), compression=str(random.choice(codecs)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("codec", [None, "zstd"])
def test_sizes_come_near_the_target(tmp_path: Path, seed: int, codec: str | None) -> None:
    dataset = tmp_path / "d"
    mixed(dataset, np.random.default_rng(seed))
    target = 8 * max(path.stat().st_size for path in dataset.rglob("*.parquet"))
    compact = partial(PyarrowDatasetIO().compact_parquet_dataset, str(dataset), target / 2**20, compression=codec)
    plan, result = compact(dry_run=True), compact()
    assert (plan.after_file_count, plan["planned_groups"]) == (result.after_file_count, result["planned_groups"])
    assert compact().compacted_file_count == 0
    for day in dataset.iterdir():
        found = sorted(path.stat().st_size / target for path in day.iterdir())
        assert all(0.8 <= size <= 1.2 for size in found[1:]), (day.name, found)


def test_a_larger_target_joins_files_of_a_smaller_target(tmp_path: Path) -> None:
    dataset = tmp_path / "d"
    mixed(dataset, np.random.default_rng(0))
    target = sum(path.stat().st_size for path in (dataset / "day=0").iterdir()) / 2**20 / 6
    io = PyarrowDatasetIO()
    first = io.compact_parquet_dataset(str(dataset), target)
    second = io.compact_parquet_dataset(str(dataset), 2 * target)
    assert second.after_file_count < 0.7 * first.after_file_count


def events(dataset: Path, *, rows: int = 8000, files: int = 30, shuffled: bool = True, seed: int = 0) -> int:
    """Files of unique ids, repeated users and noise; the bytes of one of them."""
    random = np.random.default_rng(seed)
    ids = random.permutation(rows * files) if shuffled else np.arange(rows * files)
    for i in range(files):
        table = pa.table(
            {
                "id": ids[i * rows : (i + 1) * rows],
                "at": np.sort(random.integers(0, 10**6, rows)),
                "user": [f"user {x}" for x in random.integers(0, 5000, rows)],
                "value": random.normal(size=rows),
            }
        )
        path = put(dataset / f"{i:02d}.parquet", table)
    return path.stat().st_size


@pytest.mark.parametrize(("inputs", "shuffled"), [(0.2, True), (0.45, False), (0.45, True), (0.7, False), (1.3, True)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bloom_filter_columns": ["id", "user"]},
        {"row_group_size": 1000},
        {"row_group_size": 50},
        {"compression": "zstd", "curve": "hilbert"},
    ],
    ids=str,
)
def test_sorted_files_come_near_the_target(
    tmp_path: Path, options: dict[str, Any], inputs: float, shuffled: bool
) -> None:
    """For inputs of any size, with and without other options."""
    target = events(tmp_path / "d", rows=2000, shuffled=shuffled) / inputs
    optimize = partial(PyarrowDatasetIO().optimize_parquet_dataset, str(tmp_path / "d"), ["id", "at"], target / 2**20)
    plan, result = optimize(dry_run=True, **options), optimize(**options)
    assert plan.after_file_count == result.after_file_count
    found = sorted(path.stat().st_size / target for path in (tmp_path / "d").iterdir())
    assert all(0.8 <= size <= 1.2 for size in found), found
    assert optimize(**options).compacted_file_count == 0


@pytest.mark.parametrize("row_group_size", [50, 1000])
def test_joined_files_with_small_row_groups_come_near_the_target(tmp_path: Path, row_group_size: int) -> None:
    target = 8 * events(tmp_path / "d", rows=2000)
    compact = partial(
        PyarrowDatasetIO().compact_parquet_dataset, str(tmp_path / "d"), target / 2**20, row_group_size=row_group_size
    )
    compact()
    found = sorted(path.stat().st_size / target for path in (tmp_path / "d").iterdir())
    assert all(0.8 <= size <= 1.2 for size in found[1:]), found
    assert compact().compacted_file_count == 0


def test_sorted_files_are_not_measured_again(tmp_path: Path) -> None:
    target = 3 * events(tmp_path / "d", files=6)
    stages: list[str] = []
    optimize = partial(PyarrowDatasetIO().optimize_parquet_dataset, str(tmp_path / "d"), "id", target / 2**20)
    optimize(progress=lambda event: stages.append(event.stage))
    assert "measure" in stages
    stages.clear()
    optimize(progress=lambda event: stages.append(event.stage))
    assert "measure" not in stages


@pytest.mark.parametrize("values", [1, 100, 5000, 80_000])
def test_the_bytes_of_a_bloom_filter(tmp_path: Path, values: int) -> None:
    table = pa.table({"x": np.arange(100_000) % values})
    path = put(tmp_path / "x.parquet", table, bloom_filter_options={"x": {"ndv": 122_880}})
    assert pq.read_metadata(path).row_group(0).column(0).bloom_filter_length == pytest.approx(
        filter_bytes(values), abs=4
    )

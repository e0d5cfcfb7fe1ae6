"""Joined files come near the wanted size, however sizes, partitions, contents and codecs are mixed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from conformance.builders import put
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

SEEDS = range(20) if sweep_size().full else range(2)


def mixed(dataset: Path, random: np.random.Generator) -> None:
    """Folders of their own contents and codecs, each with files of three very different sizes."""
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


def test_a_larger_target_joins_what_a_smaller_one_made(tmp_path: Path) -> None:
    dataset = tmp_path / "d"
    mixed(dataset, np.random.default_rng(0))
    target = sum(path.stat().st_size for path in (dataset / "day=0").iterdir()) / 2**20 / 6
    io = PyarrowDatasetIO()
    first = io.compact_parquet_dataset(str(dataset), target)
    second = io.compact_parquet_dataset(str(dataset), 2 * target)
    assert second.after_file_count < 0.7 * first.after_file_count

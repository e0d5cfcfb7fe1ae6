"""Joined files come near the target size for any mix of sizes, partitions, contents and codecs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import put

pytestmark = pytest.mark.sweep


def events(dataset: Path, rows: int, files: int = 30) -> int:
    """Files of unique ids, repeated users and noise; the bytes of one of them."""
    random = np.random.default_rng(0)
    ids = random.permutation(rows * files)
    for i in range(files):
        columns = {"id": ids[i * rows : (i + 1) * rows], "at": np.sort(random.integers(0, 10**6, rows))}
        columns |= {"user": [f"user {x}" for x in random.integers(0, 5000, rows)], "value": random.normal(size=rows)}
        path = put(dataset / f"{i:02d}.parquet", pa.table(columns))
    return path.stat().st_size


@pytest.mark.parametrize(
    ("options", "inputs"),
    [
        ({}, 0.2),
        ({}, 1.3),
        ({"bloom_filter_columns": ["id", "user"]}, 0.45),
        ({"row_group_size": 50}, 0.45),
        ({"compression": "zstd", "curve": "hilbert"}, 0.7),
    ],
)
def test_sorted_files_come_near_the_target(tmp_path: Path, options: dict[str, Any], inputs: float) -> None:
    target = events(tmp_path / "d", rows=2000) / inputs
    optimize = partial(PyarrowDatasetIO().optimize_parquet_dataset, str(tmp_path / "d"), ["id", "at"], target / 2**20)
    plan, result = optimize(dry_run=True, **options), optimize(**options)
    assert plan.after_file_count == result.after_file_count
    found = sorted(path.stat().st_size / target for path in (tmp_path / "d").iterdir())
    assert all(0.8 <= size <= 1.2 for size in found), found
    assert optimize(**options).compacted_file_count == 0

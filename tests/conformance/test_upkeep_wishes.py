"""Options of maintenance: limits over all work, changed options, joining without sorting."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.upkeep import check_upkeep, values
from kit import data_files, put, tree_of


def scattered(dataset: Path, files: int, rows: int = 40) -> None:
    """Files whose values of ``x`` are spread over their whole range, some of them null."""
    random = np.random.default_rng(files)
    for i in range(files):
        x = pa.array([None if v % 11 == 0 else int(v) for v in random.integers(0, 500, rows)], pa.int64())
        put(dataset / f"in-{i}.parquet", pa.table({"x": x, "y": random.integers(0, 500, rows), "n": range(rows)}))


def test_duplicates_are_dropped_and_small_files_joined_in_one_pass(io: Any, tmp_path: Path) -> None:
    """One plan and one commit: joined files, a file that only loses rows, one that loses all, a skipped one."""
    parts = {
        "a": [1, 2],
        "b": [3, 1],
        "big": [*range(10, 22), 3],
        "gone": [10, 11],
        "full": range(30, 42),
        "z": [10, 11],
    }
    for name, ids in parts.items():
        put(tmp_path / "d" / f"{name}.parquet", pa.table({"id": list(ids), "n": range(len(ids))}))
    optimize = partial(
        io.optimize_parquet_dataset, str(tmp_path / "d"), deduplicate_key_columns="id", target_rows_per_file=11
    )
    groups = optimize(dry_run=True)["planned_groups"]
    assert sorted(sorted(Path(path).stem for path in group) for group in groups) == [["a", "b", "z"], ["big"], ["gone"]]
    result = check_upkeep(optimize, tmp_path / "d", same_rows=False)
    assert (len(result.commits), result.after_file_count, result["deduplicated_rows"]) == (1, 3, 6)
    found = sorted(i for ids in values(tmp_path / "d", "id") for i in ids)
    assert found == sorted({i for ids in parts.values() for i in ids})


def test_a_limit_below_the_only_group_still_makes_progress(io: Any, tmp_path: Path) -> None:
    scattered(tmp_path / "d", 6)
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x", target_rows_per_file=40, max_files=3)
    plan = optimize(dry_run=True)
    assert (plan.compacted_file_count, len(plan.skipped_files)) == (3, 3)
    for _ in range(12):
        result = optimize()
        assert result.compacted_file_count <= 3
        if not result.compacted_file_count:
            break
    assert not result.skipped_files.keys() - {str(path) for path in data_files(tmp_path / "d")}
    assert set(result.skipped_files.values()) == {"in this order already"}
    ends = sorted((min(x), max(x)) for x in ([500 if v is None else v for v in x] for x in values(tmp_path / "d", "x")))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ends))
    assert io.optimize_parquet_dataset(str(tmp_path / "d"), "x", target_rows_per_file=40).compacted_file_count == 0


def test_the_reason_names_the_limit_that_is_needed(io: Any, tmp_path: Path) -> None:
    """The limit in the reason is sufficient, and one byte or file less is not."""
    scattered(tmp_path / "d", 2)
    one, two = (path.stat().st_size for path in data_files(tmp_path / "d"))
    order = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x", target_rows_per_file=80)
    join = partial(io.compact_parquet_dataset, str(tmp_path / "d"), target_rows_per_file=80)
    drop = partial(io.deduplicate_parquet_dataset, str(tmp_path / "d"), "x", "n", null_keys="match")
    for run, name, least in (
        (order, "max_bytes", one),
        (join, "max_bytes", one + two),
        (join, "max_files", 2),
        (drop, "max_bytes", min(one, two)),
    ):
        below = run(**{name: least - 1}, dry_run=True)
        assert below.compacted_file_count == 0
        words = f"no run with {name}={least - 1} can do it; its group takes {name}={least} at least"
        assert words in below.skipped_files.values(), run
        assert run(**{name: least}, dry_run=True).compacted_file_count > 0
    found = [order(max_bytes=max(one, two)).compacted_file_count for _ in range(3)]
    pair = sum(path.stat().st_size for path in data_files(tmp_path / "d"))
    assert found == [1, 1, 0]
    assert all(f"takes max_bytes={pair} at least" in why for why in order(max_bytes=pair - 1).skipped_files.values())
    assert order(max_bytes=pair).compacted_file_count == 2


def test_new_options_rewrite_sorted_files(io: Any, tmp_path: Path) -> None:
    scattered(tmp_path / "d", 6)
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x")
    optimize(target_rows_per_file=40)
    requests = [
        ({"target_rows_per_file": 40, "bloom_filter_columns": ["n"]}, 6),
        ({"target_rows_per_file": 120, "bloom_filter_columns": ["n"]}, 2),
        ({"row_group_size": 30, "bloom_filter_columns": ["n"]}, 1),
        ({"target_rows_per_file": 30, "row_group_size": 30}, 8),
    ]
    for options, files in requests:
        result = optimize(**options)
        assert (result.compacted_file_count > 0, result.after_file_count) == (True, files), options
        before = tree_of(tmp_path / "d")
        assert optimize(**options).compacted_file_count == 0, options
        assert optimize().compacted_file_count == 0, options
        assert tree_of(tmp_path / "d") == before
        meta = pq.read_metadata(data_files(tmp_path / "d")[0]).row_group(0)
        assert meta.column(2).bloom_filter_offset is not None, "a filter once asked for is kept"


@pytest.mark.sweep
@pytest.mark.parametrize("curve", ["linear", "hilbert"])
def test_sorted_files_have_equal_size_if_rows_have_not(io: Any, tmp_path: Path, curve: str) -> None:
    """Rows of the second half are many times as wide, so files with equal row counts would miss the target size."""
    random = np.random.default_rng(3)
    for i in range(24):
        notes = [random.bytes(2 if i < 12 else 60).hex() for _ in range(1000)]
        table = pa.table({"x": np.arange(1000 * i, 1000 * i + 1000), "y": random.integers(0, 9, 1000), "note": notes})
        put(tmp_path / "d" / f"{i:02d}.parquet", table)
    target = sum(path.stat().st_size for path in data_files(tmp_path / "d")) / 6
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), ["x", "y"], target / 2**20, curve=curve)
    check_upkeep(optimize, tmp_path / "d")
    found = [path.stat().st_size / target for path in data_files(tmp_path / "d")]
    assert all(0.8 <= size <= 1.2 for size in found), found


@pytest.mark.parametrize("options", [{"bloom_filter_columns": ["n"]}, {"row_group_size": 30}])
def test_only_files_without_the_requested_property_are_rewritten(
    io: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    scattered(tmp_path / "d", 2)
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x", target_rows_per_file=40)
    optimize(**options)
    put(tmp_path / "d" / "later.parquet", pa.table({"x": range(-50, -10), "y": range(40), "n": range(40)}))
    optimize()
    result = optimize(**options)
    assert (result.compacted_file_count, len(result.skipped_files)) == (1, 2)

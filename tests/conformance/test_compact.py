"""Compaction: small files are joined, rows and schema are kept, and a second run does nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from conformance.effort import for_each
from conformance.upkeep import check_upkeep, sizes, values
from fsspeckit.datasets.pyarrow import compact_parquet_dataset_pyarrow
from kit import data_files, look, numbers, put, ruin_pages, table_of, tree_of


def small_files(dataset: Path, counts: list[int], **options: Any) -> list[Path]:
    """Files ``f00.parquet`` and so on with so many rows, ids counting up."""
    starts = np.cumsum([0, *counts])
    return [
        put(dataset / f"f{i:02d}.parquet", numbers(list(range(starts[i], starts[i + 1]))), **options)
        for i in range(len(counts))
    ]


def groups(result: Any) -> list[list[str]]:
    return [[Path(path).name for path in group] for group in result["planned_groups"]]


@pytest.mark.scenario("UP-07", "UP-12", "MD-5.3", "MD-STATS", "MD-5.7")
def test_rows_per_file(io: Any, tmp_path: Path) -> None:
    small_files(tmp_path / "d", [10] * 10)
    compact = partial(io.compact_parquet_dataset, str(tmp_path / "d"), target_rows_per_file=30)
    result = check_upkeep(compact, tmp_path / "d")
    assert sorted(len(ids) for ids in values(tmp_path / "d", "id")) == [10, 30, 30, 30]
    assert (result.before_file_count, result.after_file_count, result.compacted_file_count) == (10, 4, 9)
    assert look(tmp_path / "d", "id") == sorted([(i,) for i in range(100)], key=repr)


@pytest.mark.scenario("MD-5.3")
def test_smallest_files_are_joined_first_and_large_ones_are_kept(io: Any, tmp_path: Path) -> None:
    small_files(tmp_path / "d", [4, 1, 9, 2, 10, 3])
    plan = io.compact_parquet_dataset(str(tmp_path / "d"), target_rows_per_file=10, dry_run=True)
    assert groups(plan) == [["f00.parquet", "f01.parquet", "f03.parquet", "f05.parquet"]]
    reasons = {Path(path).name: reason for path, reason in plan["skipped_files"].items()}
    assert reasons["f04.parquet"] == "large enough"
    assert "join" in reasons["f02.parquet"]


@pytest.mark.scenario("UP-07")
@pytest.mark.many_rows
def test_sizes_come_near_the_target(io: Any, tmp_path: Path, rng: Any) -> None:
    texts = [f"{rng.random():.17f}" for _ in range(60_000)]
    for i in range(60):
        part = texts[1000 * i : 1000 * i + 1000]
        put(tmp_path / "d" / f"p{i:02d}.parquet", numbers(list(range(1000)), part, kind=["some", "thing"] * 500))
    target = 0.25
    check_upkeep(partial(io.compact_parquet_dataset, str(tmp_path / "d"), target), tmp_path / "d")
    found = sorted(size / 2**20 for size in sizes(tmp_path / "d").values())
    assert len(found) > 3
    assert all(0.8 * target <= size <= 1.2 * target for size in found[1:]), found


@pytest.mark.scenario("UP-08", "MD-5.6")
def test_a_dry_run_returns_the_plan(io: Any, tmp_path: Path) -> None:
    small_files(tmp_path / "d", [5, 5])
    before = tree_of(tmp_path)
    plan = io.compact_parquet_dataset(str(tmp_path / "d"), target_mb_per_file=128, dry_run=True)
    assert tree_of(tmp_path) == before
    assert groups(plan) == [["f00.parquet", "f01.parquet"]]
    assert (plan["dry_run"], plan["after_file_count"], plan["estimated_after_file_count"]) == (True, 1, 1)
    assert plan["after_total_bytes"] == plan["before_total_bytes"]
    assert "would be rewritten" in str(plan)


PLANS: dict[str, Callable[..., Any]] = {
    "compact": lambda io, path, **more: io.compact_parquet_dataset(path, target_rows_per_file=50, dry_run=True, **more),
    "optimize": lambda io, path, **more: io.optimize_parquet_dataset(
        path, ["id"], target_rows_per_file=50, dry_run=True, **more
    ),
}


@pytest.mark.scenario("MD-5.6")
@pytest.mark.parametrize("operation", PLANS)
def test_a_dry_run_reads_no_rows_and_writes_nothing(io: Any, tmp_path: Path, operation: str) -> None:
    """Its pages cannot be read, so neither rows nor an order of them can have been."""
    files = small_files(tmp_path / "d", [25, 25, 25, 25])
    for path in files:
        ruin_pages(path, "id")
        ruin_pages(path, "v")
    before = tree_of(tmp_path)
    plan = PLANS[operation](io, str(tmp_path / "d"))
    assert tree_of(tmp_path) == before
    assert (plan["dry_run"], plan["estimated_after_file_count"]) == (True, 2)
    assert sorted(path for group in plan["planned_groups"] for path in group) == sorted(map(str, files))
    assert all(isinstance(group, list) for group in plan["planned_groups"])


@pytest.mark.scenario("MD-5.6", "UP-61")
@pytest.mark.parametrize("operation", PLANS)
def test_a_dry_run_checks_schemas(io: Any, tmp_path: Path, operation: str) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1]))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": ["text"], "v": ["x"]}))
    with pytest.raises(pa.ArrowInvalid, match=f"{operation} of .*'?id"):
        PLANS[operation](io, str(tmp_path / "d"))
    with pytest.raises(pa.ArrowInvalid, match=r"optimize of .*'nowhere'"):
        io.optimize_parquet_dataset(str(tmp_path / "d"), ["nowhere"], partition_filter="a", dry_run=True)


@pytest.mark.scenario("MD-5.9", "MD-5.2")
@pytest.mark.parametrize("counts", [[5], [50, 50], [0]])
def test_nothing_to_do(io: Any, tmp_path: Path, counts: list[int]) -> None:
    small_files(tmp_path / "d", counts)
    before = tree_of(tmp_path)
    result = io.compact_parquet_dataset(str(tmp_path / "d"), target_rows_per_file=50)
    assert result["compacted_file_count"] == 0
    assert result["before_file_count"] == result["after_file_count"] == len(counts)
    assert result.commits == []
    assert tree_of(tmp_path) == before


@pytest.mark.scenario("MD-5.4", "MD-NAMES")
def test_order_schema_and_metadata_are_kept(io: Any, tmp_path: Path) -> None:
    field = pa.field("id", pa.int32(), nullable=False, metadata={"unit": "piece"})
    schema = pa.schema([field, pa.field("v", pa.dictionary(pa.int8(), pa.string()))], metadata={"owner": "us"})
    for i in range(3):
        part = pa.table([pa.array([3 * i + 2, 3 * i, 3 * i + 1], pa.int32()), pa.array(["a", None, "b"])], ["id", "v"])
        put(tmp_path / "d" / f"{i}.parquet", part.cast(schema), compression="zstd", write_page_index=True)
    result = check_upkeep(partial(io.compact_parquet_dataset, str(tmp_path / "d"), 1), tmp_path / "d")
    (path,) = data_files(tmp_path / "d")
    assert re.fullmatch(r"part-00000-[0-9a-f]{12}-compact\.parquet", path.name)
    assert table_of(path)["id"].to_pylist() == [2, 0, 1, 5, 3, 4, 8, 6, 7]
    assert pq.read_schema(path).equals(schema, check_metadata=True)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    assert (chunk.compression, chunk.has_column_index) == ("ZSTD", True)
    assert result.compression_codec == "zstd"


def two_files_a_day(dataset: Path, *days: str) -> None:
    for day in days:
        for name in "ab":
            put(dataset / f"day={day}" / f"{name}.parquet", numbers([1]))


def upkeep(io: Any, dataset: Path) -> list[Callable[..., Any]]:
    """All operations with a filter, each of which rewrites the files that it selects."""
    return [
        partial(io.compact_parquet_dataset, str(dataset), 1),
        partial(io.optimize_parquet_dataset, str(dataset), ["id"]),
        partial(io.deduplicate_parquet_dataset, str(dataset), "id"),
    ]


@pytest.mark.scenario("UP-13", "MD-5.8")
@pytest.mark.parametrize("operation", [0, 1, 2], ids=["compact", "optimize", "deduplicate"])
@for_each(
    "wanted, selected",
    [
        ("day=1/", ["1"]),
        (["day=1/", "day=2/"], ["1", "2"]),
        ("day=2025-11", ["2025-11-04", "2025-11-05"]),
        (["day=2025-11", "day=2025-11-04"], ["2025-11-04", "2025-11-05"]),
    ],
)
def test_a_filter_is_a_prefix_of_the_path(
    io: Any, tmp_path: Path, wanted: Any, selected: list[str], operation: int
) -> None:
    two_files_a_day(tmp_path / "d", "1", "10", "2", "2025-11-04", "2025-11-05", "2025-12-01")
    before = tree_of(tmp_path / "d")
    result = upkeep(io, tmp_path / "d")[operation](partition_filter=wanted)
    assert result.before_file_count == 2 * len(selected)
    after, folders = tree_of(tmp_path / "d"), {f"day={day}" for day in selected}
    changed = {path.split("/")[0] for path in before if path.endswith(".parquet") and after.get(path) != before[path]}
    assert changed == folders


@pytest.mark.scenario("MD-5.8")
@pytest.mark.parametrize("operation", [0, 1, 2], ids=["compact", "optimize", "deduplicate"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_filter_that_matches_whole_names_and_parts_of_names_is_refused(
    io: Any, tmp_path: Path, operation: int, dry_run: bool
) -> None:
    two_files_a_day(tmp_path / "d", "1", "10", "11", "2")
    before = tree_of(tmp_path)
    with pytest.raises(ValueError, match=r"'day=1' and also 'day=10', 'day=11'.*'day=1/'"):
        upkeep(io, tmp_path / "d")[operation](partition_filter=["day=2/", "day=1"], dry_run=dry_run)
    assert tree_of(tmp_path) == before


@pytest.mark.scenario("MD-5.8")
@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        ("year=2025/month=1/", ["year=2025/month=1"]),
        ("year=2025/", ["year=2025/month=1", "year=2025/month=11"]),
        (["year=2024", "year=2025/month=11"], ["year=2024/month=1", "year=2025/month=11"]),
        ("year=20%3A25/", ["year=20%3A25/month=1"]),
        ("year=20", ["year=2024/month=1", "year=2025/month=1", "year=2025/month=11", "year=20%3A25/month=1"]),
    ],
)
@pytest.mark.parametrize("operation", [0, 1, 2], ids=["compact", "optimize", "deduplicate"])
def test_a_filter_does_not_look_at_what_folders_mean(
    io: Any, tmp_path: Path, wanted: Any, selected: list[str], operation: int
) -> None:
    """Text is compared as it is in the path. No reader can read the files of other folders."""
    folders = ["year=2024/month=1", "year=2025/month=1", "year=2025/month=11", "year=20%3A25/month=1"]
    for folder in folders:
        for name in "ab":
            path = put(tmp_path / "d" / folder / f"{name}.parquet", numbers([1]))
            if folder not in selected:
                path.write_bytes(b"no Parquet")
    result = upkeep(io, tmp_path / "d")[operation](partition_filter=wanted, dry_run=True)
    assert result.before_file_count == 2 * len(selected)
    touched = {Path(path).parent.relative_to(tmp_path / "d").as_posix() for g in result["planned_groups"] for path in g}
    assert touched == set(selected)


@pytest.mark.scenario("UP-44")
def test_compatible_schemas_are_joined_without_loss(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": pa.array([1], pa.int32()), "x": ["p"]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": pa.array([2**40], pa.int64()), "y": [0.5]}))
    put(tmp_path / "d" / "c.parquet", pa.table({"x": ["q"], "id": pa.array([3], pa.int16())}))
    io.compact_parquet_dataset(str(tmp_path / "d"), 1)
    (path,) = data_files(tmp_path / "d")
    assert table_of(path).to_pylist() == [
        {"id": 1, "x": "p", "y": None},
        {"id": 2**40, "x": None, "y": 0.5},
        {"id": 3, "x": "q", "y": None},
    ]
    assert table_of(path).schema.field("id").type == pa.int64()


def test_notes_of_all_files_are_kept(io: Any, tmp_path: Path) -> None:
    """If two files have different values for one key, that of the first file by name is kept."""
    for name, notes, unit in (("a", {"owner": "us", "k": "1"}, None), ("b", {"owner": "you", "l": "2"}, {"unit": "m"})):
        field = pa.field("id", pa.int64(), metadata=unit)
        put(tmp_path / "d" / f"{name}.parquet", pa.table([[1]], pa.schema([field], metadata=notes)))
    check_upkeep(partial(io.compact_parquet_dataset, str(tmp_path / "d"), 1), tmp_path / "d")
    schema = pq.read_schema(data_files(tmp_path / "d")[0])
    assert schema.metadata == {b"owner": b"us", b"k": b"1", b"l": b"2"}
    assert schema.field("id").metadata[b"unit"] == b"m"


def test_an_empty_file_of_another_type_is_joined(io: Any, tmp_path: Path) -> None:
    for name, ids in {"a": [], "b": [2, 1], "c": [1, 3]}.items():
        table = pa.table({"id": pa.array(ids, pa.int64())}) if ids else pa.table({"id": pa.array([], pa.string())})
        put(tmp_path / "d" / f"{name}.parquet", table)
    assert io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")["deduplicated_rows"] == 1
    assert io.optimize_parquet_dataset(str(tmp_path / "d"), "id", dry_run=True).after_file_count == 1
    check_upkeep(partial(io.compact_parquet_dataset, str(tmp_path / "d"), 1), tmp_path / "d")
    assert values(tmp_path / "d", "id") == [[2, 1, 3]]


def test_empty_files_are_joined_with_others(io: Any, tmp_path: Path) -> None:
    small_files(tmp_path / "d", [0, 3, 0, 2])
    check_upkeep(partial(io.compact_parquet_dataset, str(tmp_path / "d"), 1), tmp_path / "d")
    assert values(tmp_path / "d", "id") == [[0, 1, 2, 3, 4]]


def test_limits_bound_a_run_and_the_next_run_continues(io: Any, tmp_path: Path) -> None:
    small_files(tmp_path / "d", [10] * 12)
    compact = partial(io.compact_parquet_dataset, str(tmp_path / "d"), None, np.int64(40), max_files=np.int32(5))
    first = compact()
    assert (first.compacted_file_count, first.after_file_count) == (4, 9)
    assert any("max_files=5" in reason for reason in first.skipped_files.values())
    assert [compact().compacted_file_count for _ in range(3)] == [4, 4, 0]
    assert sorted(len(ids) for ids in values(tmp_path / "d", "id")) == [40, 40, 40]


@pytest.mark.scenario("MD-5.10")
def test_a_file_added_during_the_run_is_kept(io: Any, tmp_path: Path) -> None:
    small_files(tmp_path / "d", [5, 5])
    seen: list[str] = []

    def append(event: Any) -> None:
        if event.stage == "write" and not seen:
            seen.append(event.stage)
            io.write_dataset(numbers([100]), str(tmp_path / "d"))

    io.compact_parquet_dataset(str(tmp_path / "d"), 1, progress=append)
    assert sorted(len(ids) for ids in values(tmp_path / "d", "id")) == [1, 10]


@pytest.mark.scenario("MD-API", "UP-07", "MD-5.1")
def test_the_functions(tmp_path: Path) -> None:
    small_files(tmp_path / "d", [5, 5, 5])
    path = str(tmp_path / "d")
    plan = compact_parquet_dataset_pyarrow(path, target_rows_per_file=10, dry_run=True)
    assert isinstance(plan, dict)
    assert len(plan["planned_groups"]) == 1
    assert compact_parquet_dataset_pyarrow(path, 128, None, None, "zstd", False)["after_file_count"] == 1
    assert fsspeckit.compact(path, target_mb_per_file=1, engine="pyarrow")["compacted_file_count"] == 0

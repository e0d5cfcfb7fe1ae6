"""Pruning on proof only, and reading no more than needed.

That a file or a column was not read is shown without looking inside: its pages are overwritten with garbage, the footer
left good. A merge that does not need them succeeds; one that reads them anyway fails.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit import look, numbers, put, ruin_pages, three_files, tree_of

UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}


def verdicts(io: Any, source: pa.Table, dataset: Path, **options: Any) -> dict[str, tuple[str, str]]:
    """The action and reason of each file in a plan."""
    plan = io.merge(source, str(dataset), dry_run=True, **(UPSERT | options))
    return {Path(entry.path).name: (entry.action, entry.reason) for entry in plan.entries if entry.action != "insert"}


@pytest.mark.scenario("IO-02", "ID-02", "UP-49", "UP-05", "UP-27", "UP-29", "PM-06", "IO-12")
@pytest.mark.names_stay
def test_a_file_out_of_range_is_neither_read_nor_changed(io: Any, tmp_path: Path) -> None:
    files = three_files(tmp_path / "d")
    for column in ("id", "v"):
        ruin_pages(files[2], column)
    before = tree_of(tmp_path / "d")
    assert verdicts(io, numbers([1]), tmp_path / "d")["part-2.parquet"] == ("keep", "statistics")
    result = io.merge(numbers([1], "new"), str(tmp_path / "d"), **UPSERT)
    after = tree_of(tmp_path / "d")
    assert result.updated == 1
    assert [path for path in before if before[path] != after[path]] == ["part-0.parquet"]


def test_a_file_in_a_gap_between_source_keys_is_not_read(io: Any, tmp_path: Path) -> None:
    files = three_files(tmp_path / "d")
    ruin_pages(files[1], "id")
    source = numbers([1, 25, *range(1000, 1100)], "new")
    assert verdicts(io, source, tmp_path / "d")["part-1.parquet"] == ("keep", "statistics")
    assert io.merge(source, str(tmp_path / "d"), **UPSERT).updated == 2


@pytest.mark.scenario("IO-12", "UP-05", "UP-27")
def test_candidates_are_confirmed_by_key_columns_only(io: Any, tmp_path: Path) -> None:
    """The file has even ids and the source odd ones: the ranges overlap, but no key matches."""
    path = put(tmp_path / "d" / "even.parquet", numbers(list(range(0, 20, 2))))
    ruin_pages(path, "v")
    source = numbers([3, 5, 7], "new")
    action, reason = verdicts(io, source, tmp_path / "d")["even.parquet"]
    assert (action, reason) == ("keep", "key scan")
    assert io.merge(source, str(tmp_path / "d"), **UPSERT).inserted == 3


@pytest.mark.scenario("UP-17", "UP-41")
def test_null_counts_in_the_footer_avoid_a_scan(io: Any, tmp_path: Path) -> None:
    files = three_files(tmp_path / "d")
    for path in files:
        ruin_pages(path, "id")
    assert io.merge(numbers([100], "new"), str(tmp_path / "d"), **UPSERT).inserted == 1


@pytest.mark.scenario("UP-03", "UP-17", "UP-41", "PM-04")
@pytest.mark.parametrize("statistics", [True, False])
def test_a_null_in_a_file_that_cannot_match_is_still_found(io: Any, tmp_path: Path, statistics: bool) -> None:
    three_files(tmp_path / "d")
    put(tmp_path / "d" / "z.parquet", numbers([500, None]), write_statistics=statistics)
    before = tree_of(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)id.*target|target.*id"):
        io.merge(numbers([1], "new"), str(tmp_path / "d"), **UPSERT)
    assert tree_of(tmp_path) == before


@pytest.mark.scenario("IO-03", "ID-03", "UP-50")
def test_missing_statistics_prove_nothing(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2, 3]), write_statistics=False)
    assert io.merge(numbers([2], "new"), str(tmp_path / "d"), **UPSERT).updated == 1


def test_statistics_missing_in_one_row_group_prove_nothing(io: Any, tmp_path: Path) -> None:
    """The second row group has a key that is too long for pyarrow's statistics."""
    long = "m" * 5000
    table = pa.table({"id": ["a", "b", long, "n"], "v": ["old"] * 4})
    put(tmp_path / "d" / "a.parquet", table, row_group_size=2)
    assert not pq.read_metadata(tmp_path / "d" / "a.parquet").row_group(1).column(0).statistics.has_min_max
    result = io.merge(pa.table({"id": [long], "v": ["new"]}), str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)


@pytest.mark.scenario("IO-03", "ID-03")
def test_truncated_statistics_prove_nothing(io: Any, tmp_path: Path) -> None:
    """polars truncates long bounds to 64 bytes and rounds the upper one up."""
    low, high = "a" * 200 + "k", "b" * 200 + "k"
    (tmp_path / "d").mkdir()
    pl.DataFrame({"id": [low, high], "v": ["old", "old"]}).write_parquet(tmp_path / "d" / "a.parquet")
    bounds = pq.read_metadata(tmp_path / "d" / "a.parquet").row_group(0).column(0).statistics
    assert (len(bounds.min), len(bounds.max)) == (64, 64)
    source = pa.table({"id": [low, high, "b" * 201], "v": ["new"] * 3})
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 2)


@pytest.mark.scenario("IO-03", "ID-03", "UP-50")
def test_a_truncated_bound_that_was_not_rounded_up_proves_nothing(io: Any, tmp_path: Path) -> None:
    """Some writers truncate the upper bound without rounding it up, so that it is below the highest value."""
    high = "b" * 200 + "k"
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "a.parquet"
    pl.DataFrame({"id": ["a", high], "v": ["old", "old"]}).write_parquet(path)
    content = path.read_bytes()
    rounded, cut = b"b" * 63 + b"c", b"b" * 64
    assert rounded in content
    path.write_bytes(content.replace(rounded, cut))
    result = io.merge(pa.table({"id": [high], "v": ["new"]}), str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)


def test_statistics_of_floats_with_nan_prove_nothing(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1.0, math.nan, 2.0], "v": ["old"] * 3}))
    source = pa.table({"id": [math.nan, 700.0], "v": ["new", "new"]})
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)


@pytest.mark.names_stay
def test_one_disjoint_column_is_proof_for_a_composite_key(io: Any, tmp_path: Path) -> None:
    keys = {"strategy": "upsert", "key_columns": ["id", "region"]}
    near = put(tmp_path / "d" / "a.parquet", numbers([1, 9], region=["eu", "eu"]))
    far = put(tmp_path / "d" / "b.parquet", numbers([1, 9], region=["us", "us"]))
    for column in ("id", "region", "v"):
        ruin_pages(far, column)
    source = numbers([1], "new", region=["eu"])
    assert verdicts(io, source, tmp_path / "d", **keys)[far.name] == ("keep", "statistics")
    assert io.merge(source, str(tmp_path / "d"), **keys).rewritten_files == [str(near)]


def test_a_nested_column_with_the_same_leaf_name_is_not_used(io: Any, tmp_path: Path) -> None:
    """The statistics of ``info.id`` must not be used for ``id``, in any order of the columns."""
    for name, order in (("a", ["info", "id", "v"]), ("b", ["id", "info", "v"])):
        table = numbers([1 if name == "a" else 2], info=pa.array([{"id": 900}]))
        put(tmp_path / "d" / f"{name}.parquet", table.select(order))
    source = numbers([1, 2, 900], "new", info=pa.array([{"id": 1}] * 3))
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 2)


def test_a_name_with_a_dot_is_not_a_nested_path(io: Any, tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([{"id": 500}]), "a.id": [1], "v": ["old"]})
    put(tmp_path / "d" / "a.parquet", table)
    source = pa.table({"a": pa.array([{"id": 1}]), "a.id": [1], "v": ["new"]})
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["a.id"])
    assert (result.inserted, result.updated) == (0, 1)


@pytest.mark.names_stay
def test_a_bloom_filter_is_proof(io: Any, tmp_path: Path) -> None:
    if getattr(io.engine, "share_limit", None) == 0:
        pytest.skip("the planner has no keys of an exchanged source to look for in a Bloom filter")
    options = {"bloom_filter_options": {"id": {"ndv": 100, "fpp": 0.001}}}
    hit = put(tmp_path / "d" / "a.parquet", pa.table({"id": ["a", "k", "z"], "v": ["old"] * 3}), **options)
    miss = put(tmp_path / "d" / "b.parquet", pa.table({"id": ["a", "x", "z"], "v": ["old"] * 3}), **options)
    ruin_pages(miss, "id")
    source = pa.table({"id": ["k"], "v": ["new"]})
    assert verdicts(io, source, tmp_path / "d") == {
        "a.parquet": ("rewrite", "key scan"),
        "b.parquet": ("keep", "bloom"),
    }
    assert io.merge(source, str(tmp_path / "d"), **UPSERT).rewritten_files == [str(hit)]


@pytest.mark.parametrize("count", [1, 40, 5000])
def test_many_keys_over_many_files(io: Any, tmp_path: Path, count: int) -> None:
    """A merge of many keys loses no row and duplicates none."""
    keys = [((i * 7919) % 6000, f"k{i % 3}") for i in range(6000)]
    for i in range(6):
        part = keys[i * 1000 : (i + 1) * 1000]
        table = numbers([k for k, _ in part], name=[n for _, n in part])
        put(tmp_path / "d" / f"{i}.parquet", table, row_group_size=250)
    chosen = keys[::-1][:count]
    source = numbers([*(k for k, _ in chosen), -1], "new", name=[*(n for _, n in chosen), "k0"])
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id", "name"])
    assert (result.inserted, result.updated, result.total) == (1, count, 6001)
    assert sum(row[1] == "new" for row in look(tmp_path / "d")) == count + 1


@pytest.mark.scenario("UP-28", "UP-30")
def test_only_row_groups_that_match_are_needed_to_confirm(io: Any, tmp_path: Path) -> None:
    """Row groups out of the source's range are not decoded by the key scan."""
    path = put(tmp_path / "d" / "a.parquet", numbers([*range(10), *range(100, 110)]), row_group_size=10)
    groups = pq.read_metadata(path)
    assert groups.num_row_groups == 2
    content = bytearray(path.read_bytes())
    at = groups.row_group(1).column(0)
    start = at.dictionary_page_offset or at.data_page_offset
    content[start : start + at.total_compressed_size] = b"\xff" * at.total_compressed_size
    path.write_bytes(bytes(content))
    plan = io.merge(numbers([3, 50], "new"), str(tmp_path / "d"), strategy="insert", key_columns=["id"], dry_run=True)
    assert plan["inserted"] == 1


@pytest.mark.many_rows
def test_very_many_text_keys_over_bloom_filters(io: Any, tmp_path: Path) -> None:
    """Pruning keeps only the bounds of a large set of keys, which must not be used to probe filters."""
    keys = [f"k{i:08d}" for i in range(260_000)]
    for name, part in (("a", keys[1000:2000]), ("b", keys[200_000:200_010])):
        table = pa.table({"id": part, "v": ["old"] * len(part)})
        put(tmp_path / "d" / f"{name}.parquet", table, bloom_filter_options={"id": {"ndv": 1000}})
    source = pa.table({"id": keys, "v": ["new"] * len(keys)})
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated, result.total) == (258_990, 1_010, 260_000)

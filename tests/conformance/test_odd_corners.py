"""Unusual input: odd names of columns and folders, tables with only keys, larger tables, full dictionaries."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance import oracle
from conformance.effort import for_each
from conformance.rows import bag, rows_of
from fsspeckit.common.errors import SchemaMismatchError
from kit import data_files, look, numbers, put, three_files, tree_of

UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
ODD_COLUMNS = [
    "a.b", "a b", "ü", "%s", "{i}", "select", '"', "'", "file_path", "row", "__row__", "_pos", "index", "key", "source",
    "__index_level_0__", "partition", "op", "count", "ID",
]  # fmt: skip


def check_counts(result: Any, expected: oracle.Outcome, target_count: int) -> None:
    names = ("inserted", "updated", "deleted", "unchanged", "total")
    counts = (expected.inserted, expected.updated, expected.deleted, expected.unchanged, len(expected.rows))
    assert tuple(result[name] for name in names) == counts
    assert result.target_count_before == target_count


def test_odd_column_names(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], **{name: ["old", "old"] for name in ODD_COLUMNS}})
    put(tmp_path / "d" / "a.parquet", table)
    source = pa.table({"id": [2, 3], **{name: ["new", "new"] for name in ODD_COLUMNS}})
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    read = io.read_parquet(str(tmp_path / "d")).sort_by("id")
    assert read.column_names == table.column_names
    assert [set(row.values()) for row in read.to_pylist()] == [{1, "old"}, {2, "new"}, {3, "new"}]


@for_each("name", ODD_COLUMNS)
def test_odd_names_of_key_columns(io: Any, tmp_path: Path, name: str) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({name: ["a", "b"], "v": [1, 1]}))
    result = io.merge(pa.table({name: ["b"], "v": [2]}), str(tmp_path / "d"), strategy="upsert", key_columns=name)
    assert (result.inserted, result.updated) == (0, 1)


@for_each(
    "name",
    ["with space", "ü", "50%", "%20", "a#b", "a?b", "[a]", "*", "{x}", "x.parquet", "a=b", "..d", "'q'", "~d", "-d"],
)
def test_odd_names_of_datasets(io: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    io.write_dataset(numbers([1, 2]), str(path))
    result = io.merge(numbers([2, 3], "new"), str(path), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    assert io.read_parquet(str(path)).num_rows == 3
    assert look(path) == [(1, "old"), (2, "new"), (3, "new")]
    assert sorted(os.listdir(tmp_path)) == sorted([name, f".{name}.fsspeckit"])


def test_a_folder_called_parquet_is_a_source_too(io: Any, tmp_path: Path) -> None:
    """Spark uses such names for its output folders."""
    put(tmp_path / "updates.parquet" / "part-0.parquet", numbers([1, 2], "new"))
    three_files(tmp_path / "d")
    assert io.merge(str(tmp_path / "updates.parquet"), str(tmp_path / "d"), **UPSERT).updated == 2


@for_each("spelling", ["trailing slash", "path object", "relative", "dots", "url", "double slash"])
def test_spellings_of_one_path(io: Any, tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    full = str(tmp_path / "d")
    path: Any = {
        "trailing slash": full + "/",
        "path object": tmp_path / "d",
        "relative": "d",
        "dots": str(tmp_path / "x" / ".." / "d"),
        "url": (tmp_path / "d").as_uri(),
        "double slash": f"{tmp_path}//d",
    }[spelling]
    (tmp_path / "x").mkdir()
    io.write_dataset(numbers([1, 2]), full)
    result = io.merge(numbers([2], "new"), path, **UPSERT)
    assert result.updated == 1
    assert io.read_parquet(path).num_rows == 2
    assert sorted(os.listdir(tmp_path)) == [".d.fsspeckit", "d", "x"]


def test_a_dataset_behind_a_symlink(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    result = io.merge(numbers([1, 99], "new"), str(tmp_path / "link"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    assert (tmp_path / "link").is_symlink()
    assert len(look(tmp_path / "real")) == 31


@pytest.mark.parametrize("strategy", oracle.STRATEGIES)
@pytest.mark.names_stay
def test_a_table_of_keys_alone(io: Any, tmp_path: Path, strategy: str) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1, 2, 3]}))
    before = tree_of(tmp_path / "d")
    result = io.merge(pa.table({"id": [3, 4]}), str(tmp_path / "d"), strategy=strategy, key_columns=["id"])
    expected = oracle.merge([{"id": 1}, {"id": 2}, {"id": 3}], [{"id": 3}, {"id": 4}], strategy, ["id"])
    check_counts(result, expected, 3)
    assert look(tmp_path / "d", "id") == sorted((row["id"],) for row in expected.rows)
    assert (tree_of(tmp_path / "d")["a.parquet"] == before["a.parquet"]) == (strategy != "full_merge")


def test_a_small_dictionary_index_overflows(io: Any, tmp_path: Path) -> None:
    """A dictionary with int8 codes has at most 127 values; a merge that adds more must not fail or lose one."""
    type_ = pa.dictionary(pa.int8(), pa.string())
    texts = [f"t{i}" for i in range(300)]
    for i in range(3):
        part = range(i * 100, (i + 1) * 100)
        table = pa.table({"id": list(part), "v": pa.array([texts[n % 100] for n in part], type_)})
        put(tmp_path / "d" / f"{i}.parquet", table)
    source = pa.table({"id": list(range(0, 300, 2)), "v": [texts[i] for i in range(0, 300, 2)]})
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert result.updated == 150
    expected = [texts[i] if i % 2 == 0 else texts[i % 100] for i in range(300)]
    assert [value for _, value in sorted(look(tmp_path / "d"))] == expected
    assert io.read_parquet(str(tmp_path / "d")).sort_by("id")["v"].to_pylist() == expected
    assert sum(pq.read_table(path).num_rows for path in data_files(tmp_path / "d")) == 300


@pytest.mark.parametrize("operation", ["compact", "optimize", "deduplicate"])
@pytest.mark.parametrize("nested", [False, True])
def test_files_with_too_many_values_for_their_codes_are_not_joined(
    io: Any, tmp_path: Path, operation: str, nested: bool
) -> None:
    """Like categories of pandas, of which each file has its own; with wider codes pyarrow would not read the folder."""
    type_ = pa.dictionary(pa.int8(), pa.string())
    for i in range(6):
        codes = pa.array([f"t{i * 50 + n % 50}" for n in range(100)], type_)
        values = pa.StructArray.from_arrays([codes], ["inner"]) if nested else codes
        put(tmp_path / "d" / f"{i}.parquet", pa.table({"id": range(i * 100, (i + 1) * 100), "v": values}))
    before, path = tree_of(tmp_path / "d"), str(tmp_path / "d")
    run = {
        "compact": partial(io.compact_parquet_dataset, path, target_rows_per_file=1000),
        "optimize": partial(io.optimize_parquet_dataset, path, ["id"], target_rows_per_file=1000),
        "deduplicate": partial(
            io.optimize_parquet_dataset, path, None, deduplicate_key_columns=["id"], target_rows_per_file=1000
        ),
    }[operation]
    with pytest.raises(SchemaMismatchError, match=r"\['v'\].*codes of 32 bits"):
        run()
    assert tree_of(tmp_path / "d") == before
    assert pq.read_table(path).num_rows == 600


@pytest.mark.scenario("UP-05", "UP-28", "UP-30", "UP-31", "UP-32", "PM-06")
@pytest.mark.parametrize("strategy", oracle.STRATEGIES)
@pytest.mark.parametrize("order", ["sorted", "clustered", "random"])
def test_larger_tables(io: Any, tmp_path: Path, rng: random.Random, strategy: str, order: str) -> None:
    """Thousands of rows in many row groups, which use pruning, sorted joins and batches."""
    ids = rng.sample(range(-20_000, 20_000), 6_000)
    if order != "random":
        ids.sort()
    chunks = [ids[i : i + 1_000] for i in range(0, 6_000, 1_000)]
    if order == "clustered":
        for chunk in chunks:
            rng.shuffle(chunk)
    for i, chunk in enumerate(chunks):
        rows = numbers([*chunk], [f"v{n % 7}" for n in chunk])
        put(tmp_path / "d" / f"{i}.parquet", rows, row_group_size=rng.choice([100, 333, 5_000]))
    low = rng.choice([-20_000, 0, 15_000])
    wanted = rng.sample(range(low, low + 6_000), 1_500)
    source = numbers([*wanted], [f"v{n % 7}" if n % 3 else "new" for n in wanted])
    target = [row for i in range(6) for row in rows_of(pq.read_table(tmp_path / "d" / f"{i}.parquet"))]
    expected = oracle.merge(target, rows_of(source), strategy, ["id"])
    options = {"batch_rows": rng.choice([None, 64, 1_000]), "max_rows_per_file": rng.choice([100, 1_000_000])}
    result = io.merge(source, str(tmp_path / "d"), strategy=strategy, key_columns=["id"], **options)
    check_counts(result, expected, 6_000)
    assert bag(rows_of(io.read_parquet(str(tmp_path / "d")))) == bag(expected.rows)
    assert max(pq.read_metadata(path).num_rows for path in data_files(tmp_path / "d")) <= 1_500

"""The order of categories, as pandas reads it, after every operation that writes rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import SchemaMismatchError
from kit import put, tree_of

SIZES = ["XS", "S", "M", "L", "XL"]
"""All categories: XS and XL are in no row."""
UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}


def sizes(values: list[str | None], categories: list[str] = SIZES) -> pd.Categorical:
    return pd.Categorical(values, categories=categories, ordered=True)


def frame(ids: list[int], values: list[str | None], categories: list[str] = SIZES) -> pd.DataFrame:
    return pd.DataFrame({"id": ids, "size": sizes(values, categories), "v": [1.0] * len(ids)})


def text(ids: list[int], values: list[str | None]) -> pa.Table:
    return pa.table({"id": ids, "size": values, "v": [2.0] * len(ids)})


def one_file(folder: Path) -> str:
    """A dataset of one file with three row groups."""
    put(folder / "a.parquet", pa.Table.from_pandas(frame([1, 2, 3], ["S", "M", "L"])), row_group_size=1)
    return str(folder)


def two_files(folder: Path) -> str:
    one_file(folder)
    put(folder / "b.parquet", pa.Table.from_pandas(frame([11, 12, 13], ["L", None, "M"])))
    return str(folder)


def check(folder: str, categories: list[str] = SIZES) -> dict[int, str | None]:
    """Return the values by id. Every file, and the folder, have all categories in their order."""
    for file in sorted(Path(folder).rglob("*.parquet")):
        found = pd.read_parquet(file)["size"]
        assert list(found.cat.categories) == categories, file
        assert found.cat.ordered
    read = pq.read_table(folder).to_pandas()
    assert list(read["size"].cat.categories) == categories
    assert read["size"].cat.ordered
    return {i: None if pd.isna(value) else value for i, value in zip(read["id"], read["size"], strict=True)}


REWRITES: dict[str, Callable[[Any, str], Any]] = {
    "delete": lambda io, folder: io.delete(folder, where="id IN (2, 11)"),
    "update another column": lambda io, folder: io.update(folder, set={"v": "v + 1"}, where="id IN (2, 11)"),
    "update": lambda io, folder: io.update(folder, set={"size": "'XL'"}, where="id IN (1, 13)"),
    "update by a condition": lambda io, folder: io.update(
        folder, set={"size": "CASE WHEN id = 1 THEN 'XL' ELSE size END"}, where="id < 12"
    ),
    "compact": lambda io, folder: io.compact_parquet_dataset(folder, target_rows_per_file=100),
    "optimize": lambda io, folder: io.optimize_parquet_dataset(folder, zorder_columns=["v", "id"]),
    "sort by the categories": lambda io, folder: io.optimize_parquet_dataset(folder, zorder_columns=["size"]),
    "deduplicate": lambda io, folder: io.deduplicate_parquet_dataset(folder, key_columns=["v"]),
    "merge text": lambda io, folder: io.merge(text([1, 13, 30], ["XL", "XS", "L"]), folder, **UPSERT),
    "insert text": lambda io, folder: io.merge(text([30], ["L"]), folder, strategy="insert", key_columns=["id"]),
    "full merge": lambda io, folder: io.merge(
        text([3, 30], ["L", "M"]), folder, **{**UPSERT, "strategy": "full_merge"}
    ),
    "merge part of the columns": lambda io, folder: io.merge(
        text([3, 11], ["XS", "S"]), folder, **UPSERT, update_columns=["size"]
    ),
    "append": lambda io, folder: io.write_dataset(text([30], ["L"]), folder, mode="append"),
    "replace": lambda io, folder: io.write_dataset(text([3], ["S"]), folder, mode="overwrite", replace_where="id >= 3"),
    "apply_changes": lambda io, folder: io.apply_changes(
        text([2, 30], ["L", "M"]), folder, key_columns=["id"], sequence_by="v"
    ),
    "add a column": lambda io, folder: io.merge(
        text([2], ["L"]).append_column("w", pa.array([1])), folder, **UPSERT, schema_mode="evolve"
    ),
}


@pytest.mark.parametrize("kind", REWRITES)
def test_every_rewrite_keeps_the_categories(io: Any, tmp_path: Path, kind: str) -> None:
    folder = two_files(tmp_path / "d")
    REWRITES[kind](io, folder)
    assert check(folder)


SOURCES: dict[str, Callable[[list[int], list[str]], Any]] = {
    "text": text,
    "pandas": frame,
    "pandas in another order": lambda ids, values: frame(ids, values, SIZES[::-1]),
    "pandas with fewer categories": lambda ids, values: frame(ids, values, sorted(set(values))),
    "pandas without order": lambda ids, values: pd.DataFrame(
        {"id": ids, "size": pd.Categorical(values), "v": [1.0] * len(ids)}
    ),
    "polars text": lambda ids, values: pl.DataFrame({"id": ids, "size": values, "v": [1.0] * len(ids)}),
    "polars Categorical": lambda ids, values: pl.DataFrame(
        {"id": ids, "size": values, "v": [1.0] * len(ids)}, schema_overrides={"size": pl.Categorical}
    ),
    "polars Enum": lambda ids, values: pl.DataFrame(
        {"id": ids, "size": values, "v": [1.0] * len(ids)}, schema_overrides={"size": pl.Enum(["XXL", *SIZES[::-1]])}
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_sources_are_converted_to_the_categories_of_the_dataset(io: Any, tmp_path: Path, kind: str) -> None:
    folder = two_files(tmp_path / "d")
    io.merge(SOURCES[kind]([2, 11, 30], ["XL", "XS", "XS"]), folder, **UPSERT)
    merged = {1: "S", 2: "XL", 3: "L", 11: "XS", 12: None, 13: "M", 30: "XS"}
    assert check(folder) == merged
    io.write_dataset(SOURCES[kind]([40, 41], ["XS", "M"]), folder, mode="append")
    assert check(folder) == merged | {40: "XS", 41: "M"}


@pytest.mark.parametrize("kind", ["text", "polars Enum"])
@pytest.mark.parametrize("verb", ["merge", "append", "apply_changes"])
def test_a_value_that_is_no_category_is_an_error(io: Any, tmp_path: Path, kind: str, verb: str) -> None:
    folder = two_files(tmp_path / "d")
    source = SOURCES[kind]([2, 30], ["M", "XXL"])
    calls: dict[str, Callable[[], Any]] = {
        "merge": lambda: io.merge(source, folder, **UPSERT),
        "append": lambda: io.write_dataset(source, folder, mode="append"),
        "apply_changes": lambda: io.apply_changes(source, folder, key_columns=["id"], sequence_by="v"),
    }
    before = tree_of(tmp_path)
    with pytest.raises(SchemaMismatchError, match=r"'size' has the value 'XXL', .*\['XS', 'S', 'M', 'L', 'XL'\]"):
        calls[verb]()
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("value", ["'XXL'", "CASE WHEN id = 1 THEN 'XXL' ELSE size END"])
def test_an_update_to_a_value_that_is_no_category_is_an_error(io: Any, tmp_path: Path, value: str) -> None:
    folder = two_files(tmp_path / "d")
    before = pq.read_table(folder)
    with pytest.raises(SchemaMismatchError, match=r"'size' has the value 'XXL', .*\['XS', 'S', 'M', 'L', 'XL'\]"):
        io.update(folder, set={"size": value}, where="id < 12")
    assert pq.read_table(folder).equals(before)


def test_history_rows_have_the_categories(io: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "d")
    history: dict[str, Any] = {"key_columns": ["id"], "sequence_by": "v", "columns": ["size"], "scd_type": 2}
    first = frame([1, 2], ["S", "M"])
    put(
        tmp_path / "d" / "a.parquet",
        pa.table(
            {
                "id": first["id"],
                "size": pa.Array.from_pandas(first["size"]),
                "valid_from": [1.0, 1.0],
                "valid_to": pa.nulls(2, pa.float64()),
                "is_current": [True, True],
            }
        ),
    )
    io.apply_changes(text([2, 3], ["XL", "XS"]), folder, **history)
    check(folder)
    read = io.read_parquet(folder, filters="is_current").sort_by("id")
    assert read["size"].to_pylist() == ["S", "XL", "XS"]
    with pytest.raises(SchemaMismatchError, match="'size' has the value 'XXL'"):
        io.apply_changes(text([2], ["XXL"]), folder, **history)


def test_a_new_history_has_the_categories_of_the_feed(io: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "d")
    for ids, values in (([1, 2], ["L", "S"]), ([1], ["M"])):
        feed = frame(ids, values).assign(v=[float(len(values) == 1)] * len(ids))
        io.apply_changes(feed, folder, key_columns=["id"], sequence_by="v", scd_type=2)
        check(folder)


EMPTIED: dict[str, Callable[[Any, str], Any]] = {
    "delete": lambda io, folder: io.delete(folder, where="true"),
    "full merge": lambda io, folder: io.merge(
        frame([1], ["S"]).iloc[:0], folder, **{**UPSERT, "strategy": "full_merge"}
    ),
    "replace": lambda io, folder: io.write_dataset(
        frame([1], ["S"]).iloc[:0], folder, mode="overwrite", replace_where="true"
    ),
}


@pytest.mark.parametrize("kind", EMPTIED)
def test_a_dataset_without_rows_keeps_the_order(io: Any, tmp_path: Path, kind: str) -> None:
    folder = two_files(tmp_path / "d")
    EMPTIED[kind](io, folder)
    assert not io.read_parquet(folder).schema.field("size").metadata
    io.write_dataset(text([1, 2], ["XL", "S"]), folder, mode="append")
    assert check(folder) == {1: "XL", 2: "S"}


def test_an_order_that_no_file_has_is_not_invented(io: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "d")
    put(tmp_path / "d" / "a.parquet", pa.Table.from_pandas(frame([1], ["S"])).slice(0, 0))
    for call in (
        lambda: io.write_dataset(text([1], ["XL"]), folder, mode="append"),
        lambda: io.merge(text([1], ["XL"]), folder, **UPSERT),
    ):
        with pytest.raises(SchemaMismatchError, match="'size' has ordered categories, and no file has their order"):
            call()
    io.write_dataset(frame([1], ["XL"]), folder, mode="append")
    io.merge(text([2], ["XS"]), folder, **UPSERT)
    assert pd.read_parquet(folder)["size"].max() == "XL"


def test_a_value_may_be_a_category_of_another_file(io: Any, tmp_path: Path) -> None:
    """Readers join the categories of all files in the order of their names."""
    folder = str(tmp_path / "d")
    put(tmp_path / "d" / "a.parquet", pa.Table.from_pandas(frame([1], ["S"], ["S", "M"])))
    put(tmp_path / "d" / "b.parquet", pa.Table.from_pandas(frame([2], ["L"], ["S", "L"])))
    io.merge(text([3], ["L"]), folder, **UPSERT)
    read = pq.read_table(folder).to_pandas()["size"].cat
    assert (list(read.categories), read.ordered) == (["S", "M", "L"], True)
    with pytest.raises(SchemaMismatchError, match=r"'XXL', .*\['S', 'M', 'L'\]"):
        io.merge(text([3], ["XXL"]), folder, **UPSERT)


def test_new_files_of_partitions_have_all_categories(io: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "d")
    source = frame([1, 2, 3], ["S", "L", "M"]).assign(p=["a", "b", "c"])
    io.write_dataset(source, folder, partition_by=["p"])
    check(folder)
    io.merge(text([2, 4], ["M", "XS"]).append_column("p", pa.array(["b", "d"])), folder, **UPSERT)
    io.update(folder, set={"p": "'e'"}, where="id = 3")
    assert check(folder) == {1: "S", 2: "M", 3: "M", 4: "XS"}


def test_files_without_a_dictionary_page_get_one(io: Any, tmp_path: Path) -> None:
    """Readers of plain values take the order of the rows."""
    put(tmp_path / "a.parquet", pa.Table.from_pandas(frame([1, 2, 3], ["M", "L", "S"])), use_dictionary=False)
    io.delete(str(tmp_path), where="id = 1")
    assert check(str(tmp_path), ["M", "L", "S"]) == {2: "L", 3: "S"}


ENUM = pa.field("size", pa.dictionary(pa.uint8(), pa.string()), metadata={"_PL_ENUM_VALUES2": "1;S1;M1;L"})


def test_an_enum_of_polars_keeps_its_values_in_every_file(io: Any, tmp_path: Path) -> None:
    """Older versions of polars read it from dictionary pages with all values in order, and other values as null."""
    root, path = tmp_path / "d", str(tmp_path / "d")
    schema = pa.schema([("id", pa.int64()), ENUM, ("v", pa.float64())])
    for number, ids in enumerate(([1, 2], [3, 4], [5, 6])):
        sizes = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint8()), ["S", "M", "L"])
        put(root / f"{number}.parquet", pa.table([pa.array(ids), sizes, pa.array([1.0, 1.0])], schema=schema))
    frame = pl.DataFrame(
        {"id": [1, 9], "size": ["L", "L"], "v": [1.0, 1.0]}, schema_overrides={"size": pl.Enum(["S", "M", "L"])}
    )
    result = io.merge(frame, path, **UPSERT)
    assert (len(result.rewritten_files), result.inserted) == (1, 1)
    io.update(path, set={"size": "'M'"}, where="id = 3")
    for change in (lambda: None, lambda: io.compact_parquet_dataset(path, target_rows_per_file=100)):
        change()
        for file in sorted(root.glob("*.parquet")):
            stored = pq.ParquetFile(file)
            assert stored.schema_arrow.field("size").equals(ENUM, check_metadata=True)
            assert "RLE_DICTIONARY" in stored.metadata.row_group(0).column(1).encodings
            assert stored.read()["size"].combine_chunks().dictionary.to_pylist() == ["S", "M", "L"]
    read = io.read_parquet(path).sort_by("id")
    assert read["size"].to_pylist() == ["L", "M", "M", "M", "S", "M", "L"]
    for data in (text([1], ["XL"]), text([50], ["XL"])):
        with pytest.raises(SchemaMismatchError, match=r"'size' has the value 'XL', .*\['S', 'M', 'L'\]"):
            io.merge(data, path, **UPSERT)

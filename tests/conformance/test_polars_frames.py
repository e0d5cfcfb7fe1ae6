"""Nested columns of polars frames, whose texts are string views, in every operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inside import plain_schema

NESTED: dict[str, tuple[pl.DataType, list[Any]]] = {
    "list of text": (pl.List(pl.String()), [["a"], ["b", None, "a text that is longer than a short one"], None, []]),
    "struct of text": (pl.Struct({"x": pl.String(), "n": pl.Int64()}), [{"x": "a", "n": 1}, None, {"x": None, "n": 2}]),
    "array of text": (pl.Array(pl.String(), 2), [["a", "b"], None, ["c", None]]),
    "list of structs": (
        pl.List(pl.Struct({"b": pl.Binary()})),
        [[{"b": b"x"}, {"b": None}], None, [], [None]],
    ),
    "list of lists": (pl.List(pl.List(pl.String())), [[["a"], None], None, [[]], [["b", "c"]]]),
    "text": (pl.String(), ["a", None, "a text that is longer than a short one"]),
    "category": (pl.Categorical(), ["a", None, "b"]),
}


def frame(kind: str, ids: list[int], shift: int = 0) -> pl.DataFrame:
    type_, values = NESTED[kind]
    column = pl.Series([values[(i + shift) % len(values)] for i in ids], dtype=type_)
    return pl.DataFrame({"id": ids, "v": column})


def rows(io: Any, folder: str) -> dict[int, Any]:
    found = {row["id"]: row["v"] for row in io.read_parquet(folder).to_pylist()}
    assert len(found) == pq.read_table(folder).num_rows
    return found


def expected(*frames: pl.DataFrame) -> dict[int, Any]:
    return {row["id"]: row["v"] for frame in frames for row in frame.to_dicts()}


@pytest.mark.parametrize("kind", NESTED)
def test_operations_on_nested_texts_of_polars(io: Any, tmp_path: Path, kind: str) -> None:
    folder = str(tmp_path / "d")
    old, changed, same = frame(kind, list(range(12))), frame(kind, [3, 5, 6, 20], shift=1), frame(kind, [7, 9])
    io.write_dataset(old, folder)
    result = io.merge(pl.concat([changed, same]), folder, strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated) == (1, 5)
    assert rows(io, folder) == expected(old, changed)

    io.write_dataset(frame(kind, [3, 30]), folder, mode="append")
    io.deduplicate_parquet_dataset(folder, key_columns=["id"], dedup_order_by=["id"])
    io.compact_parquet_dataset(folder, target_rows_per_file=1000)
    assert rows(io, folder).keys() == {*range(12), 20, 30}

    final = frame(kind, list(range(2, 25)), shift=2)
    io.merge(final, folder, strategy="full_merge", key_columns=["id"])
    assert rows(io, folder) == expected(final)
    io.optimize_parquet_dataset(folder, zorder_columns=["id"])
    assert rows(io, folder) == expected(final)


@pytest.mark.parametrize("kind", ["list of text", "struct of text"])
def test_files_whose_stored_schema_has_nested_views(io: Any, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    ids = {"list of text": range(12), "struct of text": range(0, 12, 3)}[kind]  # pyarrow cannot write a null struct
    old = frame(kind, list(ids))
    pq.write_table(pa.table(old), folder / "a.parquet")
    pq.write_table(pa.table(old.with_columns(pl.col("id") + 100)), folder / "b.parquet")
    assert plain_schema(pq.read_schema(folder / "a.parquet")) != pq.read_schema(folder / "a.parquet")
    before = expected(old, old.with_columns(pl.col("id") + 100))

    assert rows(io, str(folder)) == before
    changed = frame(kind, [3, 6, 103, 400], shift=1)
    io.merge(changed, str(folder), strategy="upsert", key_columns=["id"])
    assert rows(io, str(folder)) == before | expected(changed)
    io.compact_parquet_dataset(str(folder), target_rows_per_file=1000)
    assert rows(io, str(folder)) == before | expected(changed)

"""Equal keys get equal codes, independent of their type; lookups agree with a Python dict."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import KeyColumnError, SchemaMismatchError
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import KeyChoice, select_rows
from fsspeckit.core.model import KeyColumn
from fsspeckit.core.values.keys import KeyIndex, comparable, duplicate_codes, key_type, last_of_each, order_rank
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

NAN = float("nan")


def column(values, type_=None):
    return pa.chunked_array([pa.array(values, type_)])


def found(source, target, *more):
    """Return pairs of target position and source row for columns given as (source, target)."""
    pairs = [(source, target), *more]
    index = KeyIndex([comparable(a, key_type(a.type)) for a, _ in pairs])
    positions, rows = index.lookup([comparable(b, key_type(a.type)) for a, b in pairs])
    return list(zip(positions.tolist(), rows.tolist(), strict=True))


small = st.integers(-6, 6)


@settings(max_examples=200)
@given(st.lists(small, unique=True), st.lists(small), st.booleans())
def test_integer_lookup_agrees_with_a_dict(source, target, in_order):
    target = sorted(target) if in_order else target
    expected = [(i, source.index(value)) for i, value in enumerate(target) if value in source]
    assert found(column(source, pa.int64()), column(target, pa.int64())) == expected


@settings(max_examples=200)
@given(
    st.lists(st.tuples(small, st.text("ab", max_size=2)), unique=True),
    st.lists(st.tuples(small, st.text("ab", max_size=2))),
)
def test_composite_keys_are_tuples(source, target):
    numbers = (column([a for a, _ in source], pa.int64()), column([a for a, _ in target], pa.int64()))
    texts = (column([b for _, b in source], pa.string()), column([b for _, b in target], pa.string()))
    expected = [(i, source.index(value)) for i, value in enumerate(target) if value in source]
    assert found(*numbers, texts) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (column([1.0, NAN, 0.0]), column([NAN, -0.0, 2.0, 1.0])),
        (column(["b", "a"]), column(["a", "x", "b"], pa.large_string())),
        (column(["b", "a"]), pa.chunked_array([pa.array(["a", "x", "b"]).dictionary_encode()])),
        (
            column([Decimal("1.50"), Decimal("2")], pa.decimal128(9, 2)),
            column([Decimal("2.0"), Decimal("1.5")], pa.decimal64(9, 1)),
        ),
        (column([1_000_000, 2_000_000], pa.timestamp("us")), column([2_000, 1_000], pa.timestamp("ms"))),
        (column([2**64 - 1, 5], pa.uint64()), column([5, 2**64 - 1], pa.uint64())),
    ],
)
def test_keys_are_compared_by_value(source, target):
    values = [None if v != v else v for v in (source.to_pylist())]
    wanted = [None if v != v else v for v in (target.cast(source.type).to_pylist())]
    expected = [(i, values.index(v)) for i, v in enumerate(wanted) if v in values]
    assert found(source, target) == expected


def test_null_equals_null_in_an_index():
    source, target = column([None, 1], pa.int64()), column([1, None, 2, None], pa.int64())
    assert found(source, target) == [(0, 1), (1, 0), (3, 0)]


def test_null_equals_null_over_many_chunks():
    source = pa.chunked_array([["a", None], ["b"]])
    target = pa.chunked_array([["b", None], [None, "x"]])
    assert found(source, target) == [(0, 2), (1, 1), (2, 1)]


def test_codes_of_many_wide_columns_do_not_overflow():
    values = list(range(2000))
    parts = [column([(v * k) % 2003 for v in values], pa.int64()) for k in range(1, 9)]
    index = KeyIndex(parts)
    positions, rows = index.lookup(parts)
    assert positions.tolist() == rows.tolist() == values


def test_nested_keys_are_rejected():
    with pytest.raises(SchemaMismatchError, match="flat columns"):
        key_type(pa.list_(pa.int64()))


def test_duplicates_are_counted():
    codes, counts = duplicate_codes(np.array([3, 1, 3, 2, 3, 1]))
    assert (codes.tolist(), counts.tolist()) == ([1, 3], [2, 3])
    assert len(duplicate_codes(np.array([1, 2, 3]))[0]) == 0


def test_order_has_nulls_lowest_and_nan_highest():
    ranks = order_rank(column([1.0, None, NAN, -0.0, 0.0, -5.0])).tolist()
    assert ranks == [2, -1, 3, 1, 1, 0]
    days = order_rank(column([dt.date(2026, 1, 2), None, dt.date(2025, 1, 1)])).tolist()
    assert days == [1, -1, 0]


def test_row_with_the_highest_rank_is_kept_and_ties_keep_the_later_row():
    codes = np.array([7, 8, 7, 7, 8])
    ranks = np.array([5, 1, 9, 9, 0])
    assert last_of_each(codes, [ranks]).tolist() == [1, 3]
    assert last_of_each(codes, []).tolist() == [3, 4]


def test_uuids_of_duckdb_are_keys(tmp_path):
    """DuckDB writes the UUID type, and pyarrow reads it as an extension type."""
    folder = tmp_path / "t"
    folder.mkdir()
    first, second = (f"00000000-0000-0000-0000-00000000000{i}" for i in (1, 2))
    duckdb.sql(f"copy (select '{first}'::uuid as id, 1 as v) to '{folder}/a.parquet'")
    io = PyarrowDatasetIO()
    old = io.read_parquet(folder)
    duckdb.sql(f"copy (select unnest(['{first}', '{second}'])::uuid as id, 7 as v) to '{tmp_path}/new.parquet'")
    result = io.merge(tmp_path / "new.parquet", folder, strategy="upsert", key_columns="id")
    assert result.stats() == {"inserted": 1, "updated": 1, "deleted": 0, "total": 2}
    assert io.read_parquet(folder).schema == old.schema
    assert duckdb.sql(f"select id::text, v from '{folder}/*.parquet' order by id").fetchall() == [
        (first, 7),
        (second, 7),
    ]


@settings(max_examples=100)
@given(st.lists(st.text("abc", max_size=3), unique=True), st.lists(st.text("abc", max_size=3)), st.integers(1, 3))
def test_unique_texts_in_several_chunks_are_found(source, target, step):
    cut = [pa.array(source[at : at + step], pa.string()) for at in range(0, len(source), step)]
    wanted = [(i, source.index(text)) for i, text in enumerate(target) if text in source]
    assert found(pa.chunked_array(cut, pa.string()), column(target, pa.string())) == wanted


@pytest.mark.parametrize("type_", [pa.string(), pa.decimal128(9, 2), pa.float64()])
def test_duplicate_non_numeric_keys_are_detected(type_):
    values = column([str(i) for i in range(50)], pa.string()).cast(type_)
    once = Source(pa.table({"k": values}))
    twice = Source(pa.table({"k": pa.chunked_array([*values.chunks, values.chunk(0).slice(7, 1)])}))
    assert select_rows(once, [KeyColumn("k", type_)], KeyChoice(None)) == range(50)
    kept = select_rows(twice, [KeyColumn("k", type_)], KeyChoice("last"))
    assert kept.tolist() == [i for i in range(51) if i != 7]
    with pytest.raises(KeyColumnError, match=r"1 duplicate key"):
        select_rows(twice, [KeyColumn("k", type_)], KeyChoice(None))

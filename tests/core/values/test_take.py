"""Take and replace rows for types with and without Arrow kernels, compared with Python lists."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from fsspeckit.core.values.take import (
    replace_rows,
    share_codes,
    take_ascending,
    take_rows,
    used_codes,
    with_one_dictionary,
)
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

COLUMNS = {
    "int": pa.array([1, 2, None, 4, 5, 6]),
    "bool": pa.array([True, None, False, True, True, False]),
    "string": pa.array(["a", "bb", None, "d", "e", "f"]),
    "string_view": pa.array(["a", "bb", None, "d", "e", "f"], pa.string_view()),
    "binary_view": pa.array([b"a", b"bb", None, b"d", b"e", b"f"], pa.binary_view()),
    "dictionary": pa.array(["a", "b", None, "a", "b", "c"]).dictionary_encode(),
    "list": pa.array([[1], [], None, [2, 3], [4], [5]]),
    "struct": pa.array([{"x": i} for i in range(6)]),
    "struct_of_view": pa.array([{"x": str(i)} for i in range(6)], pa.struct([("x", pa.string_view())])),
    "decimal": pa.array([1, 2, None, 4, 5, 6], pa.decimal256(50, 2)),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("positions", [[0], [5], [1, 2, 3], [0, 2, 5], [0, 1, 2, 3, 4, 5]])
def test_rows_are_replaced_in_place(name, positions):
    table = pa.table({"c": COLUMNS[name]})
    source = take_rows(table, np.array([3, 4, 5, 0, 1, 2])[: len(positions)])
    expected = table["c"].to_pylist()
    for position, value in zip(positions, source["c"].to_pylist(), strict=True):
        expected[position] = value
    result = replace_rows(table, np.array(positions), source)
    assert result["c"].to_pylist() == expected
    assert result.schema == table.schema


@pytest.mark.parametrize("positions", [[1, 2], [0, 3]])
def test_values_missing_in_the_dictionary_are_added(positions):
    table = pa.table({"c": pa.array(["a", "b", None, "a"]).dictionary_encode()})
    shared, source = share_codes(table, pa.table({"c": ["new", None]}))
    result = replace_rows(shared, np.array(positions), source)
    expected = ["a", "b", None, "a"]
    expected[positions[0]], expected[positions[1]] = "new", None
    assert result["c"].to_pylist() == expected
    assert result.schema == table.schema


@pytest.mark.parametrize("name", COLUMNS)
def test_taken_rows_keep_their_order(name):
    table = pa.table({"c": pa.chunked_array([COLUMNS[name].slice(0, 2), COLUMNS[name].slice(2)])})
    for rows in ([], [1, 2, 3], [0, 3, 5]):
        assert take_ascending(table, np.array(rows, dtype=np.int64))["c"].to_pylist() == [
            COLUMNS[name][i].as_py() for i in rows
        ]


def test_polars_categories_are_written_and_used_as_keys(tmp_path):
    """polars exports categories as dictionaries of string views, for which Arrow has few kernels."""
    frame = pl.DataFrame(
        {"id": ["a", "b"], "kind": ["x", None]}, schema={"id": pl.Categorical, "kind": pl.Enum(["x", "y"])}
    )
    io = PyarrowDatasetIO()
    io.write_dataset(frame, tmp_path / "t")
    assert io.merge(frame, tmp_path / "t", strategy="upsert", key_columns="id").unchanged == 2
    assert io.read_parquet(tmp_path / "t").to_pylist() == [{"id": "a", "kind": "x"}, {"id": "b", "kind": None}]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32()])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "chunks", [[[1, 3, 1]], [[None, None]], [[3], [None, 0]], [[0, 1, 2, 3]], [[], [2]], [[]]], ids=str
)
def test_unused_dictionary_values_are_removed(index, ordered, chunks):
    values = pa.array(["d", "a", "c", "b"])
    coded = [pa.DictionaryArray.from_arrays(pa.array(chunk, index), values, ordered=ordered) for chunk in chunks]
    table = pa.table({"n": range(sum(map(len, chunks))), "c": pa.chunked_array(coded)})
    result = used_codes(table)
    assert result.to_pylist() == table.to_pylist()
    assert result.schema == table.schema
    used = {code for chunk in chunks for code in chunk if code is not None}
    kept = range(4) if ordered else sorted(used)  # the order of the values is that of the whole dictionary
    assert result["c"].chunk(0).dictionary.to_pylist() == [values[code].as_py() for code in kept]


def test_dictionaries_that_cannot_be_joined_are_encoded_again():
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["a", None, "b"]))
    other = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["c"]))
    lists = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array([[1], [2, 3]]))
    for chunks, expected in (([with_null, other], ["a", None, "b", "c", None]), ([lists] * 2, [[2, 3], [1], None] * 2)):
        assert with_one_dictionary(pa.table({"a": pa.chunked_array(chunks)}))["a"].to_pylist() == expected

"""Better types for text and wide numbers lose nothing and keep every row in its place."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common.schema import opt_dtype


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["1", None, "-3", "0"], pa.int64()),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["1.5", "0.1", None], pa.float64()),
        (["1.50"], pa.string()),
        (["1", "1.5"], pa.string()),
        (["nan"], pa.string()),
        (["01"], pa.string()),
        (["+1"], pa.string()),
        (["-0"], pa.string()),
        (["\u0661"], pa.string()),
        ([" 1"], pa.string()),
        ([""], pa.string()),
        (["true", None, "false"], pa.bool_()),
        (["True"], pa.string()),
        (["2024-02-29"], pa.date32()),
        (["2024-02-30"], pa.string()),
        (["20240229"], pa.int64()),
        (["2024-02-29 01:02:03", "2024-02-29 01:02:03.500000"], pa.timestamp("us")),
        (["2024-02-29T01:02:03"], pa.timestamp("us")),
        (["2024-02-29T01:02:03", "2024-02-29 01:02:03"], pa.string()),
        (["2024-02-29T01:02:03Z"], pa.string()),
        ([None, None], pa.string()),
        ([], pa.string()),
    ],
    ids=str,
)
def test_text_gets_the_type_its_values_are_written_in(texts: list[str | None], type_: pa.DataType) -> None:
    table = opt_dtype(pa.table({"a": pa.array(texts, pa.string())}))
    assert table.schema.field("a").type == type_
    assert [value is None for value in table.column("a").to_pylist()] == [text is None for text in texts]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_every_string_kind_is_looked_at(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array(["7", None], kind), pa.array(["8", "7"], kind)])
    assert opt_dtype(pa.table({"a": column})).to_pydict() == {"a": [7, None, 8, 7]}


def test_dictionary_values_that_no_row_uses_do_not_matter() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["1", "unused"]))
    assert opt_dtype(pa.table({"a": column})).column("a").to_pylist() == [1, None]


@given(
    st.lists(
        st.none()
        | st.integers(-(2**63), 2**63 - 1).map(str)
        | st.floats(allow_nan=False).map(repr)
        | st.text(max_size=3)
    )
)
def test_the_text_can_always_be_had_back(texts: list[str | None]) -> None:
    column = opt_dtype(pa.table({"a": pa.array(texts, pa.string())})).column("a")
    back = [
        None if value is None else repr(value) if isinstance(value, float) else str(value)
        for value in column.to_pylist()
    ]
    assert back == texts


def test_the_type_depends_on_the_values_alone_not_on_their_order_or_chunks(rng: random.Random) -> None:
    texts = ["1", "2", None, "x", "3"] * 5
    rng.shuffle(texts)
    chunks = pa.chunked_array([texts[:7], texts[7:]])
    assert opt_dtype(pa.table({"a": chunks})).schema.field("a").type == pa.string()


def test_rows_stay_together_and_other_columns_stay_as_they_are() -> None:
    table = pa.table({"n": ["1", None, "3"], "d": ["2024-01-01", "2024-01-02", None], "x": [1.5, None, 2.5]})
    assert opt_dtype(table).to_pylist() == [
        {"n": 1, "d": dt.date(2024, 1, 1), "x": 1.5},
        {"n": None, "d": dt.date(2024, 1, 2), "x": None},
        {"n": 3, "d": None, "x": 2.5},
    ]


def test_include_and_exclude_choose_columns_and_unknown_names_are_refused() -> None:
    table = pa.table({"a": ["1"], "b": ["1"], "c": ["1"]})
    assert opt_dtype(table, include=["a", "b"], exclude=["b"]).schema.types == [pa.int64(), pa.string(), pa.string()]
    with pytest.raises(KeyError, match="nope"):
        opt_dtype(table, include=["nope"])


@pytest.mark.parametrize(
    ("values", "type_", "narrow"),
    [
        ([1, None, -128], pa.int64(), pa.int8()),
        ([128], pa.int64(), pa.int16()),
        ([2**40], pa.int64(), pa.int64()),
        ([255], pa.uint64(), pa.uint8()),
        ([5], pa.int8(), pa.int8()),
        ([1.0], pa.float64(), pa.float64()),
    ],
    ids=str,
)
def test_integers_shrink_only_when_asked(values: list[int | None], type_: pa.DataType, narrow: pa.DataType) -> None:
    table = pa.table({"a": pa.array(values, type_)})
    assert opt_dtype(table) == table
    small = opt_dtype(table, shrink_numerics=True)
    assert small.schema.field("a").type == narrow
    assert small.column("a").to_pylist() == values

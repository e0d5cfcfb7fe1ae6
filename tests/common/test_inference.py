"""Better types for text and wide numbers lose nothing and keep every row in its place."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common.schema import opt_dtype


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["1", None, "-3", "0"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["1.5", "0.1", None], pa.float64()),
        (["1.50"], pa.string()),
        (["nan"], pa.string()),
        (["01"], pa.string()),
        ([""], pa.string()),
        (["true", None, "false"], pa.bool_()),
        (["2024-02-29"], pa.date32()),
        (["2024-02-30"], pa.string()),
        (["2024-02-29 01:02:03", "2024-02-29 01:02:03.500000"], pa.timestamp("us")),
        (["2024-02-29T01:02:03", "2024-02-29 01:02:03"], pa.string()),
        (["2024-02-29T01:02:03Z"], pa.string()),
        ([None, None], pa.string()),
    ],
    ids=str,
)
def test_text_gets_the_type_its_values_are_written_in(texts: list[str | None], type_: pa.DataType) -> None:
    table = opt_dtype(pa.table({"a": pa.array(texts, pa.string())}))
    assert table.schema.field("a").type == type_
    assert [value is None for value in table.column("a").to_pylist()] == [text is None for text in texts]


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


def test_include_and_exclude_choose_columns_and_unknown_names_are_refused() -> None:
    table = pa.table({"a": ["1"], "b": ["1"], "c": ["1"]})
    assert opt_dtype(table, include=["a", "b"], exclude=["b"]).schema.types == [pa.int64(), pa.string(), pa.string()]
    with pytest.raises(KeyError, match="nope"):
        opt_dtype(table, include=["nope"])


def test_integers_shrink_only_when_asked() -> None:
    table = pa.table({"a": [1, None, -128], "b": [128, 0, 0], "c": [2**40, 0, 0], "d": [1.0, 2.0, None]})
    table = table.append_column("e", pa.array([255, 0, 1], pa.uint64()))
    assert opt_dtype(table) == table
    small = opt_dtype(table, shrink_numerics=True)
    assert small.schema.types == [pa.int8(), pa.int16(), pa.int64(), pa.float64(), pa.uint8()]
    assert small.to_pydict() == table.to_pydict()

"""Required fields of null structs are written and read back, for all types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.values.required_fields import fill_required

VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), True),
    (pa.uint64(), 2**64 - 1),
    (pa.float16(), np.float16(1.5)),
    (pa.float64(), 1.5),
    (pa.string(), "x"),
    (pa.binary(), b"x"),
    (pa.binary(3), b"xyz"),
    (pa.date32(), dt.date(2020, 1, 1)),
    (pa.time64("us"), dt.time(1)),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (pa.duration("us"), dt.timedelta(1)),
    (pa.decimal128(9, 2), Decimal("1.50")),
    (pa.list_(pa.int64()), [1, 2]),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (pa.dictionary(pa.int32(), pa.string()), "x"),
    (pa.struct([pa.field("y", pa.int64(), nullable=False)]), {"y": 1}),
    (pa.uuid(), None),
]


def required(type_: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("x", type_, nullable=False), pa.field("z", pa.int64())])


def structs(type_: pa.DataType, value: Any) -> pa.Array:
    """Return a value, a null with null fields as readers create it, and a value."""
    if type_ == pa.uuid():
        child: pa.Array = pa.ExtensionArray.from_storage(type_, pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16)))
    else:
        child = pa.array([value, None, value], type_)
    mask = pa.array([False, True, False])
    return pa.StructArray.from_arrays([child, pa.array([1, None, None])], fields=list(required(type_)), mask=mask)


@pytest.mark.parametrize(("type_", "value"), VALUES, ids=[str(type_) for type_, _ in VALUES])
@pytest.mark.parametrize("around", ["nothing", "list", "struct", "slice", "map"])
def test_null_structs_are_written_and_read_back(tmp_path: Path, type_: pa.DataType, value: Any, around: str) -> None:
    column = structs(type_, value)
    if around == "list":
        column = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), column)
    elif around == "struct":
        column = pa.StructArray.from_arrays([column], fields=[pa.field("s", column.type)])
    elif around == "map":
        column = pa.MapArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), column)
    elif around == "slice":
        column = pa.concat_arrays([column, column]).slice(1, 4)
    table = pa.table({"id": range(len(column)), "s": column})
    filled = fill_required(table)
    filled.validate(full=True)
    assert filled.equals(table)
    path = tmp_path / "a.parquet"
    pq.write_table(filled, path)
    assert pq.read_table(path).to_pylist() == table.to_pylist()


def test_null_in_a_valid_struct_is_an_error(tmp_path: Path) -> None:
    fields = [pa.field("x", pa.int64(), nullable=False)]
    column = pa.StructArray.from_arrays([pa.array([1, None])], fields=fields)
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(fill_required(pa.table({"s": column})), tmp_path / "a.parquet")

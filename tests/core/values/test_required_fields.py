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
    *((pa.bool_(), True), (pa.int64(), 1), (pa.uint64(), 2**64 - 1), (pa.float16(), np.float16(1.5))),
    *((pa.float64(), 1.5), (pa.string(), "x"), (pa.binary(), b"x"), (pa.binary(3), b"xyz")),
    *((pa.date32(), dt.date(2020, 1, 1)), (pa.time64("us"), dt.time(1)), (pa.duration("us"), dt.timedelta(1))),
    *((pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), (pa.decimal128(9, 2), Decimal("1.50"))),
    *((pa.list_(pa.int64()), [1, 2]), (pa.map_(pa.string(), pa.int64()), [("a", 1)])),
    *((pa.dictionary(pa.int32(), pa.string()), "x"), (pa.uuid(), b"a" * 16)),
    (pa.struct([pa.field("y", pa.int64(), nullable=False)]), {"y": 1}),
]


def structs() -> pa.Array:
    """A value, a null with null fields as readers create it, and a value; with a required field of each type."""
    children = [
        pa.ExtensionArray.from_storage(type_, pa.array([value, None, value], type_.storage_type))
        if isinstance(type_, pa.BaseExtensionType)
        else pa.array([value, None, value], type_)
        for type_, value in VALUES
    ]
    fields = [pa.field(str(n), type_, nullable=False) for n, (type_, _) in enumerate(VALUES)]
    fields.append(pa.field("z", pa.int64()))
    mask = pa.array([False, True, False])
    return pa.StructArray.from_arrays([*children, pa.array([1, None, None])], fields=fields, mask=mask)


@pytest.mark.parametrize("around", ["nothing", "list", "struct", "slice", "map"])
def test_null_structs_are_written_and_read_back(tmp_path: Path, around: str) -> None:
    column = structs()
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
    pq.write_table(filled, tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == table.to_pylist()


def test_null_in_a_valid_struct_is_an_error(tmp_path: Path) -> None:
    fields = [pa.field("x", pa.int64(), nullable=False)]
    column = pa.StructArray.from_arrays([pa.array([1, None])], fields=fields)
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(fill_required(pa.table({"s": column})), tmp_path / "a.parquet")

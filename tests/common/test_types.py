"""Which types join, into what, and which are one Parquet column."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.samples import ARRAYS, TYPES
from fsspeckit.common.types import common_type, same_storage

D128, D256 = pa.decimal128, pa.decimal256


@pytest.mark.scenario("UP-34")
@pytest.mark.parametrize(
    ("target", "source", "joined"),
    [
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.int8(), None),
        (pa.int8(), pa.float16(), pa.float16()),
        (pa.float32(), pa.int32(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (D128(10, 2), D128(12, 4), D128(12, 4)),
        (D256(76, 0), D256(76, 70), None),
        (pa.decimal32(5, 2), pa.decimal64(12, 2), D128(12, 2)),
        (pa.int64(), D128(5, 2), D128(21, 2)),
        (D128(10, 2), pa.float64(), None),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), None),
        (pa.large_string(), pa.string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string_view()), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
        (pa.dictionary(pa.int8(), pa.int32()), pa.int64(), pa.dictionary(pa.int32(), pa.int64())),
        (pa.binary(3), pa.binary(4), pa.binary()),
        (pa.string(), pa.binary(), None),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (
            pa.struct([("a", pa.int8()), ("b", pa.string())]),
            pa.struct([("b", pa.large_string()), ("a", pa.int16())]),
            pa.struct([("a", pa.int16()), ("b", pa.string())]),
        ),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), None),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.struct([("a", pa.int8())]), None),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.large_string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (pa.uuid(), pa.binary(16), None),
    ],
    ids=str,
)
def test_common_type(target: pa.DataType, source: pa.DataType, joined: pa.DataType | None) -> None:
    assert common_type(target, source) == joined


@pytest.mark.parametrize("a", TYPES, ids=str)
def test_every_type_joins_itself_and_null_and_is_its_own_storage(a: pa.DataType) -> None:
    assert common_type(a, a) == a
    assert common_type(a, pa.null()) == a
    assert common_type(pa.null(), a) == a
    assert same_storage(a, a)


@pytest.mark.parametrize("a", TYPES, ids=str)
def test_joining_does_not_depend_on_the_side_beyond_the_dress(a: pa.DataType) -> None:
    for b in TYPES:
        left, right = common_type(a, b), common_type(b, a)
        assert (left is None) == (right is None), b
        if left is not None and right is not None:
            assert common_type(left, a) == left
            assert common_type(left, b) == left
            assert common_type(left, right) == left


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (pa.int64(), pa.uint64()),
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.int64()),
        (D256(76, 0), D256(76, 70)),
        (pa.list_(pa.int64()), pa.large_list(pa.uint64())),
    ],
    ids=str,
)
def test_checked_numbers_keep_the_target_type(target: pa.DataType, source: pa.DataType) -> None:
    assert common_type(target, source) is None
    assert common_type(target, source, checked=True) == target


def test_structs_evolve_only_when_asked() -> None:
    old = pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.int8())])
    new = pa.struct([pa.field("a", pa.int16()), pa.field("c", pa.string(), nullable=False)])
    assert common_type(old, new) is None
    assert common_type(old, new, evolve=True) == pa.struct([("a", pa.int16()), ("b", pa.int8()), ("c", pa.string())])
    required = pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.int8(), nullable=False)])
    assert common_type(required, new, evolve=True) is None


def test_same_storage_agrees_with_what_parquet_writes() -> None:
    written = [array.type for array in ARRAYS if not pa.types.is_run_end_encoded(array.type)]
    columns = {str(type_): _parquet_columns(type_) for type_ in written}
    for a in written:
        for b in written:
            if same_storage(a, b):
                assert columns[str(a)] == columns[str(b)], (a, b)


def _parquet_columns(type_: pa.DataType) -> list[tuple[str, str, str]]:
    """Leaf columns as Parquet sees them, without Arrow's own annotation; nested nullability is not looked at."""
    sink = io.BytesIO()
    schema = pa.schema([("c", type_)])
    try:
        pq.write_table(schema.empty_table(), sink, store_schema=False)
    except pa.ArrowNotImplementedError as error:
        return [(str(type_), "cannot be written", str(error))]
    leaves = pq.ParquetFile(sink).schema
    return [(leaf.path, leaf.physical_type, str(leaf.logical_type)) for leaf in map(leaves.column, range(len(leaves)))]

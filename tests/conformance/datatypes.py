"""Which Arrow types are keys, which are values, and Hypothesis strategies for what they hold.

A `Kind` pairs the type of a column in the target with its type in the source: the same values, differently spelled.
Values are what ``pa.array`` takes for either type.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from installed import HAS_NARROW_DECIMALS, can_store

Values = st.SearchStrategy[Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of a column in the target, which is also that of the dataset after a merge, and in the source."""

    name: str
    target: pa.DataType
    source: pa.DataType
    values: Values


def on_disk(type_: pa.DataType) -> pa.DataType:
    """The type a Parquet file gives back for a column that was written with the given one."""
    if pa.types.is_timestamp(type_) and type_.unit == "s":
        return pa.timestamp("ms", type_.tz)
    if type_ == pa.time32("s"):
        return pa.time32("ms")
    if pa.types.is_dictionary(type_) and pa.types.is_integer(type_.value_type):
        return type_.value_type
    return pa.date32() if pa.types.is_date64(type_) else type_


def integers(bits: int, *, signed: bool = True) -> Values:
    """All integers of a width, with the lowest, the highest and small numbers likely."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.integers(max(low, -3), 9), st.integers(low, high), st.sampled_from([low, high]))


def decimals(precision: int, scale: int) -> Values:
    """Exact decimals of a precision and scale."""
    top = 10**precision - 1
    return st.one_of(st.integers(-5, 5), st.integers(-top, top)).map(lambda n: Decimal(n).scaleb(-scale, _EXACT))


_EXACT = Context(prec=80)
_TEXT = st.one_of(
    st.sampled_from(
        ["", "a", "A", "a ", "ä", "a\u0308", "1", "01", "null", "None", "NaN", "x" * 70 + "y", "x" * 70 + "z"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
_BYTES = st.one_of(st.sampled_from([b"", b"\x00", b"\x00\x00", b"\xff", b"\x7f", b"a" * 70]), st.binary(max_size=4))
_DATES = st.one_of(
    st.dates(dt.date(1969, 12, 28), dt.date(1970, 1, 4)), st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1))
)


def floats(width: int) -> Values:
    """Floats of a width, with NaN, both zeros and the infinities likely."""
    odd = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0])
    some: Values = st.one_of(odd, st.floats(width=width))  # type: ignore[arg-type]
    return some.map(np.float16) if width == 16 else some


def instants(unit: str) -> Values:
    """Counts of a unit since 1970 that fit nanoseconds."""
    second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return st.one_of(st.integers(-3, 3), st.integers(-(9 * 10**9) * second, 9 * 10**9 * second))


def aligned(unit: str) -> Values:
    """Instants of a unit as ``datetime``, which arrays of every finer unit take too."""
    step = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - arrays of zoned and of plain types are built from it
    count = st.one_of(st.integers(-3, 3), st.integers(-(10**15) // step, 10**15 // step))
    return count.map(lambda n: epoch + dt.timedelta(microseconds=n * step))


def _same(name: str, type_: pa.DataType, values: Values) -> Kind:
    return Kind(name, type_, type_, values)


def _whole_numbers() -> list[Kind]:
    widths = (8, 16, 32, 64)
    kinds = [_same(f"int{w}", getattr(pa, f"int{w}")(), integers(w)) for w in widths]
    kinds += [_same(f"uint{w}", getattr(pa, f"uint{w}")(), integers(w, signed=False)) for w in widths]
    mixed = [
        ("int64", "int32", integers(32)),
        ("int32", "int64", integers(32)),
        ("int8", "int64", integers(8)),
        ("uint8", "int16", integers(8, signed=False)),
        ("uint32", "int64", integers(32, signed=False)),
        ("int64", "uint32", integers(31, signed=False)),
        ("int32", "uint32", integers(31, signed=False)),
        ("uint64", "uint8", integers(8, signed=False)),
    ]
    return kinds + [Kind(f"{t}<-{s}", getattr(pa, t)(), getattr(pa, s)(), v) for t, s, v in mixed]


def _texts_and_bytes() -> list[Kind]:
    texts = {
        "string": pa.string(),
        "large_string": pa.large_string(),
        "string_view": pa.string_view(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
        "dictionary8": pa.dictionary(pa.int8(), pa.string()),
    }
    kinds = [_same(name, type_, _TEXT) for name, type_ in texts.items()]
    pairs = [
        ("string", "large_string"),
        ("string", "dictionary"),
        ("dictionary", "string"),
        ("large_string", "string"),
        ("string_view", "dictionary8"),
        ("string", "string_view"),
    ]
    kinds += [Kind(f"{t}<-{s}", texts[t], texts[s], _TEXT) for t, s in pairs]
    kinds += [
        _same("binary", pa.binary(), _BYTES),
        _same("large_binary", pa.large_binary(), _BYTES),
        _same("binary_view", pa.binary_view(), _BYTES),
        _same("fixed_binary", pa.binary(3), st.binary(min_size=3, max_size=3)),
        Kind("binary<-large_binary", pa.binary(), pa.large_binary(), _BYTES),
    ]
    return kinds


def _decimals() -> list[Kind]:
    narrow_kinds = [(32, pa.decimal32, 7, 2), (64, pa.decimal64, 15, 3)] if HAS_NARROW_DECIMALS else []
    kinds = [
        _same(f"decimal{bits}({p},{s})", make(p, s), decimals(p, s))
        for bits, make, p, s in [
            *narrow_kinds,
            (128, pa.decimal128, 9, 2),
            (128, pa.decimal128, 30, 10),
            (256, pa.decimal256, 50, 4),
        ]
    ]
    narrow, wide, crossed = pa.decimal128(7, 2), pa.decimal128(12, 4), pa.decimal128(7, 4)
    return [
        *kinds,
        Kind("decimal<-finer scale", narrow, wide, decimals(7, 2)),
        Kind("decimal<-coarser scale", wide, narrow, decimals(7, 2)),
        Kind("decimal<-crossed scale", narrow, crossed, decimals(5, 2)),
    ]


def _times() -> list[Kind]:
    kinds = [
        _same("date32", pa.date32(), _DATES),
        _same("time32[ms]", pa.time32("ms"), st.integers(0, 86_399_999)),
        _same("time64[ns]", pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
        Kind("date32<-date64", pa.date32(), pa.date64(), _DATES),
    ]
    for zone in (None, "UTC", "Europe/Berlin"):
        kinds += [_stamp(unit, unit, zone, zone, instants(unit)) for unit in ("s", "ms", "us", "ns")]
    kinds += [_stamp(t, s, None, None, aligned(coarser)) for t, s, coarser in _UNIT_PAIRS]
    kinds += [_stamp("us", "us", "UTC", "Europe/Berlin", instants("us"))]
    kinds += [_stamp("ms", "us", "UTC", "UTC", aligned("ms"))]
    return kinds


_UNIT_PAIRS = [("us", "ms", "ms"), ("ms", "us", "ms"), ("us", "ns", "us"), ("ns", "us", "us"), ("us", "s", "s")]


def _stamp(target: str, source: str, zone: str | None, source_zone: str | None, values: Values) -> Kind:
    name = f"timestamp[{target},{zone}]"
    if (target, zone) != (source, source_zone):
        name += f"<-[{source},{source_zone}]"
    return Kind(name, pa.timestamp(target, zone), pa.timestamp(source, source_zone), values)


def _floats_and_flags() -> list[Kind]:
    half, single, double = pa.float16(), pa.float32(), pa.float64()
    return [
        _same("bool", pa.bool_(), st.booleans()),
        _same("float16", half, floats(16)),
        _same("float32", single, floats(32)),
        _same("float64", double, floats(64)),
        Kind("float64<-float32", double, single, floats(32)),
        Kind("float32<-float64", single, double, floats(32)),
    ]


KEY_KINDS = {
    kind.name: kind
    for kind in [*_whole_numbers(), *_texts_and_bytes(), *_decimals(), *_times(), *_floats_and_flags()]
    if can_store(kind.target)
}

_INT32 = integers(32)
_POINT = pa.struct([pa.field("x", pa.int32()), pa.field("label", pa.string())])
_POINTS = st.fixed_dictionaries({"x": st.none() | _INT32, "label": st.none() | _TEXT})
_VALUES: list[tuple[str, pa.DataType, Values]] = [
    ("int64", pa.int64(), integers(64)),
    ("uint8", pa.uint8(), integers(8, signed=False)),
    ("uint32", pa.uint32(), integers(32, signed=False)),
    ("uint64", pa.uint64(), integers(64, signed=False)),
    ("string", pa.string(), _TEXT),
    ("large_string", pa.large_string(), _TEXT),
    ("string_view", pa.string_view(), _TEXT),
    ("binary", pa.binary(), _BYTES),
    ("large_binary", pa.large_binary(), _BYTES),
    ("binary_view", pa.binary_view(), _BYTES),
    ("fixed_binary", pa.binary(5), st.binary(min_size=5, max_size=5)),
    ("bool", pa.bool_(), st.booleans()),
    ("float16", pa.float16(), floats(16)),
    ("float32", pa.float32(), floats(32)),
    ("float64", pa.float64(), floats(64)),
    *([("decimal32", pa.decimal32(7, 2), decimals(7, 2))] if HAS_NARROW_DECIMALS else []),
    ("decimal128", pa.decimal128(38, 10), decimals(38, 10)),
    ("decimal256", pa.decimal256(70, 6), decimals(70, 6)),
    ("date32", pa.date32(), _DATES),
    ("date64", pa.date64(), _DATES),
    ("time32[s]", pa.time32("s"), st.integers(0, 86_399)),
    ("time32[ms]", pa.time32("ms"), st.integers(0, 86_399_999)),
    ("time64[us]", pa.time64("us"), st.integers(0, 86_399_999_999)),
    ("time64[ns]", pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    ("duration[s]", pa.duration("s"), integers(32)),
    ("duration[ns]", pa.duration("ns"), integers(64)),
    ("timestamp[s]", pa.timestamp("s"), instants("s")),
    ("timestamp[us,UTC]", pa.timestamp("us", "UTC"), instants("us")),
    ("timestamp[ns,+02:00]", pa.timestamp("ns", "+02:00"), instants("ns")),
    ("dictionary", pa.dictionary(pa.int32(), pa.string()), _TEXT),
    ("dictionary[int64]", pa.dictionary(pa.int32(), pa.int64()), integers(64)),
    ("null", pa.null(), st.none()),
    ("struct", _POINT, _POINTS),
    ("list", pa.list_(pa.int32()), st.lists(st.none() | _INT32, max_size=3)),
    ("large_list", pa.large_list(pa.string()), st.lists(_TEXT, max_size=3)),
    ("list_view", pa.list_view(pa.int32()), st.lists(_INT32, max_size=3)),
    ("fixed_list", pa.list_(pa.float32(), 2), st.lists(floats(32), min_size=2, max_size=2)),
    (
        "map",
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(_TEXT, integers(64), max_size=3).map(lambda d: [*d.items()]),
    ),
    ("list of struct", pa.list_(_POINT), st.lists(st.none() | _POINTS, max_size=2)),
    ("struct of list", pa.struct([("k", pa.list_(pa.float64()))]), st.fixed_dictionaries({"k": st.lists(floats(64))})),
]
_WIDE_POINT = pa.struct([pa.field("x", pa.int64()), pa.field("label", pa.large_string())])
_WIDENED_POINT = pa.struct([pa.field("x", pa.int64()), pa.field("label", pa.string())])
_MIXED = [
    Kind("null<-int64", pa.null(), pa.int64(), st.none()),
    Kind("int64<-null", pa.int64(), pa.null(), st.none()),
    Kind("struct<-wider struct", _POINT, _WIDE_POINT, _POINTS),
    Kind("struct<-narrower struct", _WIDENED_POINT, _POINT, _POINTS),
    Kind("list<-wider list", pa.list_(pa.int32()), pa.list_(pa.int64()), st.lists(_INT32)),
    Kind(
        "list<-large list", pa.list_(pa.string()), pa.large_list(pa.large_string()),
        st.lists(_TEXT, max_size=3),
    ),
    Kind("time64[us]<-time32[ms]", pa.time64("us"), pa.time32("ms"), st.just(dt.time(1, 2, 3, 4000))),
    Kind("time32[ms]<-time64[us]", pa.time32("ms"), pa.time64("us"), st.just(dt.time(1, 2, 3, 4000))),
]  # fmt: skip
VALUE_KINDS = {name: _same(name, type_, values) for name, type_, values in _VALUES if can_store(type_)}
VALUE_KINDS |= {kind.name: kind for kind in [*_MIXED, *KEY_KINDS.values()] if "<-" in kind.name}

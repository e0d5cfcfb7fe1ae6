"""INT96, the timestamps of Spark, Hive and Impala: a column of them is an instant, like `timestamp[us, UTC]`.

A field of such a column carries a mark from the footer to every task, so that new and rewritten files store it as
INT96 too. The statistics of INT96 are never used. Nanoseconds, which no footer tells, make a column
`timestamp[ns, UTC]`. With the storage option ``int96="local"`` the columns have no time zone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.int96 import MARK, int96_columns, replace_leaves, timestamps_in, unit_of, without_mark
from fsspeckit.common.stored_types import decoded_columns, without_marks
from fsspeckit.core.parquet.bytes.format_fields import key_values_of
from fsspeckit.core.parquet.bytes.thrift import read_struct
from fsspeckit.core.parquet.footer import INT96_UNIT, PHYSICAL, Leaf
from fsspeckit.core.parquet.writer_options import leaf_count

ARROW_SCHEMA = b"ARROW:schema"
SPARK_VERSION = b"org.apache.spark.version"
UNIT = b"fsspeckit.int96"
"""Footer metadata: the unit that the values of a file need."""
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def mark_int96(schema: pa.Schema, leaves: Sequence[Leaf], footer: bytes) -> pa.Schema:
    """Return the schema of a footer with its INT96 columns as marked instants."""
    tops = {leaf.top for leaf in leaves if _is_int96(leaf)}
    if not tops:
        return schema
    pairs = key_values_of(read_struct(footer)[0])
    stored = _stored(pairs.get(ARROW_SCHEMA))
    unit = known_unit(pairs) or INT96_UNIT
    for top in tops:
        field = schema.field(top)
        kept = b"" if stored is None or field.name not in stored.names else _text(stored.field(field.name))
        rest = iter([leaf for leaf in leaves if leaf.top == top])
        type_ = replace_leaves(field.type, lambda own, rest=rest: _as_instant(own, rest, unit))  # type: ignore[misc]
        schema = schema.set(top, field.with_type(type_).with_metadata({**(field.metadata or {}), MARK: kept}))
    return schema


def _as_instant(type_: pa.DataType, leaves: Iterator[Leaf], unit: str) -> pa.DataType:
    own = [next(leaves, None) for _ in range(leaf_count(type_))]
    is_int96 = len(own) == 1 and own[0] is not None and _is_int96(own[0]) and pat.is_timestamp(type_)
    return pa.timestamp(unit, "UTC") if is_int96 else type_


def _is_int96(leaf: Leaf) -> bool:
    return PHYSICAL[leaf.physical] == "INT96"


def known_unit(key_values: Mapping[bytes, bytes] | None) -> str | None:
    """Return the unit of the INT96 values of a file if its footer tells it: Spark has microseconds."""
    pairs = key_values or {}
    unit = pairs.get(UNIT, b"us" if SPARK_VERSION in pairs else b"")
    return unit.decode() if unit in (b"us", b"ns") else None


def read_as(schema: pa.Schema, unit: str, *, local: bool) -> pa.Schema:
    """Return the schema of a file with instants in another unit, or without their time zone, in its INT96 columns."""

    def changed(type_: pa.DataType) -> pa.DataType:
        is_instant = pat.is_timestamp(type_) and type_.tz is not None
        return pa.timestamp(unit, None if local else "UTC") if is_instant else type_

    names = int96_columns(schema)
    fields = [f.with_type(replace_leaves(f.type, changed)) if f.name in names else f for f in schema]
    return pa.schema(fields, schema.metadata)


def as_described(rows: Rows, schema: pa.Schema) -> Rows:
    """Return decoded rows with the types that their file has in a schema.

    pyarrow decodes INT96 without a time zone, and some categories only as plain values.
    """
    names = (*int96_columns(schema), *decoded_columns(schema))
    for at, field in enumerate(rows.schema):
        wanted = schema.field(field.name).type if field.name in names else field.type
        if not wanted.equals(field.type):
            rows = rows.set_column(at, field.with_type(wanted), _as_type(rows.column(at), wanted))
    return rows


def _as_type(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if not pat.is_dictionary(wanted):
        return column.cast(wanted)
    if isinstance(column, pa.Array):
        return exact_cast(column, wanted)
    return pa.chunked_array([exact_cast(chunk, wanted) for chunk in column.chunks], wanted).unify_dictionaries()


def has_only_int96(schema: pa.Schema) -> bool:
    """Return whether all timestamps of a schema are stored as INT96, so that one option of pyarrow stores them."""
    names = int96_columns(schema)
    return bool(names) and all(_is_all_int96(field, names) for field in schema)


def _is_all_int96(field: pa.Field, names: Sequence[str]) -> bool:
    found = timestamps_in(field.type)
    return not found or (field.name in names and len({type_.tz is None for type_ in found}) == 1)


def metadata_of(schema: pa.Schema, *, with_schema: bool) -> dict[bytes, bytes]:
    """Return the footer metadata of a new file with INT96 columns: their unit and, if wanted, the Arrow schema.

    The stored schema is that of the other files of the dataset, because readers take types from it.
    """
    found = {UNIT: unit_of(schema).encode()}
    if with_schema:
        fields = [_stored_field(field) if MARK in (field.metadata or {}) else field for field in schema]
        found[ARROW_SCHEMA] = base64.b64encode(without_marks(pa.schema(fields)).serialize())
    return found


def _stored_field(field: pa.Field) -> pa.Field:
    kept = field.metadata[MARK]
    if kept:
        return without_mark(field).with_type(pa.ipc.read_schema(pa.py_buffer(kept)).field(0).type)
    is_local = {type_.tz is None for type_ in timestamps_in(field.type)} == {True}
    return without_mark(field).with_type(
        replace_leaves(field.type, lambda own: pa.timestamp("ns") if _is_stored_int96(own, is_local) else own)
    )


def _is_stored_int96(type_: pa.DataType, is_local: bool) -> bool:
    return bool(pat.is_timestamp(type_) and (is_local or type_.tz is not None))


def int96_leaves(schema: pa.Schema) -> list[bool]:
    """Return for each Parquet leaf of a schema whether it is stored as INT96."""
    names, found = int96_columns(schema), list[bool]()
    for field in schema:
        is_local = {type_.tz is None for type_ in timestamps_in(field.type)} == {True}

        def add(type_: pa.DataType, marked: bool = field.name in names, local: bool = is_local) -> pa.DataType:
            found.extend([marked and _is_stored_int96(type_, local)] * leaf_count(type_))
            return type_

        replace_leaves(field.type, add)
    return found


def _stored(data: bytes | None) -> pa.Schema | None:
    """Return the Arrow schema in the metadata of a footer. pyarrow raised already if it is damaged."""
    return None if data is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data)))


def _text(field: pa.Field) -> bytes:
    return bytes(pa.schema([pa.field(field.name, field.type)]).serialize())

"""The file format of the footer index: tables of footers as Arrow streams behind a digest.

Anyone with access to the sidecar may have written the file, and a crash or a fault of the disk may have damaged it. The
digest detects damage. After it, every value is checked: types, ranges, and that the facts of a file agree with each
other. A file with one wrong value is not used at all. Statistics that are in range but wrong cannot be recognized
here; that is why a file that is opened is compared with its footer (`fsspeckit.core.parquet.reader`).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import scalar, to_arrow, to_numpy, valid_mask
from fsspeckit.common.documents import parse_json
from fsspeckit.common.int96 import int96_columns
from fsspeckit.core.parquet.bytes.format_fields import MAGIC
from fsspeckit.core.parquet.footer_table import (
    BLOOM_OFFSET,
    BLOOM_SIZE,
    CODEC_NAMES,
    FILES,
    LOWER,
    ROWS,
    STATISTICS,
    UPPER,
    ColumnFacts,
    FooterTable,
    SharedFacts,
    stored_type,
)

_MAGIC = b"FSSPECKIT FOOTERS 2\n"
_DIGEST = 32
_FACTS = b"fsspeckit.facts"
_MAX_TABLES = 10_000
_MIN_FOOTER = 12
MAX_BOUND = 256
"""Bytes of the longest bound that is stored. A longer one counts as unknown."""


class InvalidIndexError(Exception):
    """The data is not a footer index, or is damaged."""


def to_bytes(tables: Iterable[FooterTable]) -> bytes:
    """Return tables as they are stored."""
    sink = pa.BufferOutputStream()
    for table in tables:
        for batch in _batches(table):
            options = pa.ipc.IpcWriteOptions(compression="zstd" if batch.nbytes > 2**16 else None)
            with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
                stream.write_batch(batch)
    data = sink.getvalue()
    return b"".join((_MAGIC, blake2b(data, digest_size=_DIGEST).digest(), data))


def _batches(table: FooterTable) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the files and the row groups of a table, with the facts that all files share as metadata."""
    shared = table.shared
    natives = pa.schema([(name, pa.null() if type_ is None else type_) for name, type_ in shared.natives.items()])
    facts = {"int96": shared.int96, "schema": _text(shared.schema), "natives": _text(natives)}
    arrays = {ROWS: to_arrow(table.group_rows)}
    for number, name in enumerate(shared.natives):
        for part, array in table.columns[name].arrays().items():
            arrays[f"{number}.{part}"] = _short(array) if part in (LOWER, UPPER) else array
    groups = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
    return table.files.replace_schema_metadata({_FACTS: json.dumps(facts).encode()}), groups


def _short(bounds: pa.Array) -> pa.Array:
    """Return bounds, with null in place of very long ones."""
    if not pa.types.is_binary(bounds.type):
        return bounds
    is_short = pc.less_equal(pc.binary_length(bounds), scalar(MAX_BOUND))
    return pc.if_else(is_short, bounds, pa.nulls(1, bounds.type)[0])


def _text(schema: pa.Schema) -> str:
    return b64encode(schema.serialize()).decode()


def from_bytes(data: bytes | pa.Buffer, columns: Collection[str] | None = None) -> list[FooterTable]:
    """Return the tables, with the statistics of some columns, or of all.

    Raises:
        InvalidIndexError: The data is not a footer index, or is damaged.
    """
    view = memoryview(data).cast("B")
    start = len(_MAGIC) + _DIGEST
    if view[: len(_MAGIC)] != _MAGIC:
        raise InvalidIndexError("it is not a footer index of this version")
    if blake2b(view[start:], digest_size=_DIGEST).digest() != view[len(_MAGIC) : start]:
        raise InvalidIndexError("its digest does not match its content")
    try:
        return _tables(pa.BufferReader(pa.py_buffer(view[start:])), columns)
    except (pa.ArrowException, ValueError, KeyError, TypeError, OverflowError, RecursionError, OSError) as error:
        raise InvalidIndexError(str(error)) from error


def _tables(source: pa.BufferReader, columns: Collection[str] | None) -> list[FooterTable]:
    tables: list[FooterTable] = []
    while source.tell() < source.size():
        if len(tables) == _MAX_TABLES:
            raise ValueError("it has too many tables")
        files, metadata = _read_batch(source)
        shared = _shared(parse_json((metadata or {})[_FACTS]))
        wanted = [name for name in shared.natives if columns is None or name in columns]
        groups, _ = _read_batch(source, [list(shared.natives).index(name) for name in wanted])
        tables.append(_checked(shared, files, groups, wanted))
    return tables


def _read_batch(
    source: pa.BufferReader, wanted: Sequence[int] | None = None
) -> tuple[pa.RecordBatch, Mapping[bytes, bytes]]:
    """Read one stream of one batch; of the row groups only the rows and the wanted columns."""
    start = source.tell()
    stream = pa.ipc.open_stream(source)
    if wanted is not None and len(stream.schema) > 1:
        numbers = {f"{number}" for number in wanted}
        fields = [at for at, name in enumerate(stream.schema.names) if at == 0 or name.partition(".")[0] in numbers]
        source.seek(start)
        stream = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
    batches = list(stream)
    if len(batches) != 1:
        raise ValueError("a stream does not have one batch")
    batches[0].validate(full=True)
    return batches[0], stream.schema.metadata


def _shared(facts: Mapping[str, Any]) -> SharedFacts:
    schema, natives = (pa.ipc.read_schema(pa.py_buffer(b64decode(facts[name]))) for name in ("schema", "natives"))
    int96 = tuple(facts["int96"])
    str(schema), str(natives)  # names must be UTF-8
    if len(set(natives.names)) < len(natives) or not {*natives.names} <= set(schema.names):
        raise ValueError("its columns are not those of the schema")
    if int96 != int96_columns(schema):
        raise ValueError("its INT96 columns are not instants")
    for field in natives:
        if schema.names.count(field.name) > 1 or not _can_describe(field.type, schema.field(field.name).type):
            raise ValueError("statistics do not have the type of their column")
    return SharedFacts(schema, int96, {field.name: _native(field.type) for field in natives})


def _native(type_: pa.DataType) -> pa.DataType | None:
    return None if pa.types.is_null(type_) else type_


def _can_describe(native: pa.DataType, column: pa.DataType) -> bool:
    """Return whether statistics of a type can belong to a column (see `column_stats.native_type`)."""
    if pa.types.is_dictionary(column):
        column = column.value_type
    if isinstance(column, pa.BaseExtensionType):
        column = column.storage_type
    if pa.types.is_null(native):
        return True
    if pa.types.is_binary(native):
        return not (pa.types.is_primitive(column) or pa.types.is_nested(column))
    if pa.types.is_decimal(native):
        return pa.types.is_decimal(column) and (native.precision, native.scale) == (column.precision, column.scale)
    families = (pa.types.is_boolean, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_time, pa.types.is_date)
    for is_family in families:
        if is_family(native) or is_family(column):
            return bool(is_family(native) and is_family(column)) and getattr(native, "tz", None) == getattr(
                column, "tz", None
            )
    if pa.types.is_duration(native) or pa.types.is_duration(column):
        return bool(native == column)
    if not pa.types.is_integer(native) or not pa.types.is_integer(column):
        return False
    same_sign = pa.types.is_unsigned_integer(native) == pa.types.is_unsigned_integer(column)
    return bool(same_sign and max(32, column.bit_width) <= native.bit_width)


def _checked(shared: SharedFacts, files: pa.RecordBatch, groups: pa.RecordBatch, wanted: Sequence[str]) -> FooterTable:
    """Return a table. Raise if a value has the wrong type, is out of range or contradicts another one."""
    if not files.schema.equals(FILES) or any(
        files.column(field.name).null_count for field in FILES if not field.nullable
    ):
        raise ValueError("the files do not have the right columns")
    _check(groups.num_columns > 0 and groups.schema.names[0] == ROWS and groups.column(0).type == pa.int64())
    _check(groups.column(0).null_count == 0)
    counts = to_numpy(files.column("row_groups"))
    _check(bool(((counts >= 0) & (counts <= groups.num_rows)).all()) and int(counts.sum()) == groups.num_rows)
    places = {name: number for number, name in enumerate(shared.natives)}
    columns = {name: _column(groups, places[name], shared.natives[name]) for name in wanted}
    table = FooterTable(shared, files, np.asarray(to_numpy(groups.column(0))), columns)
    _check_files(table)
    for facts in columns.values():
        _check_column(table, facts)
    return table


def _check(is_right: bool) -> None:
    if not is_right:
        raise ValueError("a value is out of range or contradicts another one")


def _check_files(table: FooterTable) -> None:
    size, footer, rows, codec = (table.numbers(name) for name in ("size", "footer", "rows", "codec"))
    sums = np.concatenate([[0], np.cumsum(table.group_rows)])
    _check(bool((table.group_rows >= 0).all()))
    _check(bool((rows == sums[table.starts[1:]] - sums[table.starts[:-1]]).all()))
    _check(bool(((footer > _MIN_FOOTER) & (footer <= size)).all()))
    _check(bool((table.numbers("uncompressed") >= 0).all()))
    _check(bool(((codec >= 0) & (codec < len(CODEC_NAMES))).all()))
    _check(bool(((codec > 0) == (np.diff(table.starts) > 0)).all()) or len(table.shared.schema) == 0)


def _column(groups: pa.RecordBatch, number: int, native: pa.DataType | None) -> ColumnFacts:
    found = {
        part: groups.column(f"{number}.{part}") for part in STATISTICS if f"{number}.{part}" in groups.schema.names
    }
    facts = ColumnFacts(**found)
    allowed = {stored_type(native), stored_type(native, [b""])}
    _check(facts.lower.type in allowed and facts.upper.type == facts.lower.type)
    rest = [facts.nulls, *(array for array in (facts.bloom_offset, facts.bloom_size) if array is not None)]
    _check(all(array.type == pa.int64() for array in rest) and len(rest) in (1, 3))
    return facts


def _check_column(table: FooterTable, facts: ColumnFacts) -> None:
    known = valid_mask(facts.nulls)
    nulls = to_numpy(facts.nulls)[known]
    _check(bool(((nulls >= 0) & (nulls <= table.group_rows[known])).all()))
    _check(bool((valid_mask(facts.lower) == valid_mask(facts.upper)).all()) or pa.types.is_binary(facts.lower.type))
    if facts.bloom_offset is not None and facts.bloom_size is not None:
        known = valid_mask(facts.bloom_offset)
        _check(bool((known == valid_mask(facts.bloom_size)).all()))
        offset, size = to_numpy(facts.bloom_offset)[known], to_numpy(facts.bloom_size)[known]
        data_end = np.repeat(table.numbers("size") - table.numbers("footer"), np.diff(table.starts))[known]
        in_file = (offset >= len(MAGIC)) & (size >= 0) & (size <= data_end) & (offset <= data_end + len(MAGIC) - size)
        _check(bool(in_file.all()))


def joined(tables: Iterable[FooterTable]) -> list[FooterTable]:
    """Join the tables of the same schema and columns."""
    by_key: dict[tuple[Any, ...], list[FooterTable]] = {}
    for table in tables:
        if len(table):
            by_key.setdefault(table.shared.key, []).append(table)
    return [_concatenated(group) for group in by_key.values()]


def _concatenated(tables: Sequence[FooterTable]) -> FooterTable:
    first = tables[0]
    if len(tables) == 1:
        return first
    files = pa.Table.from_batches([table.files.replace_schema_metadata(None) for table in tables])
    columns = {name: _stacked([table.columns[name] for table in tables], tables) for name in first.columns}
    return replace(
        first,
        files=files.combine_chunks().to_batches()[0],
        group_rows=np.concatenate([table.group_rows for table in tables]),
        columns=columns,
    )


def _stacked(parts: Sequence[ColumnFacts], tables: Sequence[FooterTable]) -> ColumnFacts:
    found = {}
    for name in STATISTICS:
        arrays = [getattr(part, name) for part in parts]
        if name in (BLOOM_OFFSET, BLOOM_SIZE) and all(array is None for array in arrays):
            continue
        filled = [
            pa.nulls(len(table.group_rows), pa.int64()) if array is None else array
            for array, table in zip(arrays, tables, strict=True)
        ]
        found[name] = pa.concat_arrays(_same_type(filled))
    return ColumnFacts(**found)


def _same_type(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Return arrays of one type. Of bounds that are numbers in some files and bytes in others, the bytes are kept."""
    types = {array.type for array in arrays}
    if len(types) == 1:
        return list(arrays)
    return [pa.nulls(len(array), pa.binary()) if array.type == pa.int64() else array for array in arrays]

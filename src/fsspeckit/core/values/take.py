"""Take and replace rows of Arrow tables, for all types, including those without an Arrow kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import from_blocks, single, text_blocks, to_arrow, to_numpy, valid_mask
from fsspeckit.common.categories import has_categories, has_fixed_values
from fsspeckit.core.model import RowNumbers

_FEW_ROWS_DIVISOR = 4  # if more than a fourth of the rows are taken, joining the chunks first is faster


def take_ascending(table: pa.Table, rows: RowNumbers) -> pa.Table:
    """Return the given rows of a table, which are ascending. Contiguous rows are a slice without a copy."""
    if len(rows) == 0:
        return table.slice(0, 0)
    if _is_contiguous(rows):
        return table.slice(int(rows[0]), len(rows))
    return take_rows(table, rows)


def _is_contiguous(rows: RowNumbers) -> bool:
    return int(rows[-1]) - int(rows[0]) + 1 == len(rows)


def filter_rows(table: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a table for which ``keep`` is true."""
    try:
        return table.filter(to_arrow(keep))
    except pa.ArrowNotImplementedError:
        return take_ascending(table, np.flatnonzero(keep))


def take_rows(table: pa.Table, rows: RowNumbers) -> pa.Table:
    """Return the given rows in the given order. Contiguous rows are a slice without a copy."""
    if len(rows) == 0:
        return table.slice(0, 0)
    if _is_contiguous(rows) and bool((np.diff(rows) == 1).all()):
        return table.slice(int(rows[0]), len(rows))
    order, by_sizes = to_arrow(rows), dict[tuple[int, ...], _ByChunk]()
    columns = []
    for column in table.columns:
        if column.num_chunks < 2 or len(rows) > len(column) // _FEW_ROWS_DIVISOR or pa.types.is_dictionary(column.type):
            columns.append(_take(column, order))
            continue
        sizes = tuple(len(chunk) for chunk in column.chunks)
        if sizes not in by_sizes:
            by_sizes[sizes] = _ByChunk(sizes, rows)
        columns.append(by_sizes[sizes].take(column))
    return pa.table(columns, schema=table.schema)


def in_parts(part: RowNumbers) -> RowNumbers:
    """Return the row order by part number, stable within a part. numpy uses a radix sort for 16-bit numbers."""
    return np.argsort(part.astype(np.uint16) if int(part.max(initial=0)) < 1 << 16 else part, kind="stable")


class _ByChunk:
    """Takes a few rows of a column with many chunks, chunk by chunk. Arrow would join all chunks first."""

    def __init__(self, sizes: Sequence[int], rows: RowNumbers) -> None:
        ends = np.cumsum(sizes)
        which = np.searchsorted(ends, rows, "right")
        self._order = in_parts(which)
        cuts = np.searchsorted(which[self._order], np.arange(len(sizes) + 1))
        inside = (rows - (ends - sizes)[which])[self._order]
        spans = [(chunk, a, b) for chunk, (a, b) in enumerate(pairwise(cuts.tolist())) if a < b]
        self._parts = [(chunk, self._order[a:b], inside[a:b]) for chunk, a, b in spans]
        self._rows = rows

    def take(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if column.null_count == 0 and _is_number(column.type):
            return pa.chunked_array([self._take_numbers(column)])
        try:
            parts = [column.chunk(chunk).take(to_arrow(inside)) for chunk, _, inside in self._parts]
            return pa.chunked_array([pa.concat_arrays(parts).take(self._inverse_order)], column.type)
        except pa.ArrowNotImplementedError:
            return _take(column, to_arrow(self._rows))

    @cached_property
    def _inverse_order(self) -> pa.Array:
        """Return the position of each row in the joined parts."""
        positions = np.empty(len(self._rows), dtype=np.int64)
        positions[self._order] = np.arange(len(positions))
        return to_arrow(positions)

    def _take_numbers(self, column: pa.ChunkedArray) -> pa.Array:
        result = np.empty(len(self._rows), dtype=to_numpy(column.chunk(0)).dtype)
        for chunk, positions, inside in self._parts:
            result[positions] = to_numpy(column.chunk(chunk))[inside]
        return pa.Array.from_buffers(column.type, len(result), [None, pa.py_buffer(result)])


def _is_number(type_: pa.DataType) -> bool:
    """Return whether values have a numpy type of whole bytes."""
    return pa.types.is_primitive(type_) and not pa.types.is_boolean(type_) and not pa.types.is_interval(type_)


def _take(column: pa.ChunkedArray, order: pa.Array) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    try:
        return column.take(order)
    except pa.ArrowNotImplementedError:
        return _take_runs(column, to_numpy(order))


def _take_runs(column: pa.ChunkedArray, order: RowNumbers) -> pa.ChunkedArray:
    """Take rows by joining slices of contiguous rows, for types without a take kernel."""
    if len(order) == 0:
        return column.slice(0, 0)
    breaks = np.flatnonzero(np.diff(order) != 1) + 1
    starts, stops = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(order)]])
    runs = [column.slice(int(order[a]), int(b - a)) for a, b in zip(starts, stops, strict=True)]
    return pa.chunked_array([pa.concat_arrays([chunk for run in runs for chunk in run.chunks])], column.type)


def replace_rows(table: pa.Table, positions: RowNumbers, source: pa.Table) -> pa.Table:
    """Return the table with the source's rows at the given positions, which are ascending."""
    if len(positions) == 0:
        return table
    target = _ContiguousRows(positions) if _is_contiguous(positions) else _ScatteredRows(positions, table.num_rows)
    pairs = zip(table.columns, source.columns, strict=True)
    columns = [_replace_codes(a, b, target) if one_dictionary(a, b) else target.replace(a, b) for a, b in pairs]
    return pa.table(columns, schema=table.schema)


def coalesce(new: pa.ChunkedArray, old: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the new values, and old ones where these are null. Arrow has no kernel for views."""
    known = np.flatnonzero(to_numpy(new.is_valid()))
    values = take_ascending(pa.table([new], names=["v"]), known)
    return replace_rows(pa.table([old], names=["v"]), known, values).column(0)


class _ContiguousRows:
    """Replaces contiguous rows by joining slices, without a copy."""

    def __init__(self, positions: RowNumbers) -> None:
        self._first, self._after = int(positions[0]), int(positions[-1]) + 1

    def replace(self, old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
        head, tail = old.slice(0, self._first), old.slice(self._after)
        return pa.chunked_array([*head.chunks, *new.chunks, *tail.chunks], old.type)


class _ScatteredRows:
    """Replaces scattered rows: with a mask, in a copy for texts of one length, or by taking rows of both columns."""

    def __init__(self, positions: RowNumbers, rows: int) -> None:
        order, mask = np.arange(rows), np.zeros(rows, dtype=bool)
        order[positions] = rows + np.arange(len(positions))
        mask[positions] = True
        self._positions, self._order, self._mask = positions, to_arrow(order), to_arrow(mask)

    def replace(self, old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_primitive(old.type) and not pa.types.is_duration(old.type) and old.num_chunks == 1:
            return pa.chunked_array([pc.replace_with_mask(old.chunk(0), self._mask, single(new))])
        blocks = text_blocks(old.chunk(0)) if old.num_chunks == 1 else None
        added = None if blocks is None else text_blocks(single(new))
        if blocks is not None and added is not None and blocks.dtype == added.dtype:
            blocks = blocks.copy()
            blocks[self._positions] = added
            return pa.chunked_array([from_blocks(blocks, old.type)])
        return _take(pa.chunked_array([*old.chunks, *new.chunks], old.type), self._order)


def one_dictionary(a: pa.ChunkedArray, b: pa.ChunkedArray) -> bool:
    """Return whether two columns have the same dictionary, so that their codes can be compared."""
    if not pa.types.is_dictionary(a.type) or a.type != b.type or a.num_chunks != 1 or b.num_chunks != 1:
        return False
    return bool(a.chunk(0).dictionary.equals(b.chunk(0).dictionary))


def _replace_codes(
    old: pa.ChunkedArray, new: pa.ChunkedArray, target: _ContiguousRows | _ScatteredRows
) -> pa.ChunkedArray:
    coded = single(old)
    codes = single(target.replace(pa.chunked_array([coded.indices]), pa.chunked_array([single(new).indices])))
    return pa.chunked_array([_coded(codes, coded.dictionary, old.type)])


def _coded(codes: pa.Array, dictionary: pa.Array, type_: pa.DictionaryType) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(codes, dictionary, ordered=type_.ordered, safe=False)


def used_codes(table: pa.Table) -> pa.Table:
    """Return the table with dictionaries of only the values in use: a writer stores the whole dictionary.

    A dictionary of fixed values is kept: their order is that of the dictionary, unused values included.
    """
    for i, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and column.num_chunks:
            coded = single(column.unify_dictionaries())
            used = coded if has_fixed_values(table.field(i)) else _with_used_values(coded)
            table = table.set_column(i, table.field(i), used)
    return table


def _with_used_values(coded: pa.DictionaryArray) -> pa.DictionaryArray:
    codes, valid = to_numpy(coded.indices), None
    if coded.indices.null_count:
        valid = valid_mask(coded.indices)
        codes = np.where(valid, codes, codes.dtype.type(0))
    is_used = np.zeros(len(coded.dictionary), dtype=bool)
    is_used[codes if valid is None else codes[valid]] = True
    used = np.flatnonzero(is_used)
    if len(used) == len(is_used):
        return coded
    new_codes = np.zeros(len(is_used), dtype=codes.dtype)
    new_codes[used] = np.arange(len(used))
    values = single(_take(pa.chunked_array([coded.dictionary]), to_arrow(used)))
    return _coded(to_arrow(new_codes[codes], valid), values, coded.type)


def share_codes(table: pa.Table, source: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Encode source columns with the dictionaries of the table, and add missing values to these dictionaries.

    The source may have fewer columns than the table. Return the table and the source.
    """
    for i, name in enumerate(source.column_names):
        at = table.column_names.index(name)
        old, new = table.column(at), source.column(i)
        if not pa.types.is_dictionary(old.type) or pa.types.is_dictionary(new.type):
            continue
        coded = single(old.unify_dictionaries())
        added = _encode(single(new), coded.dictionary)
        if len(added.dictionary) > len(coded.dictionary):
            table = table.set_column(at, table.field(at), _coded(coded.indices, added.dictionary, old.type))
        source = source.set_column(i, table.field(at), added)
    return table, source


def _encode(values: pa.Array, dictionary: pa.Array) -> pa.DictionaryArray:
    """Encode values with a dictionary, and add missing values to it."""
    codes = pc.index_in(values, value_set=dictionary)
    if codes.null_count > values.null_count:
        unseen = values.filter(pc.and_(codes.is_null(), values.is_valid())).unique()
        dictionary = pa.concat_arrays([dictionary, unseen])
        codes = pc.index_in(values, value_set=dictionary)
    return pa.DictionaryArray.from_arrays(codes, dictionary, safe=False)


def with_wide_codes(schema: pa.Schema) -> pa.Schema:
    """Return the schema with at least 32-bit dictionary codes."""
    fields = [field if has_categories(field) else field.with_type(_wide(field.type)) for field in schema]
    return schema if fields == list(schema) else pa.schema(fields, schema.metadata)


def needs_wider_codes(error: pa.ArrowInvalid) -> bool:
    """Return whether an error means that a dictionary has more values than its code type allows."""
    return "larger index type" in str(error)


def _wide(type_: pa.DataType) -> pa.DataType:
    if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
        return type_
    return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)


_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _plain_dictionaries(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a dictionary of string views, as polars creates it, to one of strings, which Arrow supports better."""
    value = _VIEWS[column.type.value_type]
    index = pa.int64() if column.type.index_type.bit_width == 64 else pa.int32()
    ordered = column.type.ordered
    parts = [(chunk.indices.cast(index), chunk.dictionary.cast(value)) for chunk in column.chunks]
    chunks = [pa.DictionaryArray.from_arrays(codes, values, ordered=ordered) for codes, values in parts]
    return pa.chunked_array(chunks, pa.dictionary(index, value, ordered))


def _encode_again(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode a column whose dictionaries cannot be joined: with too many values, with nulls, or of nested values."""
    value, ordered = column.type.value_type, column.type.ordered
    values = pa.chunked_array([chunk.dictionary.take(chunk.indices) for chunk in column.chunks], value)
    try:
        return values.dictionary_encode().cast(pa.dictionary(pa.int32(), value, ordered))
    except pa.ArrowNotImplementedError:
        return values


def with_one_dictionary(table: pa.Table) -> pa.Table:
    """Return the table with one dictionary per column for all chunks. Codes become wider if necessary."""
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if pa.types.is_dictionary(field.type) and field.type.value_type in _VIEWS:
            column = _plain_dictionaries(column)
            field = field.with_type(column.type)  # noqa: PLW2901 - the same field with another type
            table = table.set_column(i, field, column)
        if not pa.types.is_dictionary(field.type) or column.num_chunks < 2:
            continue
        try:
            joined = column.unify_dictionaries()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            joined = _encode_again(column)
        table = table.set_column(i, field.with_type(joined.type), joined)
    return table

"""Infer narrower types for columns of text or integers, from all values and without loss.

A text column changes its type only if every value is in the canonical form of the new type, so that formatting the
value gives the same text: ``01``, ``1.50`` and ``+1`` stay text. Nulls are unchanged.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.types import is_text, unwrapped

PADDED_NUMBER = r"^(\+|-?0[0-9])"
"""Text with leading zeros or a plus sign, which a number would lose: it is text, such as a zip code."""
_INT64 = range(-(2**63), 2**63)
_SHRINK = {
    "signed": (pa.int8(), pa.int16(), pa.int32()),
    "unsigned": (pa.uint8(), pa.uint16(), pa.uint32()),
}


def opt_dtype(
    table: pa.Table,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    shrink_numerics: bool = False,
) -> pa.Table:
    """Convert columns to the inferred type that represents exactly the same values.

    Text becomes integers, floats, booleans, dates or timestamps if every value is in canonical form. The type depends
    only on the values, not on their order or chunks.

    Args:
        table: The rows.
        include: Convert only these columns; all by default.
        exclude: Do not convert these columns.
        shrink_numerics: Also convert integers to the narrowest integer type of the same signedness.

    Returns:
        The same rows in the same order, nulls included.

    Raises:
        KeyError: A name in `include` or `exclude` is not a column.

    Examples:
        >>> import pyarrow as pa
        >>> table = pa.table({"n": ["1", None, "3"], "code": ["01", "02", None]})
        >>> opt_dtype(table).schema.types
        [DataType(int64), DataType(string)]
    """
    unknown = [name for name in (*(include or ()), *exclude) if name not in table.column_names]
    if unknown:
        raise pa.ArrowKeyError(f"opt_dtype: no such columns: {unknown}. The table has {table.column_names}.")
    selected = set(table.column_names if include is None else include) - set(exclude)
    for index, field in enumerate(table.schema):
        if field.name not in selected:
            continue
        column = table.column(index)
        converted = _converted(column, shrink_numerics)
        if converted is not column:
            table = table.set_column(index, field.with_type(converted.type), converted)
    return table


def canonical_integer(text: str) -> int | None:
    """Return the 64-bit integer that the text represents in canonical form, or None."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    number = int(text)
    return number if str(number) == text and number in _INT64 else None


def _converted(column: pa.ChunkedArray, shrink: bool) -> pa.ChunkedArray:
    if is_text(unwrapped(column.type)):
        column = _parsed(column)
    return _shrunk(column) if shrink and pat.is_integer(column.type) else column


def _parsed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = column.cast(pa.large_string()) if pat.is_string_view(column.type) else column
    encoded = plain if pat.is_dictionary(plain.type) else plain.dictionary_encode()
    encoded = encoded.unify_dictionaries()
    used = pc.unique(encoded).drop_null().cast(pa.large_string()).to_pylist()
    parser = _parser_of(used)
    if parser is None:
        return column
    type_, parse = parser
    chunks = [_parse_chunk(chunk, type_, parse) for chunk in encoded.chunks]
    return pa.chunked_array(chunks, type=type_)


def _parse_chunk(chunk: pa.Array, type_: pa.DataType, parse: Callable[[str], Any]) -> pa.Array:
    # Dictionary values that no row uses may not parse; they become null and are not taken.
    values = pa.array([None if text is None else parse(text) for text in chunk.dictionary.to_pylist()], type_)
    return values.take(chunk.indices)


def _parser_of(texts: list[str]) -> tuple[pa.DataType, Callable[[str], Any]] | None:
    """Return the first type, with its parser, that all texts are in canonical form of."""
    if not texts:
        return None
    return next(((type_, parse) for type_, parse in _PARSERS if all(parse(text) is not None for text in texts)), None)


def _float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and repr(number) == text else None


def _date(text: str) -> dt.date | None:
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        return None
    return day if day.isoformat() == text else None


def _timestamp(separator: str) -> Callable[[str], dt.datetime | None]:
    def parse(text: str) -> dt.datetime | None:
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            return None
        return moment if moment.tzinfo is None and moment.isoformat(separator) == text else None

    return parse


_PARSERS: tuple[tuple[pa.DataType, Callable[[str], Any]], ...] = (
    (pa.int64(), canonical_integer),
    (pa.float64(), _float),
    (pa.bool_(), {"true": True, "false": False}.get),
    (pa.date32(), _date),
    (pa.timestamp("us"), _timestamp(" ")),
    (pa.timestamp("us"), _timestamp("T")),
)


def _shrunk(column: pa.ChunkedArray) -> pa.ChunkedArray:
    narrower: Iterable[pa.DataType] = _SHRINK["signed" if pat.is_signed_integer(column.type) else "unsigned"]
    for type_ in narrower:
        if type_.bit_width >= column.type.bit_width:
            break
        try:
            return column.cast(type_)
        except pa.ArrowInvalid:
            continue
    return column

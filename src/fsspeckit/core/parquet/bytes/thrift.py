"""Read and write Thrift's compact protocol without a schema, as a tree of numbered fields.

Parquet encodes footers, page headers and page indexes with it. Unknown fields stay in the tree, so that they are
written again. Damaged input raises `pa.ArrowInvalid`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Struct = dict[int, tuple[int, Any]]
"""Field number to type and value; a list is ``(element type, values)``, a map ``(key type, value type, pairs)``."""
Bytes = bytes | memoryview

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (I32, I64, I16)
_BITS = {I16: 16, I32: 32, I64: 64}
_MAX_DEPTH = 32
_MAX_ELEMENTS = 1_000_000  # of a list or map; pyarrow has the same limit


def read_struct(data: Bytes, at: int = 0, *, after: int = 0) -> tuple[Struct, int]:
    """Return the struct at a position, and the position after it. ``after`` is the number of the previous field."""
    try:
        return _struct(data, at, 0, after)
    except IndexError:
        raise pa.ArrowInvalid("its metadata ends too early") from None


def _struct(data: Bytes, at: int, depth: int, number: int = 0) -> tuple[Struct, int]:
    """Numbers are decoded inline, because a footer has hundreds of them and a call costs more.

    A field that occurs twice is damage, because readers differ in which one they use.
    """
    if depth > _MAX_DEPTH:
        raise pa.ArrowInvalid("its metadata is nested too deeply")
    fields: Struct = {}
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = read_signed(data, at)
        if number in fields:
            raise pa.ArrowInvalid(f"its metadata has field {number} twice")
        if kind in _INTEGERS:
            value = data[at]
            at += 1
            if value > 127:
                value, at = read_varint(data, at - 1)
                if value >> _BITS[kind]:
                    raise pa.ArrowInvalid("its metadata has a number that is too large for its type")
            fields[number] = kind, value >> 1 ^ -(value & 1)
        elif kind in (TRUE, FALSE):
            fields[number] = kind, None
        else:
            inner, at = _value(data, at, kind, depth)
            fields[number] = kind, inner
    return fields, at + 1


def _value(data: Bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return read_signed(data, at)
    if kind == BINARY:
        size, at = read_varint(data, at)
        return _raw(data, at, size), at + size
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _list(data, at, depth)
    if kind == MAP:
        return _map(data, at, depth)
    if kind == DOUBLE:
        return _raw(data, at, 8), at + 8
    if kind in (BYTE, TRUE, FALSE):  # a boolean has a byte only in a list
        return data[at], at + 1
    raise pa.ArrowInvalid(f"its metadata has a field of unknown type {kind}")


def _list(data: Bytes, at: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
    size, kind, at = read_list_header(data, at)
    _check_elements(size, data, at)
    values = []
    for _ in range(size):
        value, at = _value(data, at, kind, depth + 1)
        values.append(value)
    return (kind, values), at


def _map(data: Bytes, at: int, depth: int) -> tuple[tuple[int, int, list[tuple[Any, Any]]], int]:
    size, at = read_varint(data, at)
    _check_elements(size, data, at)
    if not size:
        return (0, 0, []), at
    kinds, at = data[at], at + 1
    pairs = []
    for _ in range(size):
        key, at = _value(data, at, kinds >> 4, depth + 1)
        value, at = _value(data, at, kinds & 15, depth + 1)
        pairs.append((key, value))
    return (kinds >> 4, kinds & 15, pairs), at


def _check_elements(size: int, data: Bytes, at: int) -> None:
    """Raise if a list or map is too large for memory, or for the bytes that are left: each element has at least one."""
    if size > len(data) - at:
        raise IndexError
    if size > _MAX_ELEMENTS:
        raise pa.ArrowInvalid(f"its metadata has a list of {size} elements")


def _raw(data: Bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError
    return bytes(data[at : at + size])


def read_varint(data: Bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number at a position, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte > 0x7F and shift < 64:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    if byte > 0x7F or value >> 64:
        raise pa.ArrowInvalid("its metadata has a number of more than 64 bits")
    return value, at + 1


def read_signed(data: Bytes, at: int) -> tuple[int, int]:
    """Return the signed number at a position, and the position after it."""
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def field_header(number: int, last: int, kind: int) -> bytes:
    """Return the header of a field that follows the field ``last`` of its struct."""
    if 0 < number - last < 16:
        return bytes((number - last << 4 | kind,))
    out = bytearray((kind,))
    _put_signed(out, number)
    return bytes(out)


def list_header(size: int, kind: int) -> bytes:
    """Return the header of a list with ``size`` elements."""
    if size < 15:
        return bytes((size << 4 | kind,))
    out = bytearray((0xF0 | kind,))
    put_varint(out, size)
    return bytes(out)


def write_value(kind: int, value: Any) -> bytes:
    """Return the bytes of a value without its field header."""
    out = bytearray()
    _put(out, kind, value)
    return bytes(out)


def read_list_header(data: Bytes, at: int) -> tuple[int, int, int]:
    """Return the size and element type of the list at a position, and the position of its first element."""
    head = data[at]
    if head >> 4 < 15:
        return head >> 4, head & 15, at + 1
    size, at = read_varint(data, at + 1)
    return size, head & 15, at


def write_struct(fields: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _put_struct(out, fields)
    return bytes(out)


def _put_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        out += field_header(number, last, kind)
        last = number
        if kind not in (TRUE, FALSE):
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _put_signed(out, value)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        _put_list(out, *value)
    elif kind == MAP:
        _put_map(out, *value)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)


def _put_list(out: bytearray, kind: int, values: list[Any]) -> None:
    out += list_header(len(values), kind)
    for value in values:
        _put(out, kind, value)


def _put_map(out: bytearray, key_kind: int, value_kind: int, pairs: list[tuple[Any, Any]]) -> None:
    put_varint(out, len(pairs))
    if pairs:
        out.append(key_kind << 4 | value_kind)
    for key, value in pairs:
        _put(out, key_kind, key)
        _put(out, value_kind, value)


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned number with seven bits per byte."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_signed(out: bytearray, value: int) -> None:
    put_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)

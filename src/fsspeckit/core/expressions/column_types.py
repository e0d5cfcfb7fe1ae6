"""Types of columns as text, such as ``zip string, at timestamp``, with the names of types of expressions."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.constants import TYPE_NAMES, named_type
from fsspeckit.core.expressions.grammar import exp, parse_one, shown

_COLUMN = re.compile(
    r"""\s*(?:"(?P<double>[^"]+)"|`(?P<back>[^`]+)`|(?P<plain>[^\s,"`()]+))\s+(?P<type>\w[^,()"`]*(?:\([\d\s,]*\))?)\s*"""
)
_REMEDY = 'pass names and types, as in "zip string, amount decimal(10, 2)"'


def parse_column_types(text: str) -> dict[str, pa.DataType]:
    """Return the types of columns by name.

    Raises:
        ExpressionError: The text is not a list of names and types, or a type is unknown.

    Examples:
        >>> parse_column_types('zip string, "unit price" decimal(10, 2)')
        {'zip': DataType(string), 'unit price': Decimal128Type(decimal128(10, 2))}
    """
    found: dict[str, pa.DataType] = {}
    at = 0
    while True:
        column = _COLUMN.match(text, at)
        if column is None or text[column.end() : column.end() + 1] not in ("", ","):
            raise ExpressionError(f"{shown(text)} is not a list of columns and types; {_REMEDY}")
        name = column["double"] or column["back"] or column["plain"]
        if name in found:
            raise ExpressionError(f"the column {name!r} has two types in {shown(text)}; name it once")
        found[name] = parse_type(column["type"].strip())
        at = column.end() + 1
        if at > len(text):
            return found


def parse_type(text: str) -> pa.DataType:
    """Return the type of an SQL name, as in CAST.

    Raises:
        ExpressionError: The type is unknown.
    """
    try:
        node = parse_one(f"CAST(NULL AS {text})")
    except ExpressionError:
        node = None
    found = cast_type(node) if isinstance(node, exp().Cast) else None
    if found is None:
        raise ExpressionError(f"unknown type {shown(text)}; use one of {', '.join(TYPE_NAMES)}")
    return found


def cast_type(node: Any) -> pa.DataType | None:
    """Return the type of a parsed CAST, or None if it is unknown."""
    sizes = [int(each.name) for each in node.to.expressions if each.name.isdigit()]
    return None if node.to.args.get("nested") else named_type(node.to.this.name, sizes)

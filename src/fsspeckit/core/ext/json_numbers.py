"""Numbers of JSON that a float cannot hold, found by reading them a second time as decimals.

Files without long numbers, which most are, are not read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.text_values import format_floats, is_number_of
from fsspeckit.core.ext.json_objects import objects

# A float64 holds every number of up to 15 digits, unless it is extremely small.
_LONG = re.compile(rb"[0-9.]{16}|[eE]-[0-9]{3}")
_EXACT = pa.decimal256(76, 38)
_ITEM = "[]"
_WIDEST = 38
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inexact:
    """A place in a column with rounded numbers, the first of them, and a decimal type that holds them all."""

    column: str
    path: Path
    row: int
    value: Decimal
    type: pa.DataType
    decimal: pa.DataType | None


def inexact_numbers(
    data: pa.Buffer, table: pa.Table, parse: Callable[[Mapping[str, pa.DataType]], pa.Table]
) -> Iterator[Inexact]:
    """The places of a table where the parser has rounded a number; ``parse`` reads some columns as other types."""
    floats = {field.name: list(_float_paths(field.type)) for field in table.schema}
    floats = {name: paths for name, paths in floats.items() if paths}
    leaves = [_leaf_type(table.schema.field(name).type, path) for name, paths in floats.items() for path in paths]
    if not leaves or (set(leaves) == {pa.float64()} and not _LONG.search(data)):
        return
    try:
        exact = parse({name: _as_decimals(table.schema.field(name).type, paths) for name, paths in floats.items()})
    except pa.ArrowInvalid:  # a number of extreme size, or none at all such as NaN
        for name, paths in floats.items():
            yield from _compared_one_by_one(data, name, table.schema.field(name).type, paths)
        return
    for name, path in ((name, path) for name, paths in floats.items() for path in paths):
        yield from _compared(name, path, table[name], exact[name])


def replaced(type_: pa.DataType, path: Path, leaf: pa.DataType) -> pa.DataType:
    """A nested type with another type at one place."""
    if not path:
        return leaf
    if path[0] == _ITEM and pat.is_list(type_):
        return pa.list_(replaced(type_.value_type, path[1:], leaf))
    fields = [(f.name, replaced(f.type, path[1:], leaf) if f.name == path[0] else f.type) for f in type_]
    return pa.struct(fields)


def _as_decimals(type_: pa.DataType, paths: Sequence[Path]) -> pa.DataType:
    for path in paths:
        type_ = replaced(type_, path, _EXACT)
    return type_


def _float_paths(type_: pa.DataType) -> Iterator[Path]:
    if pat.is_floating(type_):
        yield ()
    elif pat.is_list(type_):
        yield from ((_ITEM, *path) for path in _float_paths(type_.value_type))
    elif pat.is_struct(type_):
        yield from ((field.name, *path) for field in type_ for path in _float_paths(field.type))


def _leaf_type(type_: pa.DataType, path: Path) -> pa.DataType:
    for step in path:
        type_ = type_.value_type if step == _ITEM and pat.is_list(type_) else type_.field(step).type
    return type_


def _leaves(array: pa.Array, path: Path) -> tuple[pa.Array, list[pa.Array]]:
    """The values at a place, and for each list on the way the positions of the lists that its values come from."""
    parents = []
    for step in path:
        if step == _ITEM and pat.is_list(array.type):
            parents.append(pc.list_parent_indices(array))
            array = array.flatten()
        else:
            array = array.flatten()[array.type.get_field_index(step)]
    return array, parents


def _compared(name: str, path: Path, rounded: pa.ChunkedArray, exact: pa.ChunkedArray) -> Iterator[Inexact]:
    numbers, parents = _leaves(rounded.combine_chunks(), path)
    decimals, _ = _leaves(exact.combine_chunks(), path)
    differ = pc.not_equal(format_floats(numbers).cast(_EXACT), decimals)
    first = pc.index(differ, True).as_py()
    if first >= 0:
        row = first
        for positions in reversed(parents):
            row = positions[row].as_py()
        value = decimals[first].as_py().normalize()
        yield Inexact(name, path, row + 1, value, numbers.type, _holding(decimals))


def _holding(decimals: pa.Array) -> pa.DataType | None:
    """The decimal type with the fewest digits after the point that holds all of them."""
    for scale in range(_WIDEST + 1):
        type_ = pa.decimal128(_WIDEST, scale)
        try:
            decimals.cast(pa.decimal256(76, scale)).cast(type_)
        except pa.ArrowInvalid:
            continue
        return type_
    return None


def _compared_one_by_one(data: pa.Buffer, name: str, type_: pa.DataType, paths: Sequence[Path]) -> Iterator[Inexact]:
    """Compare each number with its text, where it is a number that no decimal of Arrow holds."""
    for number, text in enumerate(objects(data.to_pybytes().decode()), 1):
        row = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=float)
        for path in paths:
            leaf = _leaf_type(type_, path)
            for value in _values_at(row.get(name), path):
                if isinstance(value, Decimal) and not _is_held(value, leaf):
                    yield Inexact(name, path, number, value, leaf, None)
                    return


def _is_held(value: Decimal, type_: pa.DataType) -> bool:
    held = pa.array([float(value)]).cast(type_)
    return is_number_of(str(value), format_floats(held)[0].as_py(), held[0].as_py())


def _values_at(value: Any, path: Path) -> Iterator[Any]:
    if value is None or not path:
        yield value
    elif path[0] == _ITEM and isinstance(value, list):
        for item in value:
            yield from _values_at(item, path[1:])
    else:
        yield from _values_at(value.get(path[0]), path[1:])

"""Find JSON numbers that Arrow's parser does not read exactly, by reading them a second time.

The parser rounds numbers that a float cannot hold, and lets decimals overflow without an error. Comparing floats with
decimals finds both. Files without long numbers, which is most files, are not read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.text_values import format_floats, is_number_of
from fsspeckit.core.ext.json_objects import objects

# A float64 holds every number of up to 15 digits, unless it is extremely small.
_LONG = re.compile(rb"[0-9.]{16}|[eE]-[0-9]{3}")
# Numbers that overflow 76 digits when they get up to 38 digits after the point.
_HUGE = re.compile(rb"[0-9]{29}|[0-9][eE]\+?[0-9]{2}")
_EXACT = pa.decimal256(76, 38)
_ITEM = "[]"
_WIDEST = 38
_UINT64_DIGITS = 20
_CONTEXT = Context(prec=76)
Path = tuple[str, ...]
Parse = Callable[[Mapping[str, pa.DataType]], pa.Table]


@dataclass(frozen=True, slots=True)
class Inexact:
    """A path in a column with rounded numbers, the first of them, and a decimal type that holds them all."""

    column: str
    path: Path
    row: int
    value: Decimal
    type: pa.DataType
    decimal: pa.DataType | None


def inexact_numbers(data: pa.Buffer, table: pa.Table, parse: Parse) -> Iterator[Inexact]:
    """Yield the paths where the parser has rounded a number; ``parse`` reads some columns as other types."""
    floats = {field.name: list(_paths(field.type, pat.is_floating)) for field in table.schema}
    floats = {name: paths for name, paths in floats.items() if paths}
    leaves = [_leaf_type(table.schema.field(name).type, path) for name, paths in floats.items() for path in paths]
    if not leaves or (set(leaves) == {pa.float64()} and not _LONG.search(data)):
        return
    types = {name: _replaced_all(table.schema.field(name).type, paths, _EXACT) for name, paths in floats.items()}
    exact = _exact_columns(types, parse)
    for name, paths in floats.items():
        pairs = [(_leaves(table[name], path), _leaves(exact[name], path)) for path in paths] if name in exact else []
        if pairs and all(_are_close(numbers, decimals) for (numbers, _), (decimals, _) in pairs):
            for path, ((numbers, parents), (decimals, _)) in zip(paths, pairs, strict=True):
                yield from _compared(name, path, numbers, parents, decimals)
        else:  # a number of extreme size, or NaN
            yield from _compared_one_by_one(data, name, table.schema.field(name).type, paths)


def _exact_columns(types: Mapping[str, pa.DataType], parse: Parse) -> dict[str, pa.ChunkedArray]:
    """Return the columns that can be read as decimals."""
    try:
        table = parse(types)
    except pa.ArrowInvalid:
        if len(types) == 1:
            return {}
        return {name: column for one in types.items() for name, column in _exact_columns(dict([one]), parse).items()}
    return {name: table[name] for name in types}


def oversized_numbers(
    data: pa.Buffer, table: pa.Table, types: Mapping[str, pa.DataType], parse: Parse
) -> Iterator[Inexact]:
    """Yield numbers that are too large for decimals of ``types`` and have overflowed in the table."""
    decimals = {
        name: list(_paths(type_, pat.is_decimal)) for name, type_ in types.items() if name in table.column_names
    }
    decimals = {name: paths for name, paths in decimals.items() if paths}
    if not decimals or not _HUGE.search(data):
        return
    for name, paths in decimals.items():
        type_ = table.schema.field(name).type
        try:
            floats = parse({name: _replaced_all(type_, paths, pa.float64())})[name]
        except pa.ArrowInvalid:  # some decimals are written as text
            is_sound = False
        else:
            pairs = [(_leaves(floats, path)[0], _leaves(table[name], path)[0]) for path in paths]
            is_sound = all(_are_close(numbers, exact) for numbers, exact in pairs)
        if not is_sound:
            yield from _too_large(data, name, types[name], paths)


def replaced(type_: pa.DataType, path: Path, leaf: pa.DataType) -> pa.DataType:
    """Return a nested type with another type at one path."""
    if not path:
        return leaf
    if path[0] == _ITEM and pat.is_list(type_):
        return pa.list_(replaced(type_.value_type, path[1:], leaf))
    fields = [(f.name, replaced(f.type, path[1:], leaf) if f.name == path[0] else f.type) for f in type_]
    return pa.struct(fields)


def _replaced_all(type_: pa.DataType, paths: Sequence[Path], leaf: pa.DataType) -> pa.DataType:
    for path in paths:
        type_ = replaced(type_, path, leaf)
    return type_


def _paths(type_: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> Iterator[Path]:
    """Yield the paths in a nested type that have a wanted type."""
    if is_wanted(type_):
        yield ()
    elif pat.is_list(type_):
        yield from ((_ITEM, *path) for path in _paths(type_.value_type, is_wanted))
    elif pat.is_struct(type_):
        yield from ((field.name, *path) for field in type_ for path in _paths(field.type, is_wanted))


def _leaf_type(type_: pa.DataType, path: Path) -> pa.DataType:
    for step in path:
        type_ = type_.value_type if step == _ITEM and pat.is_list(type_) else type_.field(step).type
    return type_


def _leaves(column: pa.ChunkedArray, path: Path) -> tuple[pa.Array, list[pa.Array]]:
    """Return the values at a path, and for each list on the path the parent list of each value."""
    array, parents = column.combine_chunks(), []
    for step in path:
        if step == _ITEM and pat.is_list(array.type):
            parents.append(pc.list_parent_indices(array))
            array = array.flatten()
        else:
            array = array.flatten()[array.type.get_field_index(step)]
    return array, parents


def _are_close(numbers: pa.Array, decimals: pa.Array) -> bool:
    """Return whether decimals equal floats apart from rounding; an overflowed decimal does not.

    Arrow's parser fills a decimal beyond its precision, and no function accepts such a value.
    """
    wide = numbers.cast(pa.float64())
    distance = pc.abs(pc.subtract(decimals.cast(pa.float64()), wide))
    near = pc.less_equal(distance, pc.add(pc.multiply(pc.abs(wide), 1e-3), 1e-30))
    is_held = pc.less(pc.abs(wide), 10.0 ** (decimals.type.precision - decimals.type.scale))
    return bool(pc.all(pc.and_(near, is_held), min_count=0).as_py())


def _compared(
    name: str, path: Path, numbers: pa.Array, parents: Sequence[pa.Array], decimals: pa.Array
) -> Iterator[Inexact]:
    differ = pc.not_equal(format_floats(numbers).cast(_EXACT), decimals)
    first = pc.index(differ, True).as_py()
    if first >= 0:
        row = first
        for positions in reversed(parents):
            row = positions[row].as_py()
        value = decimals[first].as_py().normalize()
        yield Inexact(name, path, row + 1, value, numbers.type, _holding(decimals))


def _holding(decimals: pa.Array) -> pa.DataType | None:
    """Return the decimal type with the fewest fraction digits that holds all values; Arrow's cast is wrong here."""
    whole = scale = 0
    for number in decimals.drop_null().unique().to_pylist():
        plain = _CONTEXT.normalize(number)
        whole, scale = max(whole, plain.adjusted() + 1), max(scale, -int(plain.as_tuple().exponent))
    if scale == 0 and whole <= _UINT64_DIGITS:
        return pa.decimal128(_UINT64_DIGITS, 0)
    return pa.decimal128(_WIDEST, scale) if whole + scale <= _WIDEST else None


def _compared_one_by_one(data: pa.Buffer, name: str, type_: pa.DataType, paths: Sequence[Path]) -> Iterator[Inexact]:
    """Compare each number with its text, for numbers that no Arrow decimal can hold."""
    for row, path, value in _numbers(data, name, paths):
        leaf = _leaf_type(type_, path)
        if not _is_held(value, leaf):
            yield Inexact(name, path, row, value, leaf, None)
            return


def _too_large(data: pa.Buffer, name: str, type_: pa.DataType, paths: Sequence[Path]) -> Iterator[Inexact]:
    """Return the first number that has more integer digits than its decimal type."""
    for row, path, value in _numbers(data, name, paths):
        leaf = _leaf_type(type_, path)
        if abs(value) >= Decimal(10) ** (leaf.precision - leaf.scale):
            yield Inexact(name, path, row, value, leaf, None)
            return


def _numbers(data: pa.Buffer, name: str, paths: Sequence[Path]) -> Iterator[tuple[int, Path, Decimal]]:
    """Yield the exact numbers at some paths of a column, with their rows, including numbers written as text."""
    for row, text in enumerate(objects(data.to_pybytes().decode()), 1):
        found = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=float).get(name)
        for path in paths:
            for value in _values_at(found, path):
                with suppress(InvalidOperation):
                    number = Decimal(value) if isinstance(value, str) else value
                    if isinstance(number, Decimal) and number.is_finite():
                        yield row, path, number


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

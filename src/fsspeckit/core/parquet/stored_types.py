"""Keep the schema elements of columns that pyarrow would write in another form: types that Arrow does not carry.

INTERVAL, times in UTC, VARIANT, ENUM, BSON, geometries and lists of older writers are read as plain Arrow types. Their
columns carry the elements of their file as a mark (`fsspeckit.common.stored_types`), and `fitted` puts these around the
values that pyarrow encodes. What does not fit is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.common.int96 import replace_leaves
from fsspeckit.common.stored_types import BARE, DECODED, ELEMENTS, LOGICAL, MIXED
from fsspeckit.core.parquet.bytes.format_fields import FileField, SchemaField, empty_footer
from fsspeckit.core.parquet.bytes.thrift import FALSE, I32, LIST, STRUCT, TRUE, Struct, read_struct, write_struct
from fsspeckit.core.parquet.footer import PHYSICAL

Column = Sequence[Struct]
"""The schema elements of a top-level column, each group before its members."""
_REPEATED, _REQUIRED = 2, 0
_WRITERS_OF_DICTIONARIES = ("parquet-cpp", "Polars")
_DECIMAL, _INTERVAL = 5, 21
_FLOAT16, _INTERVAL_NUMBER = 15, 121
_NAMES = {
    4: "ENUM",
    5: "DECIMAL",
    6: "DATE",
    7: "TIME",
    8: "TIMESTAMP",
    10: "INTEGER",
    11: "UNKNOWN",
    12: "JSON",
    1: "STRING",
    2: "MAP",
    3: "LIST",
    13: "BSON",
    14: "UUID",
    15: "FLOAT16",
    16: "VARIANT",
    17: "GEOMETRY",
    18: "GEOGRAPHY",
    121: "INTERVAL",
}
_UNORDERED = frozenset({16, 17, 18, 121})
"""Types whose values have no order, so that bounds would mislead readers; nor have types that are not named here."""
_UNITS = {"ms": 1, "us": 2, "ns": 3}
_CONVERTED: dict[int, tuple[int, Any]] = {
    0: (1, {}),
    1: (2, {}),
    3: (3, {}),
    4: (4, {}),
    6: (6, {}),
    19: (12, {}),
    20: (13, {}),
    _INTERVAL: (121, {}),
    7: (7, (True, 1)),
    8: (7, (True, 2)),
    9: (8, (True, 1)),
    10: (8, (True, 2)),
    **{11 + n: (10, (8 << n, False)) for n in range(4)},
    **{15 + n: (10, (8 << n, True)) for n in range(4)},
}
"""The logical types that older annotations stand for. INTERVAL has only an older annotation."""
_PLAIN = (("INT32", (10, (32, True))), ("INT64", (10, (64, True))))


def mark_stored(schema: pa.Schema, elements: Sequence[Struct], *, bare: bool) -> pa.Schema:
    """Return the schema of a footer with marks on the columns that pyarrow would not write like their file.

    Args:
        schema: The Arrow schema that pyarrow reads.
        elements: The schema elements of the footer.
        bare: Whether the footer has no Arrow schema.
    """
    produced = _produced(schema)
    if produced is None:
        return schema
    for at, (own, other) in enumerate(zip(columns_of(elements), columns_of(produced), strict=True)):
        field = schema.field(at)
        marks = {} if own == other else _marks(own, other)
        if bare and (marks or _has_extension(field.type)):
            marks[BARE] = b"1"
        if marks:
            schema = schema.set(at, field.with_metadata({**(field.metadata or {}), **marks}))
    return schema


def _marks(own: Column, produced: Column) -> dict[bytes, bytes]:
    """Return the marks of a column. Another shape without another logical type is kept only if it fits."""
    if logical := _foreign_types(own, produced):
        return {ELEMENTS: _to_bytes(own), LOGICAL: logical}
    if _shape(own) == _shape(produced) or fitted(own, produced) is None:
        return {}
    return {ELEMENTS: _to_bytes(own)}


def mark_decoded(schema: pa.Schema, writer: str) -> pa.Schema:
    """Return the schema of a footer with marks on categories that pyarrow cannot read as such from every page.

    Writers in Rust encode them without a dictionary, for which pyarrow has no decoder of categories.
    """
    if writer.startswith(_WRITERS_OF_DICTIONARIES):
        return schema
    for at, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            schema = schema.set(at, field.with_metadata({**(field.metadata or {}), DECODED: b"1"}))
    return schema


def check_stored(schema: pa.Schema, operation: str) -> None:
    """Raise if a column of a logical type that Arrow does not carry cannot be written with it.

    Raises:
        UnsupportedDataError: Files of the dataset have different types, values of a wider Arrow type do not fit, or a
            column has arrays of size 0.
    """
    for field in schema:
        metadata = field.metadata or {}
        if _has_empty_arrays(field.type):
            raise UnsupportedDataError(
                f"{operation}: the column {field.name!r} has arrays of size 0, which pyarrow writes so that no reader "
                "can read them. Nothing was changed. Leave the column out, or write it with lists."
            )
        if MIXED in metadata:
            kinds = " and ".join(type_names(kind) or "no logical type" for kind in metadata[MIXED].split(b" and "))
            raise UnsupportedDataError(
                f"{operation}: files of the dataset store the column {field.name!r} with different logical types: "
                f"{kinds}. Nothing was changed. Write the files of one kind again with the type of the others."
            )
        if LOGICAL not in metadata:
            continue
        produced = _produced(pa.schema([field.remove_metadata()]))
        if produced is None or fitted(from_bytes(metadata[ELEMENTS]), produced[1:]) is None:
            raise UnsupportedDataError(
                f"{operation}: the column {field.name!r} has the logical type {type_names(metadata[LOGICAL])} in the "
                f"files of the dataset, which values of type {field.type} cannot be written as. Nothing was changed. "
                "Leave the column out, or write the dataset again without this type."
            )


def _has_empty_arrays(type_: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(type_) and type_.list_size == 0:
        return True
    return pa.types.is_nested(type_) and any(_has_empty_arrays(type_.field(at).type) for at in range(type_.num_fields))


def kept_elements(schema: pa.Schema) -> dict[str, Column]:
    """Return the elements of the marked columns of a schema."""
    marked = (field for field in schema if ELEMENTS in (field.metadata or {}))
    return {field.name: from_bytes(field.metadata[ELEMENTS]) for field in marked}


def bare_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema to store in a new file so that readers take the types that bare files give them."""
    fields = [
        field.with_type(replace_leaves(field.type, _as_bytes)) if BARE in (field.metadata or {}) else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def is_bare(schema: pa.Schema) -> bool:
    """Return whether a column of a schema is from files without an Arrow schema."""
    return any(BARE in (field.metadata or {}) for field in schema)


def _as_bytes(type_: pa.DataType) -> pa.DataType:
    if not isinstance(type_, pa.BaseExtensionType):
        return type_
    storage = type_.storage_type
    return pa.binary() if pa.types.is_string(storage) or pa.types.is_large_string(storage) else storage


def _has_extension(type_: pa.DataType) -> bool:
    return not type_.equals(replace_leaves(type_, _as_bytes))


def type_names(logical: bytes) -> str:
    """Return the names of the logical types of a mark."""
    numbers = [int(part.partition(b"=")[2].partition(b":")[0]) for part in logical.split(b";") if part]
    return ", ".join(dict.fromkeys(_NAMES.get(number, f"number {number}") for number in numbers))


def columns_of(elements: Sequence[Struct]) -> Iterator[Column]:
    """Yield the elements of each top-level column of a schema."""
    at = 1
    while at < len(elements):
        start, pending = at, 1
        while pending:
            pending += _children(elements[at]) - 1
            at += 1
        yield elements[start:at]


def fitted(own: Column, produced: Column) -> list[Struct] | None:
    """Return the elements of a file for values that pyarrow encodes with others; None if they do not fit.

    They fit if both have the same tree, or if each leaf has the same levels, as in lists with and without a middle
    group. The physical type of INT96 and of decimals is that of the values.
    """
    own = [own[0] | {SchemaField.name: produced[0][SchemaField.name]}, *own[1:]]  # a column can be renamed
    if [*map(_children, own)] == [*map(_children, produced)]:
        found = [_overlaid(mine, other) for mine, other in zip(own, produced, strict=True)]
        return None if None in found else [element for element in found if element is not None]
    mine, other = (list(_levels(iter(column))) for column in (own, produced))
    if len(mine) != len(other) or any(a[0] != b[0] for a, b in zip(mine, other, strict=True)):
        return None
    encoded, fits = iter(other), list[Struct | None]()
    for element in own:
        leaf = None if _children(element) else next(encoded)[1]
        repetition = {SchemaField.repetition: element.get(SchemaField.repetition, (I32, _REQUIRED))}
        fits.append(element if leaf is None else _overlaid(element, leaf | repetition))
    return None if None in fits else [element for element in fits if element is not None]


def paths_of(elements: Iterator[Struct], above: tuple[bytes, ...] = ()) -> Iterator[tuple[tuple[bytes, ...], Struct]]:
    """Yield the path of each leaf of a column, and the leaf."""
    element = next(elements)
    path = (*above, element[SchemaField.name][1])
    if not _children(element):
        yield path, element
    for _ in range(_children(element)):
        yield from paths_of(elements, path)


def has_new_type(column: Column) -> bool:
    """Return whether a column has a logical type that older versions of pyarrow do not open."""
    return any(_logical(element)[0] > _FLOAT16 and _logical(element)[0] != _INTERVAL_NUMBER for element in column)


def has_order(leaf: Struct) -> bool:
    """Return whether the values of a leaf have an order, so that bounds of them mean something."""
    number = _logical(leaf)[0]
    return number not in _UNORDERED and (number in _NAMES or number == 0)


def _overlaid(mine: Struct, other: Struct) -> Struct | None:
    """Return the element of a file for a produced one; its nullability is that of the values."""
    repetition = [each.get(SchemaField.repetition, (I32, _REQUIRED))[1] for each in (mine, other)]
    if (repetition[0] == _REPEATED) != (repetition[1] == _REPEATED):
        return None
    stored = [(_physical(each), each.get(SchemaField.width, (I32, 0))[1]) for each in (mine, other)]
    if stored[0] != stored[1]:
        is_decimal = _logical(mine) == _logical(other) and _logical(mine)[0] == _DECIMAL
        if not is_decimal and stored[0][0] != "INT96":
            return None
        return other | {SchemaField.name: mine[SchemaField.name]}
    found = dict(mine)
    found.pop(SchemaField.repetition, None)
    if SchemaField.repetition in other:
        found[SchemaField.repetition] = other[SchemaField.repetition]
    return found


def _levels(elements: Iterator[Struct], above: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Struct]]:
    """Yield for each leaf of a column the repetitions above it that take a level, and the leaf."""
    element = next(elements)
    repetition = element.get(SchemaField.repetition, (I32, _REQUIRED))[1]
    levels = above if repetition == _REQUIRED else (*above, repetition)
    if not _children(element):
        yield levels, element
    for _ in range(_children(element)):
        yield from _levels(elements, levels)


def _foreign_types(own: Column, produced: Column) -> bytes:
    """Return the logical types of a column that the produced one lacks or has otherwise, by their position."""
    both = [_typed(column) for column in (own, produced)]
    found = [(path, mine) for path, mine in both[0].items() if mine[0] and mine != both[1].get(path)]
    return b";".join(b"%s=%d:%s" % (path, number, repr(facts).encode()) for path, (number, facts) in found)


def _typed(column: Column) -> dict[bytes, tuple[int, Any]]:
    """Return the logical type of each leaf, and of groups that are not lists or maps."""
    leaves, groups = 0, 0
    found: dict[bytes, tuple[int, Any]] = {}
    for element in column:
        if not _children(element):
            found[b"%d" % leaves] = _logical(element)
            leaves += 1
        elif _logical(element)[0] not in (0, 2, 3):
            found[b"g%d" % groups] = _logical(element)
            groups += 1
    return found


def _logical(element: Struct) -> tuple[int, Any]:
    """Return the number and the parameters of the logical type of an element; zero if it has none.

    An annotation without effect is none: 32-bit and 64-bit integers, and the inner group of maps.
    """
    kind, union = element.get(SchemaField.logical, (STRUCT, {}))
    converted = element.get(SchemaField.converted, (I32, -1))[1]
    if kind == STRUCT and union:
        number, (_, fields) = next(iter(union.items()))
        found = number, _parameters(number, fields)
    elif converted == _DECIMAL:
        found = _DECIMAL, (element.get(8, (I32, 0))[1], element.get(7, (I32, 0))[1])
    else:
        found = _CONVERTED.get(converted, (0, ()))
        found = found[0], found[1] or ()
    return (0, ()) if (_physical(element), found) in _PLAIN else found


def _parameters(number: int, fields: Any) -> Any:
    if not isinstance(fields, dict):
        return repr(fields)
    if number in (7, 8):
        return fields.get(1, (FALSE, None))[0] == TRUE, next(iter(fields.get(2, (STRUCT, {0: 0}))[1]))
    if number == 10:
        return fields.get(1, (0, 0))[1], fields.get(2, (FALSE, None))[0] == TRUE
    if number == _DECIMAL:
        return fields.get(2, (I32, 0))[1], fields.get(1, (I32, 0))[1]
    return repr(sorted(fields.items())) if fields else ()


def _shape(column: Column) -> list[tuple[bytes, int]]:
    """Return the names and the tree of a column. The two usual names of the elements of lists count as one."""
    names = [element[SchemaField.name][1] for element in column]
    usual = [b"element" if at and name == b"item" else name for at, name in enumerate(names)]
    return [*zip(usual, map(_children, column), strict=True)]


def _physical(element: Struct) -> str:
    return PHYSICAL[element[SchemaField.kind][1]] if SchemaField.kind in element else ""


def _children(element: Struct) -> int:
    return int(element.get(SchemaField.children, (I32, 0))[1])


def _produced(schema: pa.Schema) -> Sequence[Struct] | None:
    """Return the elements that pyarrow writes for a schema, or None if it cannot be written."""
    try:
        return _written(schema.remove_metadata())
    except pa.ArrowException:
        return None


@lru_cache(maxsize=64)
def _written(schema: pa.Schema) -> Sequence[Struct]:
    elements: Sequence[Struct] = empty_footer(schema, {"version": "2.6"})[FileField.schema][1][1]
    return elements


def _to_bytes(column: Column) -> bytes:
    return write_struct({1: (LIST, (STRUCT, [*column]))})


def from_bytes(data: bytes) -> Column:
    """Return the elements in a mark."""
    column: Column = read_struct(data)[0][1][1][1]
    return column

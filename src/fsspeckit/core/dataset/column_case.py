"""Columns of different files whose names differ only in case: Spark and SQL read them as one column, Arrow as two.

Two such columns of one file are two columns. In different files they are one column that writers spell differently, so
a table with both would have nulls in place of half of the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.errors import SchemaMismatchError

NamedSchema = tuple[str, pa.Schema]
"""The path of a file, and its schema."""


def check_column_case(
    unified: pa.Schema, files: Sequence[NamedSchema], path: str, wanted: Collection[str] | None = None
) -> None:
    """Raise if names of columns in different files differ only in case.

    Args:
        unified: The common schema of all files.
        files: A file for each schema.
        path: The dataset.
        wanted: The columns that are read. Columns that are all named are different columns. Default: all columns.
    """
    if next(_same_but_case(_paths(unified, "")), None) is None:
        return
    for (one, first), (other, second) in _twins(files):
        if wanted is not None and (one in wanted) == (other in wanted):
            continue
        renames = joined_names([(schema, 1) for _, schema in files])
        joins = renames.get(one, one) == renames.get(other, other)
        action = f"Join them with `fsspeckit compact {path} --columns-ignore-case`, or rename" if joins else "Rename"
        raise SchemaMismatchError(
            f"{path}: the columns {one!r} of {first} and {other!r} of {second} differ only in case. Nothing was "
            f"changed. {action} one of them."
        )


def joined_names(schemas: Sequence[tuple[pa.Schema, int]]) -> dict[str, str]:
    """Return new names of columns, so that names no longer differ only in case: the name in the most files.

    ``schemas`` come with the number of their files. Columns of which one file has two keep their names.
    """
    counts: Counter[str] = Counter()
    for schema, files in schemas:
        counts.update(dict.fromkeys(schema.names, files))
    apart = {name.lower() for schema, _ in schemas for name in _same_but_case(schema.names)}
    chosen: dict[str, str] = {}
    for name in counts:
        known = chosen.setdefault(name.lower(), name)
        chosen[name.lower()] = name if counts[name] > counts[known] else known
    names = {name: chosen[name.lower()] for name in counts if name.lower() not in apart}
    return {name: new for name, new in names.items() if name != new}


def _twins(files: Sequence[NamedSchema]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield pairs of names that differ only in case and that no file has both, each with a file that has it."""
    having: dict[str, list[int]] = {}
    for number, (_, schema) in enumerate(files):
        for name in _paths(schema, ""):
            having.setdefault(name, []).append(number)
    by_name: dict[str, list[str]] = {}
    for name in having:
        by_name.setdefault(name.lower(), []).append(name)
    for spellings in by_name.values():
        for one, other in combinations(spellings, 2):
            if not {*having[one]} & {*having[other]}:
                yield (one, files[having[one][0]][0]), (other, files[having[other][0]][0])


def _same_but_case(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            yield name
        seen.add(name.lower())


def _paths(fields: Iterable[pa.Field], prefix: str) -> Iterator[str]:
    """Yield the names of columns and of fields in structs, at any depth."""
    for field in fields:
        name = f"{prefix}{field.name}"
        yield name
        yield from _inside(field.type, name)


def _inside(type_: pa.DataType, name: str) -> Iterator[str]:
    if pat.is_struct(type_):
        yield from _paths(type_, f"{name}.")
    else:
        for number in range(type_.num_fields):
            yield from _inside(type_.field(number).type, name)

"""Check before the first write that values of all files fit the types of the common schema.

Only time units need the check: a finer unit has a smaller range, and nanoseconds end in the year 2262. Statistics prove
most files; otherwise the column is read.

The dictionary of a joined file can have more values than codes of 8 or 16 bits can represent. That is only known
during the run, so `report_narrow_codes` turns it into an error of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.types import unwrapped
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.model import DataFile
from fsspeckit.core.planning.statistics import bound_values
from fsspeckit.core.values.take import needs_wider_codes

_WIDE_CODES = 32


def columns_to_check(snapshot: Snapshot, columns: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Return, for files with columns whose time unit differs from the common schema, these columns."""
    assert snapshot.schema is not None
    result: dict[str, tuple[str, ...]] = {}
    known: dict[int, tuple[str, ...]] = {}
    for file in snapshot.files:
        if id(file.schema) not in known:
            known[id(file.schema)] = _recast(file.schema, snapshot.schema, columns)
        if file.rows and known[id(file.schema)]:
            result[file.path] = known[id(file.schema)]
    return result


def _recast(own: pa.Schema, common: pa.Schema, columns: Iterable[str] | None) -> tuple[str, ...]:
    names = own.names if columns is None else [name for name in columns if name in own.names]
    pairs = [(name, own.field(name).type, common.field(name).type) for name in names if name in common.names]
    return tuple(name for name, ours, joined in pairs if not ours.equals(joined) and _has_unit(joined))


def _has_unit(type_: pa.DataType) -> bool:
    type_ = unwrapped(type_)
    if pat.is_nested(type_):
        return any(_has_unit(type_.field(i).type) for i in range(type_.num_fields))
    return bool(pat.is_timestamp(type_) or pat.is_duration(type_))


def proven_by_statistics(file: DataFile, columns: Sequence[str], schema: pa.Schema) -> bool:
    """Return whether statistics prove that all values of some columns fit."""
    return all(_is_proven(file, name, schema.field(name).type) for name in columns)


def _is_proven(file: DataFile, name: str, type_: pa.DataType) -> bool:
    stats = file.stats.get(name)
    if stats is None or stats.native is None or pat.is_dictionary(type_):
        return False
    filled = [i for i, rows in enumerate(file.row_groups) if stats.nulls[i] != rows]
    bounds = [value for i in filled for value in (stats.lower[i], stats.upper[i])]
    return None not in bounds and (not bounds or bound_values(bounds, stats.native, type_) is not None)


def value_range_error(snapshot: Snapshot, file: DataFile, name: str) -> SchemaMismatchError:
    """Return the error for a value that does not fit the common type. It also names a file that has this type."""
    assert snapshot.schema is not None
    joined = snapshot.schema.field(name).type
    others = [other for other in snapshot.files if other.rows and name in other.schema.names]
    other = next((other for other in others if other.schema.field(name).type.equals(joined)), others[0])
    return SchemaMismatchError(
        f"column {name!r} of {file.path} is {file.schema.field(name).type} and has values that do not fit {joined}, "
        f"the type of all files, because of {other.path}. Rewrite one of them with the unit of the other."
    )


@contextmanager
def report_narrow_codes(operation: str, path: str, snapshot: Snapshot) -> Iterator[None]:
    """Raise an error with the columns whose dictionaries have more values than their codes can represent.

    Wider codes only in the new files are no solution: readers use the type of the first file for all files.
    """
    try:
        yield
    except pa.ArrowInvalid as error:
        if not needs_wider_codes(error):
            raise
        assert snapshot.schema is not None
        names = [field.name for field in snapshot.schema if _has_narrow_codes(field.type)]
        raise SchemaMismatchError(
            f"{operation} of {path}: the dictionary column(s) {names} have more values in all files than codes of 8 or "
            "16 bits can represent. Rewrite the dataset with these columns as strings, or with codes of 32 bits."
        ) from error


def _has_narrow_codes(type_: pa.DataType) -> bool:
    if pat.is_dictionary(type_):
        return bool(type_.index_type.bit_width < _WIDE_CODES)
    return any(_has_narrow_codes(type_.field(i).type) for i in range(type_.num_fields))

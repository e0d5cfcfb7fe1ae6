"""Whether values of mixed files fit the types that the files have in common, asked before anything is written.

Units of time are the one case in which a common type has room for the digits but not for all values: nanoseconds end
in the year 2262. Statistics of the footers answer for most files; where they do not, the column itself is read.

Dictionaries are told apart by codes, and codes of 8 or 16 bits may be too few when the values of several files meet.
That shows only then, so it is an error of the run.
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
    """Files with columns whose unit of time is another one over all files, and these columns."""
    assert snapshot.schema is not None
    found: dict[str, tuple[str, ...]] = {}
    known: dict[int, tuple[str, ...]] = {}
    for file in snapshot.files:
        if id(file.schema) not in known:
            known[id(file.schema)] = _recast(file.schema, snapshot.schema, columns)
        if file.rows and known[id(file.schema)]:
            found[file.path] = known[id(file.schema)]
    return found


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
    """Whether statistics say that all values of some columns fit."""
    return all(_is_proven(file, name, schema.field(name).type) for name in columns)


def _is_proven(file: DataFile, name: str, type_: pa.DataType) -> bool:
    stats = file.stats.get(name)
    if stats is None or stats.native is None or pat.is_dictionary(type_):
        return False
    filled = [i for i, rows in enumerate(file.row_groups) if stats.nulls[i] != rows]
    ends = [value for i in filled for value in (stats.lower[i], stats.upper[i])]
    return None not in ends and (not ends or bound_values(ends, stats.native, type_) is not None)


def value_range_error(snapshot: Snapshot, file: DataFile, name: str) -> SchemaMismatchError:
    """The error for a file with a value that has no place in the common type; it names a file of that type too."""
    assert snapshot.schema is not None
    joined = snapshot.schema.field(name).type
    others = [other for other in snapshot.files if other.rows and name in other.schema.names]
    other = next((other for other in others if other.schema.field(name).type.equals(joined)), others[0])
    return SchemaMismatchError(
        f"column {name!r} of {file.path} is {file.schema.field(name).type} and holds values that do not fit {joined}, "
        f"which it is together with {other.path}; rewrite one of them with the other's unit"
    )


@contextmanager
def report_narrow_codes(operation: str, path: str, snapshot: Snapshot) -> Iterator[None]:
    """Name the columns whose dictionaries get more values than their codes can tell apart.

    Wider codes in the new files alone would be worse: readers take the type of the first file for that of all.
    """
    try:
        yield
    except pa.ArrowInvalid as error:
        if not needs_wider_codes(error):
            raise
        assert snapshot.schema is not None
        names = [field.name for field in snapshot.schema if _has_narrow_codes(field.type)]
        raise SchemaMismatchError(
            f"{operation} of {path}: the files have more values in the dictionary column(s) {names} than codes of 8 or "
            "16 bits tell apart; write the dataset anew with such columns as text, or with codes of 32 bits"
        ) from error


def _has_narrow_codes(type_: pa.DataType) -> bool:
    if pat.is_dictionary(type_):
        return bool(type_.index_type.bit_width < _WIDE_CODES)
    return any(_has_narrow_codes(type_.field(i).type) for i in range(type_.num_fields))

"""Find the columns that may identify a row: by their types and nulls, then by a sample. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.types import is_bytes, is_text, unwrapped
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.model import DataFile
from fsspeckit.core.storage import Storage

_SAMPLED_ROWS = 100_000
_SAMPLED_FILES = 4
_MOST_PAIRS = 10
_PAIRED = 8
_NAMES = ("id", "key", "uuid", "guid", "pk")


def is_named_as_key(name: str) -> bool:
    """Return whether the name of a column says that it identifies a row: ``id``, ``order_id``, ``customerId``."""
    return name.lower() in _NAMES or name.lower().endswith(tuple(f"_{each}" for each in _NAMES)) or name.endswith("Id")


def candidate_keys(storage: Storage, snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return single columns, or pairs of columns if there are none, whose values are unique in a sample, best first."""
    if not snapshot.rows or snapshot.schema is None:
        return []
    inside = [field for field in snapshot.schema if _may_be_key(field.type) and not _has_nulls(snapshot, field.name)]
    inside.sort(key=_rank)
    partitions = [name for name in snapshot.partition_columns if name not in snapshot.schema.names]
    sample = _sample(storage, snapshot, pa.schema(inside), partitions)
    names = [field.name for field in inside]
    single: list[tuple[str, ...]] = [(name,) for name in names if _is_unique(sample, (name,))]
    if single:
        return single
    pairs: list[tuple[str, ...]] = [(name, part) for name in names for part in partitions]
    pairs += list(combinations(names[:_PAIRED], 2))
    return [pair for pair in pairs if _is_unique(sample, pair)][:_MOST_PAIRS]


def _may_be_key(type_: pa.DataType) -> bool:
    plain = unwrapped(type_)
    if isinstance(plain, pa.BaseExtensionType):
        return bool(pat.is_fixed_size_binary(plain.storage_type))
    tests = (pat.is_integer, is_text, is_bytes, pat.is_decimal, pat.is_date, pat.is_timestamp, pat.is_fixed_size_binary)
    return any(test(plain) for test in tests)


def _rank(field: pa.Field) -> tuple[bool, int]:
    plain = unwrapped(field.type)
    kinds = (pat.is_integer(plain), not pat.is_temporal(plain) and not pat.is_decimal(plain), pat.is_decimal(plain))
    return not is_named_as_key(field.name), kinds.index(True) if True in kinds else len(kinds)


def _has_nulls(snapshot: Snapshot, name: str) -> bool:
    """Return whether footers say that a column has nulls; a file without the column has only nulls."""
    return any(_nulls_of(file, name) for file in snapshot.files if file.rows)


def _nulls_of(file: DataFile, name: str) -> bool:
    if name not in file.schema.names:
        return True
    stats = file.stats.get(name)
    return stats is not None and any(nulls for nulls in stats.nulls if nulls is not None)


def _sample(storage: Storage, snapshot: Snapshot, schema: pa.Schema, partitions: Sequence[str]) -> pa.Table:
    """Return the first rows of some files, with the texts of their folders."""
    filled = [file for file in snapshot.files if file.rows]
    chosen = filled[:: max(1, len(filled) // _SAMPLED_FILES)][:_SAMPLED_FILES]
    return pa.concat_tables([_first_rows(storage, snapshot, file, schema, partitions) for file in chosen])


def _first_rows(
    storage: Storage, snapshot: Snapshot, file: DataFile, schema: pa.Schema, partitions: Sequence[str]
) -> pa.Table:
    groups = [next(number for number, rows in enumerate(file.row_groups) if rows)]
    rows = min(file.row_groups[groups[0]], _SAMPLED_ROWS)
    table = pa.table({"": pa.nulls(rows)})
    if schema.names:
        _, table = next(read_columns(storage, file, groups, schema))
    table = table.slice(0, _SAMPLED_ROWS)
    for name in partitions:
        text = None if file.partition is None else file.partition[snapshot.partition_columns.index(name)]
        table = table.append_column(name, pa.repeat(pa.scalar(text, pa.string()), table.num_rows))
    return table


def _is_unique(sample: pa.Table, names: Iterable[str]) -> bool:
    columns = {name: _plain(sample[name]) for name in names}
    if any(column.null_count for column in columns.values()):
        return False
    table = pa.table(columns)
    return bool(table.group_by(list(columns)).aggregate([]).num_rows == table.num_rows)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that can be grouped."""
    type_ = unwrapped(column.type)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], type_.storage_type)
    if pat.is_string_view(type_) or pat.is_binary_view(type_):
        return column.cast(pa.large_string() if pat.is_string_view(type_) else pa.large_binary())
    return column if type_ == column.type else column.cast(type_)

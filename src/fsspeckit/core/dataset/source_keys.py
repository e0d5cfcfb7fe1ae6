"""What planning must know of a source: sound keys, one row per key, and which rows belong to which partition.

All checks of the source's keys are here, so they hold for every engine and come before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.choices import OnDuplicate
from fsspeckit.common.errors import KeyColumnError, PartitionError
from fsspeckit.common.inference import PADDED_NUMBER
from fsspeckit.common.partitions import partition_folder, partition_folders, render, typed_values
from fsspeckit.common.types import is_number, unwrapped
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.model import KeyColumn, PartitionValues, RowNumbers
from fsspeckit.core.values.hashing import Hashes, hash_keys
from fsspeckit.core.values.keys import (
    Codes,
    KeyEncoder,
    check_sortable,
    comparable,
    duplicate_codes,
    is_increasing,
    last_of_each,
    order_rank,
)

_SHOWN = 5
UNREADABLE = "\0"
"""How the identity of a folder begins that cannot be read as the source's types."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRows:
    """Source rows of one partition; ``folder`` is where new files for it go."""

    folder: str
    identity: str
    rows: range | RowNumbers


def plain_keys(source: Source, keys: Sequence[KeyColumn], rows: range | RowNumbers) -> list[pa.ChunkedArray]:
    """Key columns of some source rows, in the form in which keys are compared."""
    table = source.columns([key.name for key in keys])
    if not isinstance(rows, range):
        table = source.take(rows, table.schema)
    elif len(rows) < source.rows:
        table = table.slice(rows.start, len(rows))
    return [comparable(table[key.name], key.type) for key in keys]


def check_no_null_keys(table: pa.Table, keys: Sequence[str], side: str) -> None:
    """Raise where a key column holds nulls."""
    for key in keys:
        if table[key].null_count:
            raise null_key_error(key, side, table[key].null_count)


def null_key_error(key: str, side: str, count: int) -> KeyColumnError:
    """The error for a null in a key column of the source or the target."""
    return KeyColumnError(
        f"key column {key!r} of the {side} has {count:,} NULL value(s); "
        'drop or fill these rows, or pass null_keys="match" to treat NULL as equal to NULL'
    )


def select_rows(
    source: Source,
    keys: Sequence[KeyColumn],
    *,
    on_duplicate: OnDuplicate,
    deduplicate: bool,
    order_by: Sequence[str],
) -> range | RowNumbers:
    """The source rows that take part: one for each key."""
    everything = range(source.rows)
    if source.rows < 2:
        return everything
    columns = plain_keys(source, keys, everything)
    if not _is_number(columns) and _all_differ(hash_keys(columns)):
        return everything
    codes = KeyEncoder(columns).codes
    repeated, counts = duplicate_codes(codes)
    if len(repeated) == 0:
        return everything
    if not source.ordered and (on_duplicate != "error" or (deduplicate and not order_by)):
        raise _no_order(deduplicate)
    if deduplicate:
        return last_of_each(codes, [_rank(source, name) for name in order_by])
    if on_duplicate == "error":
        raise _duplicate_error(source, [key.name for key in keys], codes, repeated, counts)
    if on_duplicate == "last":
        return last_of_each(codes, [])
    return np.sort(len(codes) - 1 - last_of_each(codes[::-1], []))


def _all_differ(hashes: Hashes) -> bool:
    """Whether no two are equal; they are sorted in place."""
    hashes.sort()
    return is_increasing(hashes)


def _is_number(columns: Sequence[pa.ChunkedArray]) -> bool:
    """Whether keys are their own codes; of any others, different hashes prove that they differ, and cost less."""
    return len(columns) == 1 and pa.types.is_int64(columns[0].type)


def _rank(source: Source, name: str) -> Codes:
    """Ranks by which the highest wins; a leading minus turns them round."""
    wanted = name.removeprefix("-") if name not in source.schema.names else name
    ranks = order_rank(source.columns([wanted])[wanted])
    return ~ranks if wanted != name else ranks


def check_order_columns(schema: pa.Schema, order_by: Sequence[str], side: str = "source") -> None:
    """Raise for an order column that a side does not have, or whose values have no order."""
    missing = [name for name in order_by if name not in schema.names and name.removeprefix("-") not in schema.names]
    if missing:
        raise KeyColumnError(f"dedup_order_by names unknown columns {missing}; the {side} has {schema.names}")
    for name in order_by:
        check_sortable(schema.field(name if name in schema.names else name.removeprefix("-")), "dedup_order_by")


def _duplicate_error(source: Source, names: list[str], codes: Codes, repeated: Codes, counts: Codes) -> KeyColumnError:
    shown = []
    for code, count in list(zip(repeated, counts, strict=True))[:_SHOWN]:
        row = source.columns(names).slice(int(np.flatnonzero(codes == code)[0]), 1).to_pylist()[0]
        shown.append(f"{tuple(row.values()) if len(row) > 1 else next(iter(row.values()))!r} ({int(count)} times)")
    return KeyColumnError(
        f"the source has {len(repeated):,} duplicate key(s) for {names}: {', '.join(shown)}. Make the source unique, "
        'or pass on_duplicate_source="last" or "first", or strategy="deduplicate"'
    )


def _no_order(deduplicate: bool) -> KeyColumnError:
    wish = 'strategy="deduplicate" without dedup_order_by' if deduplicate else "on_duplicate_source"
    return KeyColumnError(
        f"the source has duplicate keys and its query ends in a shuffle, so its rows come in no order and {wish} would "
        'keep any of them; sort it (orderBy), or use strategy="deduplicate" with dedup_order_by'
    )


def split_by_partition(
    source: Source, rows: range | RowNumbers, columns: Sequence[str], existing: Mapping[str, str]
) -> list[PartitionRows]:
    """Rows of each partition, in source order; ``existing`` maps a partition's identity to its folder."""
    if not columns:
        return [PartitionRows("", "", rows)] if len(rows) else []
    table = source.columns(columns)
    table = table if isinstance(rows, range) else source.take(rows, table.schema)
    encoded = pc.dictionary_encode(partition_folders(table))
    folders, codes = encoded.dictionary.to_pylist(), to_numpy(encoded.indices)
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(folders) + 1))
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
    members = [numbers[order[cuts[i] : cuts[i + 1]]] for i in range(len(folders))]
    return [PartitionRows(existing.get(name, name), name, part) for name, part in zip(folders, members, strict=True)]


class PartitionIdentities:
    """One spelling for each partition, however its folder spells it: values are read as the source's types.

    Columns in ``in_folders`` have no type but the one that the names of the folders tell. There, a folder with leading
    zeros holds text, and no number of the source.
    """

    def __init__(self, columns: Sequence[str], source: pa.Schema, in_folders: Collection[str] = ()) -> None:
        self._columns = tuple(columns)
        self._types = [source.field(name).type for name in columns]
        self._in_folders = in_folders
        self._known: dict[PartitionValues, str] = {}
        self._similar: dict[str, PartitionValues] = {}

    def of(self, values: PartitionValues) -> str:
        """The identity of a folder's values; each combination is worked out once."""
        if not self._columns:
            return ""
        if values not in self._known:
            self._known[values] = self._spell(values)
        return self._known[values]

    def _spell(self, values: PartitionValues) -> str:
        try:
            typed = [typed_values([text], type_) for text, type_ in zip(values, self._types, strict=True)]
        except PartitionError:
            # No value of the source's types is spelled like that, so no row can belong there.
            return f"{UNREADABLE}{values}"
        spelling = str(partition_folders(dict(zip(self._columns, typed, strict=True)))[0])
        pairs = zip(self._columns, values, typed, strict=True)
        if any(name in self._in_folders and _is_other(text, value) for name, text, value in pairs):
            self._similar[spelling] = values
            return f"{UNREADABLE}{values}"
        return spelling

    def check(self, groups: Sequence[PartitionRows]) -> None:
        """Raise where the value of a row can be read from the text of a folder, and is written in another way.

        Raises:
            PartitionError: Nothing tells whether the row belongs there.
        """
        exact = set(self._known.values())
        for group in groups:
            if group.identity in self._similar and group.identity not in exact:
                folder = partition_folder(self._columns, self._similar[group.identity])
                raise PartitionError(
                    f"the source has the value of {group.identity!r}, and the dataset has the text of {folder!r}, "
                    "which is another value; pass the partition column as text"
                )


def _is_other(text: str | None, value: pa.Array) -> bool:
    """Whether a folder's text is not how the value that it was read as is written: `01`, `0x1` or, for true, `1`."""
    type_ = unwrapped(value.type)
    if text is None:
        return False
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return bool(render(value)[0].as_py() != text)
    return is_number(type_) and re.match(PADDED_NUMBER, text) is not None

"""Check the keys of a source, select one row per key, and split rows by partition.

All engines use these functions before the first write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.errors import ColumnNameError, KeyColumnError, PartitionError
from fsspeckit.common.inference import PADDED_NUMBER
from fsspeckit.common.partitions import partition_folder, partition_folders, render, typed_values
from fsspeckit.common.types import is_number, unwrapped
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.kernels.exchange.split_keys import Keep
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
    missing_sequence,
    order_rank,
)

_SHOWN = 5
DUPLICATE_REMEDY = 'Remove the duplicates, or pass on_duplicate_source="last" or "first", or strategy="deduplicate"'
ONE_CHANGE_PER_KEY = (
    "With ignore_null_updates, apply one change per key at a time: split the feed by sequence, or pass scd_type=2"
)
UNREADABLE = "\0"
"""Prefix of the identity of a folder whose values cannot be parsed as the source's types."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRows:
    """Source rows of one partition; new files of the partition are written to ``folder``."""

    folder: str
    identity: str
    rows: range | RowNumbers


def plain_keys(source: Source, keys: Sequence[KeyColumn], rows: range | RowNumbers) -> list[pa.ChunkedArray]:
    """Return the key columns of some source rows, in the form in which keys are compared."""
    table = source.columns([key.name for key in keys])
    if not isinstance(rows, range):
        table = source.take(rows, table.schema)
    elif len(rows) < source.rows:
        table = table.slice(rows.start, len(rows))
    return [comparable(table[key.name], key.type) for key in keys]


def check_no_null_keys(table: pa.Table, keys: Sequence[str], side: str, operation: str = "merge") -> None:
    """Raise if a key column has nulls."""
    for key in keys:
        if table[key].null_count:
            raise null_key_error(key, side, table[key].null_count, operation)


def null_key_error(key: str, side: str, count: int, operation: str) -> KeyColumnError:
    """Return the error for nulls in a key column of the source or the target."""
    remedy = "Remove these rows or replace the values."
    if operation == "merge":
        remedy = 'Remove these rows or replace the values, or pass null_keys="match" to treat NULL as equal to NULL.'
    return KeyColumnError(f"key column {key!r} of the {side} has {count:,} NULL value(s). {remedy}")


def check_sequence(source: Source, name: str) -> None:
    """Raise if a change has no sequence."""
    check_sequence_values(name, *missing_sequence(source.columns([name])[name]))


def check_sequence_values(name: str, nulls: int, has_nan: bool) -> None:
    """Raise if changes have no sequence: NULL or NaN."""
    if nulls:
        raise KeyColumnError(f"the column {name!r} of sequence_by has {nulls:,} NULL value(s). Remove these rows.")
    if has_nan:
        raise KeyColumnError(
            f"the column {name!r} of sequence_by has NaN values, which have no order. Remove these rows."
        )


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """Which source row of each key is merged.

    Attributes:
        keep: The first or last row, or the one with the highest values of ``order_by``; without these, the last one.
            None if a key that occurs several times is an error.
        remedy: The action that this error names.
    """

    keep: Keep | None
    order_by: tuple[str, ...] = ()
    remedy: str = DUPLICATE_REMEDY

    def check(self, source: Source) -> None:
        """Raise if the order of the rows decides about keys that occur several times, and the source has none."""
        if source.ordered or self.keep is None or self.order_by:
            return
        option = 'strategy="deduplicate" without dedup_order_by' if self.keep == "highest" else "on_duplicate_source"
        raise KeyColumnError(
            "the source has duplicate keys and its query ends in a shuffle, so its rows have no order and "
            f'{option} would keep an arbitrary one. Sort the source (orderBy), or use strategy="deduplicate" with '
            "dedup_order_by"
        )


def select_rows(source: Source, keys: Sequence[KeyColumn], choice: KeyChoice) -> range | RowNumbers:
    """Return the source rows to merge: one for each key."""
    all_rows = range(source.rows)
    if source.rows < 2:
        return all_rows
    columns = plain_keys(source, keys, all_rows)
    if not _is_number(columns) and _all_differ(hash_keys(columns)):
        return all_rows
    codes = KeyEncoder(columns).codes
    repeated, counts = duplicate_codes(codes)
    if len(repeated) == 0:
        return all_rows
    choice.check(source)
    if choice.keep is None:
        raise _duplicate_error(source, [key.name for key in keys], codes, repeated, counts, choice.remedy)
    if choice.keep == "first":
        return np.sort(len(codes) - 1 - last_of_each(codes[::-1], []))
    return last_of_each(codes, [_rank(source, name) for name in choice.order_by])


def _all_differ(hashes: Hashes) -> bool:
    """Return whether all hashes differ. Sorts them in place."""
    hashes.sort()
    return is_increasing(hashes)


def _is_number(columns: Sequence[pa.ChunkedArray]) -> bool:
    """Return whether keys are single integers, which need no encoding. Other keys are compared by hash first."""
    return len(columns) == 1 and pa.types.is_int64(columns[0].type)


def _rank(source: Source, name: str) -> Codes:
    """Return ranks of which the highest is kept. A leading minus in the name reverses the order."""
    column = name.removeprefix("-") if name not in source.schema.names else name
    ranks = order_rank(source.columns([column])[column])
    return ~ranks if column != name else ranks


def check_order_columns(schema: pa.Schema, order_by: Sequence[str], side: str = "source") -> None:
    """Raise if an order column is missing or its type has no order. ``side`` names the schema in errors."""
    missing = [name for name in order_by if name not in schema.names and name.removeprefix("-") not in schema.names]
    if missing:
        raise ColumnNameError(
            f"dedup_order_by names columns that the {side} does not have: {missing}. Choose among {schema.names}."
        )
    for name in order_by:
        check_sortable(schema.field(name if name in schema.names else name.removeprefix("-")), "dedup_order_by")


def _duplicate_error(
    source: Source, names: list[str], codes: Codes, repeated: Codes, counts: Codes, remedy: str
) -> KeyColumnError:
    unique, firsts = np.unique(codes, return_index=True)
    at = firsts[np.searchsorted(unique, repeated)]
    shown = np.argsort(at)[:_SHOWN]
    rows = [source.columns(names).slice(int(at[i]), 1).to_pylist()[0] for i in shown]
    return duplicate_error(names, rows, counts[shown].tolist(), len(repeated), remedy)


def duplicate_error(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], times: Sequence[int], count: int, remedy: str
) -> KeyColumnError:
    """Return the error for duplicate keys: ``rows`` are the first ones with such a key, with how often it occurs."""
    shown = [
        f"{tuple(row.values()) if len(row) > 1 else next(iter(row.values()))!r} ({number} times)"
        for row, number in zip(rows, times, strict=True)
    ]
    return KeyColumnError(f"the source has {count:,} duplicate key(s) for {list(names)}: {', '.join(shown)}. {remedy}")


def split_by_partition(
    source: Source, rows: range | RowNumbers, columns: Sequence[str], existing: Mapping[str, str]
) -> list[PartitionRows]:
    """Return the rows of each partition, in source order; ``existing`` maps partition identities to folders."""
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
    """Canonical names of partitions: folder values are parsed as the source's types, so all spellings are equal.

    Columns in ``text_folders`` are only in the names of folders, and text in the dataset. There, a folder with leading
    zeros is not equal to a number of the source.
    """

    def __init__(self, columns: Sequence[str], source: pa.Schema, text_folders: Collection[str] = ()) -> None:
        self._columns = tuple(columns)
        self._types = [source.field(name).type for name in columns]
        self._text_folders = text_folders
        self._known: dict[PartitionValues, str] = {}
        self._similar: dict[str, PartitionValues] = {}

    def of(self, values: PartitionValues) -> str:
        """Return the identity of the values of a folder."""
        return self.of_all([values])[0] or ""

    def of_all(self, folders: Sequence[PartitionValues | None]) -> list[str | None]:
        """Return the identity of the values of each folder. They are parsed together, which is much faster."""
        if not self._columns:
            return [None if values is None else "" for values in folders]
        new = [values for values in dict.fromkeys(folders) if values is not None and values not in self._known]
        if new:
            self._learn(new)
        return [None if values is None else self._known[values] for values in folders]

    def _learn(self, folders: Sequence[PartitionValues]) -> None:
        try:
            texts = zip(*folders, strict=True)
            typed = [typed_values(column, type_) for column, type_ in zip(texts, self._types, strict=True)]
            spellings = partition_folders(dict(zip(self._columns, typed, strict=True))).to_pylist()
        except PartitionError:
            if len(folders) > 1:
                for values in folders:
                    self._learn([values])
            else:
                # No value of the source has this text, so no source row is in this partition.
                self._known[folders[0]] = f"{UNREADABLE}{folders[0]}"
            return
        is_other = self._are_other(folders, typed)
        for values, spelling, other in zip(folders, spellings, is_other, strict=True):
            if other:
                self._similar[spelling] = values
            self._known[values] = f"{UNREADABLE}{values}" if other else spelling

    def _are_other(self, folders: Sequence[PartitionValues], typed: Sequence[pa.Array]) -> list[bool]:
        """Return for each folder whether one of its values is text that only looks like a value of the source."""
        result = [False] * len(folders)
        for number, (name, column) in enumerate(zip(self._columns, typed, strict=True)):
            if name in self._text_folders:
                found = _are_other([values[number] for values in folders], column)
                result = [one or other for one, other in zip(result, found, strict=True)]
        return result

    def check(self, groups: Sequence[PartitionRows]) -> None:
        """Raise if a source value equals the text of a folder only after parsing, such as 1 and `01`.

        Raises:
            PartitionError: It is not known whether the row belongs to that folder.
        """
        exact = set(self._known.values())
        for group in groups:
            if group.identity in self._similar and group.identity not in exact:
                folder = partition_folder(self._columns, self._similar[group.identity])
                raise PartitionError(
                    f"the source has the value of {group.identity!r}, and the dataset has the text of {folder!r}, "
                    "which is another value. Pass the partition column as text."
                )


def _are_other(texts: Sequence[str | None], values: pa.Array) -> list[bool]:
    """Return whether formatting a parsed value gives another text than the folder's: `01`, `0x1`, or `1` for true."""
    type_ = unwrapped(values.type)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        formatted = render(values).to_pylist()
        return [text is not None and text != own for text, own in zip(texts, formatted, strict=True)]
    return [is_number(type_) and text is not None and re.match(PADDED_NUMBER, text) is not None for text in texts]

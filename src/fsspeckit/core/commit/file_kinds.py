"""Tell the data files of a listing from other visible files.

A file with a Parquet ending is a data file, also if it is damaged. Hive, Impala and Trino write Parquet files without
an ending (`000000_0`), so any other visible file is a data file if its first and last bytes are Parquet's. These bytes
are read once: the result is kept in this process and in the footer index, for a path, a size and a version.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from fsspeckit.common.text import is_storable
from fsspeckit.core.commit.file_list import FileList
from fsspeckit.core.commit.footer_index import MIN_FILES, MIN_LOCAL_FILES, FooterIndex, has_identity, usable_entries
from fsspeckit.core.file_names import is_data_file, is_visible
from fsspeckit.core.parquet.footer_table import is_of_others, table_of_others
from fsspeckit.core.parquet.magic import SMALLEST, is_parquet
from fsspeckit.core.storage import Entry, Storage, for_each, join

_CHECKSUM = ".crc"
_SETTLED = 2.0  # seconds after which a file cannot be changed again within the same time stamp
_MOST_KNOWN = 200_000
_KNOWN: dict[Hashable, bool] = {}


def split_entries(
    storage: Storage, root: str, entries: Iterable[Entry], index: FooterIndex | None = None
) -> tuple[list[Entry], list[Entry]]:
    """Return the data files of a sorted listing, and the other visible files. Files that vanished are in neither."""
    data: list[Entry] = []
    unsure: list[Entry] = []
    for entry in entries:
        if is_data_file(entry.path):
            data.append(entry)
        elif is_visible(entry.path) and not entry.path.endswith(_CHECKSUM):
            unsure.append(entry)
    if not unsure:
        return data, []
    kinds = _kinds(storage, root, unsure, index)
    found = [entry for entry, kind in zip(unsure, kinds, strict=True) if kind]
    others = [entry for entry, kind in zip(unsure, kinds, strict=True) if kind is False]
    return sorted([*data, *found], key=lambda entry: entry.path) if found else data, others


def is_data(storage: Storage, root: str, entry: Entry) -> bool:
    """Return whether a file is a data file by its name or its content. A record of the journal may name any file."""
    return is_data_file(entry.path) or is_parquet(storage, join(root, entry.path), entry) is True


def _kinds(storage: Storage, root: str, entries: Sequence[Entry], index: FooterIndex | None) -> list[bool | None]:
    """Return for each file whether it is Parquet; ``None`` if it vanished."""
    place = (storage.client, storage.url(root))
    keys = [(place, entry.path, entry.size, entry.version) for entry in entries]
    kinds = [False if entry.size < SMALLEST else _KNOWN.get(key) for entry, key in zip(entries, keys, strict=True)]
    if index is not None and kinds.count(None) >= (MIN_LOCAL_FILES if storage.is_local else MIN_FILES):
        kinds = _with_index(kinds, entries, index)
    unknown = [number for number, kind in enumerate(kinds) if kind is None]
    paths = [join(root, entry.path) for entry in entries]
    looked = for_each(storage, lambda number: is_parquet(storage, paths[number], entries[number]), unknown)
    for number, kind in zip(unknown, looked, strict=True):
        kinds[number] = kind
    others = [entries[number] for number in unknown if kinds[number] is False and _is_final(entries[number])]
    if index is not None and others:
        index.add_tables([table_of_others(others)])
    new = (number for number, key in enumerate(keys) if key not in _KNOWN and _is_final(entries[number]))
    _remember({keys[number]: kind for number in new if (kind := kinds[number]) is not None})
    return kinds


def _with_index(kinds: Sequence[bool | None], entries: Sequence[Entry], index: FooterIndex) -> list[bool | None]:
    """Return kinds, those that are not known as the footer index has them."""
    tables = index.tables((), others=True)
    named = [is_storable(entry.path) for entry in entries]
    listed = [entry for entry, is_named in zip(entries, named, strict=True) if is_named]
    rows = np.full(len(entries), -1, dtype=np.int64)
    rows[named] = usable_entries(tables, FileList.of("", listed), ())
    places = np.searchsorted(np.cumsum([len(table) for table in tables]), rows, side="right").tolist()
    is_other = [is_of_others(table.shared) for table in tables]
    found = zip(kinds, rows.tolist(), places, strict=True)
    return [kind if kind is not None or row < 0 else not is_other[place] for kind, row, place in found]


def _is_final(entry: Entry) -> bool:
    """Return whether another content would have another size or version, and the index can have the name."""
    is_old = has_identity(entry.version) and time.time() - entry.modified > _SETTLED
    return is_old and is_storable(entry.path)


def _remember(kinds: dict[Hashable, bool]) -> None:
    if len(_KNOWN) + len(kinds) > _MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN.update(kinds)

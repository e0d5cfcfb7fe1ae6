"""What a journal remembers of rows that were loaded: idempotency keys, positions of readers, and source files.

The journal is beside the dataset, so it outlives files that another program removes. The rule: a journal names the
files that its newest commits published. If none of them exists, what it remembers is not valid, and a caller that
relies on it gets `DatasetLostError`: one with a committed key, a reader with a position, a stream that continues.
Without any data file, every change of the dataset is this error. If other files are there, because another program
wrote the folder anew, operations that rely on nothing work on them; their commit stores that what was remembered before
is not valid. With ``reload``, it is forgotten instead, and so is what is remembered of a dataset without rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from fsspeckit.common.errors import DatasetLostError
from fsspeckit.common.text import counted
from fsspeckit.core.commit.file_kinds import split_entries
from fsspeckit.core.commit.log import SAVED_KEY, SAVED_POSITION, Log, LogState, name_digest
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.seen_files import SeenFiles, stored_files, unpack
from fsspeckit.core.storage import Storage, for_each, join

NO_FILES = "the folder was removed or has no data file"
_PROBED_FILES = 3
_ATTEMPTS = 5
_T = TypeVar("_T")


def lost(storage: Storage, root: str, found: str) -> DatasetLostError:
    """Return the error for rows that are gone; ``found`` says why."""
    path = root if storage.is_local else storage.url(root)
    return DatasetLostError(
        f"{path}: {found}, so rows that the journal remembers are gone. Nothing was changed. Load them again "
        f"(`fsspeckit run --reload`, in Python the argument reload), or run `fsspeckit forget {path}` to start without "
        "the journal."
    )


def expected_files(records: Iterable[Record | None]) -> Iterator[tuple[str, int]]:
    """Yield path and size of each file that commits published and no later one removed. ``records``: newest first."""
    known = set[str]()
    for record in records:
        for item in () if record is None else record.publish:
            if item.path not in known:
                yield item.path, item.size
        known.update(() if record is None else record.paths)


class Memory:
    """What one journal remembers. Nothing is written."""

    def __init__(self, storage: Storage, root: str, log: Log, *, reload: bool = False) -> None:
        self._storage, self._root, self._log, self._reload = storage, root, log, reload

    def committed(self, key: str) -> int | None:
        """Return the slot of the newest commit with an idempotency key, or None."""
        state, records = self._records()
        found = {record.seq: record.seq for record in records if record.idempotency_key == key}
        saved = map(SAVED_KEY.fullmatch, self._storage.list_names(self._log.keys_folder))
        found |= {int(name[1]): int(name[1]) for name in saved if name is not None and name[2] == name_digest(key)}
        return self._newest(found, state, records)

    def position(self, reader: str) -> int | None:
        """Return the last version that a reader of changes has processed, or None."""
        state, records = self._records()
        saved = map(SAVED_POSITION.fullmatch, self._storage.list_names(self._log.positions_folder))
        found = {int(name[1]): int(name[3]) for name in saved if name is not None and name[2] == name_digest(reader)}
        found |= {record.seq: record.positions[reader] for record in records if reader in record.positions}
        return self._newest(found, state, records)

    def seen_files(self, reader: str) -> SeenFiles:
        """Return the source files that a reader has processed."""
        state, records = self._records()
        found = {record.seq: set(unpack(record.seen[reader])) for record in records if reader in record.seen}
        for seq, entries in stored_files(self._storage, self._log.seen_folder, reader).items():
            found[seq] = found.get(seq, set()) | entries
        if self._newest(found, state, records) is None:
            return SeenFiles()
        return SeenFiles(entry for seq, entries in found.items() if seq >= state.anew for entry in entries)

    def _records(self) -> tuple[LogState, list[Record]]:
        """Return the commits, which are read before what is saved: `prune` saves it before it deletes a record."""
        state = self._log.state()
        found = for_each(self._storage, self._log.read_or_none, self._log.effective(state))
        return state, [record for record in found if record is not None and record.kind == "commit"]

    def _newest(self, found: Mapping[int, _T], state: LogState, records: list[Record]) -> _T | None:
        """Return what the newest slot has. If that is not valid, raise, or with ``reload`` return None."""
        if not found:
            return None
        seq = max(found)
        reason = f"commit {state.anew} started the dataset anew" if seq < state.anew else self._reason(state, records)
        if reason is not None and not self._reload:
            raise lost(self._storage, self._root, reason)
        is_empty = self._reload and reason is None and not self._log.contents(self._log.state())[0]
        return found[seq] if reason is None and not is_empty else None

    def _reason(self, state: LogState, records: list[Record]) -> str | None:
        """Return why the rows are gone; None if a file of the newest commits exists. One request is usually enough."""
        for _ in range(_ATTEMPTS):
            if state.is_pending:  # published by the recovery of the next operation
                return None
            expected = dict(expected_files(reversed(records)))
            for path, size in islice(expected.items(), _PROBED_FILES):
                entry = self._storage.stat_file(join(self._root, path))
                if entry is not None and entry.size == size:
                    return None
            reason = self._reason_in_tree(state, expected)
            if reason is None or self._log.has_position(state):
                return reason
            state, records = self._records()  # another writer has replaced the files meanwhile
        return None

    def _reason_in_tree(self, state: LogState, expected: Mapping[str, int]) -> str | None:
        try:
            tree = self._storage.list_tree(self._root).files
        except FileNotFoundError:
            tree = ()
        files = {entry.path: entry.size for entry in split_entries(self._storage, self._root, tree)[0]}
        if any(files.get(path) == size for path, size in expected.items()):
            return None
        if files:
            found = f"another program wrote the folder anew ({counted(len(files), 'data file')})"
            return found if expected else None
        try:
            return NO_FILES if self._log.contents(state)[0] else None
        except FileNotFoundError:  # removed by a later commit
            return None

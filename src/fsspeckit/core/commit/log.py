"""The journal of a dataset: list its slots, and create records in them.

Each change is one record in one numbered slot. The writer that creates the file of a slot owns the slot; this is the
only point where concurrent writers compete. What a record does to the dataset is in `replay`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import CommitConflictError, DamagedFileError, OutcomeUnknownError, StorageError
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.export_marks import TITLES, ExportMark, parse_kept, parse_mark
from fsspeckit.core.commit.footer_index import index_files
from fsspeckit.core.commit.history import Expired, expired_files, fold, folded_until, oldest_expired, remove_expired
from fsspeckit.core.commit.late_copies import MOST_COMMITS, Names, are_gone, from_bytes, may_come, to_bytes
from fsspeckit.core.commit.partition_types import PartitionTypes, recorded_types
from fsspeckit.core.commit.partition_types import mark_of as mark_of_types
from fsspeckit.core.commit.record import MAX_RECORDS, Record, is_id, key_of, new_id
from fsspeckit.core.commit.seen_files import save_seen
from fsspeckit.core.commit.tombstones import FOLDER as TOMBSTONES
from fsspeckit.core.commit.tombstones import (
    MARK,
    NAME,
    TombstoneFile,
    TombstoneList,
    mark_of,
    newest_list,
)
from fsspeckit.core.commit.tombstones import from_bytes as tombstones_from_bytes
from fsspeckit.core.commit.tombstones import to_bytes as tombstones_to_bytes
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import Entry, Storage, for_each, join
from fsspeckit.core.storage.base import LOCK

KEPT_RECORDS = 32
"""Number of records that `prune` keeps, so that writers with an older snapshot can still check for conflicts."""
_PRUNE_SLACK = 32
_KEPT_KEYS = 10_000
_STAGING = ".staging_"
_KINDS = (".json", ".done")
SAVED_KEY = re.compile(r"(\d{20})-([0-9a-f]{64})", re.ASCII)
SAVED_POSITION = re.compile(r"(\d{20})-([0-9a-f]{64})-(\d{1,20})", re.ASCII)
_POLICY = re.compile(r"retain-(\d{20})-(\d{1,12})", re.ASCII)
_SLOT = re.compile(r"(?:floor|key|anew|late|gone)-(\d{20})", re.ASCII)
_PROBED = re.compile(r"probed-[0-9a-f]{32}", re.ASCII)
_LIST_ATTEMPTS = 3
_MOST_REFUSALS = 5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogState:
    """One listing of the slots. ``leftovers`` are temporary files of a create that crashed.

    ``retain`` is the policy: the seconds for which commits keep the files that they remove, or 0. No version before
    ``floor`` can be read. ``exports`` are the marks of exported metadata, and ``kept`` are the exports and catalogs to
    refresh after every commit. ``probed`` are the marks of `exclusive_create`. Rows of commits before ``anew`` are
    gone, because another program removed their files. ``tombstones`` are the slot of the newest list of files of
    tombstones, and the number of these files. ``late`` and ``gone`` are the slots of the lists of `late_copies`.
    ``types`` are the types of partition columns by the slot that set them, and ``key`` is the slot that set the key.
    """

    records: tuple[int, ...] = ()
    done: frozenset[int] = frozenset()
    leftovers: tuple[str, ...] = ()
    retain: int = 0
    floor: int = 0
    exports: tuple[ExportMark, ...] = ()
    kept: frozenset[str] = frozenset()
    probed: frozenset[str] = frozenset()
    anew: int = 0
    tombstones: tuple[int, int] = (0, 0)
    late: int = 0
    gone: int = 0
    types: tuple[tuple[int, PartitionTypes], ...] = ()
    key: int = 0

    @property
    def is_export_outdated(self) -> bool:
        """Return whether a kept export may not describe the newest slot.

        A version whose file was not written has a mark too, beside that of the version before it.
        """
        for kind in self.kept & TITLES.keys():
            slots = [mark.seq for mark in self.exports if mark.format == kind]
            if len(slots) != 1 or slots[0] < self.newest:
                return True
        return False

    def types_at(self, version: int) -> PartitionTypes | None:
        """Return the types of the partition columns in a version. Before the first ones, those are the best guess."""
        known = [(slot, types) for slot, types in self.types if slot >= self.anew]
        return next((types for slot, types in reversed(known) if slot <= version), known[0][1] if known else None)

    @property
    def newest(self) -> int:
        """Return the highest slot in use, or 0 for an empty journal."""
        return self.records[-1] if self.records else 0

    @property
    def is_pending(self) -> bool:
        """Return whether the newest record is not applied yet. Older records without ``.done`` are never applied."""
        return bool(self.records) and self.newest not in self.done

    @property
    def is_settled(self) -> bool:
        """Return whether there are records, all effects of which are visible, and the next slot has no ``.done``."""
        return bool(self.records) and max(self.done, default=0) == self.newest


@dataclass(frozen=True, slots=True)
class Survey:
    """One listing of a sidecar: its slots, and the ids of the transactions that have a staging folder.

    ``listed_at`` is its time by the monotonic clock. ``index`` are the files of the footer index, if they were listed.
    """

    sidecar: str | None
    exists: bool = False
    state: LogState = LogState()
    stagings: tuple[str, ...] = ()
    listed_at: float = field(default_factory=time.monotonic)
    index: tuple[Entry, ...] | None = None

    @property
    def age(self) -> float:
        """Return the seconds since the listing."""
        return time.monotonic() - self.listed_at


def _stagings(names: Iterable[str]) -> list[str]:
    ids = (name.removeprefix(_STAGING) for name in names if name.startswith(_STAGING))
    return [transaction for transaction in ids if is_id(transaction)]


def name_digest(key: str) -> str:
    """Return what the name of a saved key or position has of the key or reader."""
    return hashlib.sha256(key.encode()).hexdigest()


class Log:
    """The numbered slots of one sidecar."""

    def __init__(self, storage: Storage, sidecar: str) -> None:
        self._storage = storage
        self.sidecar = sidecar
        self.folder = join(sidecar, "log")
        self.lock_path = join(sidecar, LOCK)
        self.queue_path = join(sidecar, "queue")
        self.staging_lock_path = join(sidecar, "begin-lock")
        self.keys_folder = join(sidecar, "keys")
        self.positions_folder = join(sidecar, "positions")
        self.seen_folder = join(sidecar, "seen")
        self.kept_folder = join(sidecar, "kept")
        self.history_folder = join(sidecar, "history")
        self.tombstones_folder = join(sidecar, TOMBSTONES)
        self._refused: Counter[int] = Counter()

    def staging_path(self, transaction: str) -> str:
        """Return the path of a transaction's staging folder."""
        return join(self.sidecar, _STAGING + transaction)

    def stagings(self) -> list[str]:
        """Return the ids of the transactions that have a staging folder."""
        return _stagings(self._storage.list_names(self.sidecar))

    def state(self) -> LogState:
        """List the slots."""
        return self._state(self._storage.list_names(self.folder))

    def has_position(self, state: LogState) -> bool:
        """Return whether the newest record, and whether it is applied, are as in an earlier listing of the slots.

        On a local disk two requests are enough, in this order. A later record has the next slot, and its commit removes
        the mark of the newest one before anybody prunes the record.
        """
        if not self._storage.is_local or not state.is_settled:
            now = self.state()
            return (now.newest, now.is_pending) == (state.newest, state.is_pending)
        if self._storage.stat(self._path(state.newest + 1, "json")) is not None:
            return False
        return self._storage.stat(self._path(state.newest, "done")) is not None

    def survey(self) -> Survey:
        """List the slots and the staging folders, with one request if the storage can."""
        listed = self._storage.list_below(self.sidecar)
        if listed is None:
            state, names = self.state(), self._storage.list_names(self.sidecar)
            return Survey(self.sidecar, bool(names), state, tuple(_stagings(names)))
        paths = [entry.path for entry in listed]
        state = self._state(path.removeprefix("log/") for path in paths if path.startswith("log/"))
        folders = dict.fromkeys(path.partition("/")[0] for path in paths)
        index = index_files(listed)
        return Survey(self.sidecar, bool(paths), state, tuple(_stagings(folders)), index=index)

    def _state(self, names: Iterable[str]) -> LogState:
        records, done, leftovers, policy = [], set(), [], (0, 0)
        slots = dict.fromkeys(("floor", "anew", "late", "gone", "key"), 0)
        exports, kept, probed, others = [], set(), set(), list[str]()
        for name in names:
            number, ending = name[:20], name[20:]
            if ending in _KINDS and number.isdecimal() and number.isascii():
                if ending == ".json":
                    records.append(int(number))
                else:
                    done.add(int(number))
            elif name.endswith(".tmp"):
                leftovers.append(join(self.folder, name))
            elif (found := _POLICY.fullmatch(name)) is not None:
                policy = max(policy, (int(found[1]), int(found[2])))
            elif (found := _SLOT.fullmatch(name)) is not None:
                kind = name.partition("-")[0]
                slots[kind] = max(slots[kind], int(found[1]))
            elif (mark := parse_mark(name)) is not None:
                exports.append(mark)
            elif (keeps := parse_kept(name)) is not None:
                kept.add(keeps)
            elif _PROBED.fullmatch(name) is not None:
                probed.add(name)
            else:
                others.append(name)
        records.sort()
        for seq in records[:1] + records[-1:]:
            self._checked_number(seq)
        state = LogState(
            tuple(records),
            frozenset(done),
            tuple(leftovers),
            policy[1],
            floor=slots["floor"],
            anew=slots["anew"],
            late=slots["late"],
            gone=slots["gone"],
            key=slots["key"],
        )
        if not (exports or kept or probed or others):
            return state
        marks, kinds = tuple(sorted(exports)), frozenset(kept)
        state = replace(state, exports=marks, kept=kinds, probed=frozenset(probed))
        return replace(state, tombstones=newest_list(others), types=recorded_types(others))

    def _checked_number(self, seq: int) -> int:
        if not 0 < seq < MAX_RECORDS:
            raise StorageError(
                f"{self._path(seq, 'json')} is not a valid journal record: its number is out of range. "
                "Nothing was changed. Delete the records with the highest numbers if fsspeckit did not write them."
            )
        return seq

    def read(self, seq: int) -> Record:
        """Read the record of a slot.

        Raises:
            FileNotFoundError: The slot is free.
            StorageError: The record is invalid.
        """
        path = self._path(seq, "json")
        return Record.from_bytes(self._storage.read_bytes(path), seq, path)

    def contents(self, state: LogState) -> tuple[bool, Emptied | None]:
        """Return whether the newest commit left data files, and if it left none, the columns of the dataset.

        A commit that changes no file repeats both, so the newest one is enough, and `prune` never removes that. Older
        versions of fsspeckit repeated neither.

        Raises:
            FileNotFoundError: The record was removed after the listing.
        """
        for seq in reversed(self.effective(state)):
            record = self.read(seq)
            if record.publish or record.retire or record.emptied or record.files_left is not None:
                return bool(record.publish or record.files_left), record.emptied
        return False, None

    def remove_unused_marks(self, state: LogState) -> None:
        """Remove ``.done`` files of free slots: with such a file, the next record would look applied."""
        unused = [self._path(seq, "done") for seq in state.done if seq > state.newest]
        for_each(self._storage, self._storage.remove, unused)

    def claim(self, record: Record) -> bool:
        """Create the record in its slot. Return False, without any effect, if another writer owns the slot.

        Raises:
            OutcomeUnknownError: The record may or may not exist. After any other error it does not.
        """
        self._checked_number(record.seq)
        path = self._path(record.seq, "json")
        try:
            self._storage.create_exclusive(path, record.to_bytes())
        except FileExistsError:
            try:
                if not self._is_own(record):
                    return False
            except FileNotFoundError:  # another writer created a record here and withdrew it, or it was deleted
                self._refused[record.seq] += 1
                if self._refused[record.seq] >= _MOST_REFUSALS:
                    raise self._refuses_deleted(path) from None
                return False
        except OSError as error:
            if not self._resolve_failed_create(record, error):
                return False
        if not self._storage.is_local:
            self._check_is_newest(record)
        return True

    def _refuses_deleted(self, path: str) -> StorageError:
        return StorageError(
            f"{path} does not exist, and the server refuses to create it because it exists: some servers do that with "
            "deleted objects of a versioned bucket. Nothing was changed. Delete all versions and delete markers of the "
            f"objects in {self.sidecar}, or use another path for the dataset."
        )

    def _resolve_failed_create(self, record: Record, error: OSError) -> bool:
        """Find out who owns the slot after a create failed or its response was lost.

        On an object store, an abort record is created in the slot: then the lost request cannot succeed later.
        """
        if isinstance(error, PermissionError):
            raise error
        if self._storage.is_local:
            return self._check_owner(record, error)
        abort = Record(seq=record.seq, kind="abort", owner=new_id())
        try:
            self._storage.create_exclusive(self._path(record.seq, "json"), abort.to_bytes())
        except FileExistsError:
            return self._check_owner(record, error)
        except OSError:
            raise self._outcome_unknown(record) from error
        self._finish_abort(abort)
        raise error

    def _check_owner(self, record: Record, error: OSError) -> bool:
        """Return whether the slot has our record. If so, sync the folder again: that may be the step that failed."""
        try:
            if not self._is_own(record):
                return False
            self.sync()
        except FileNotFoundError:
            if not self._storage.is_local:
                raise self._outcome_unknown(record) from error
            raise error from None  # a local create has no lost response: it failed and the slot is free
        except OSError:
            raise self._outcome_unknown(record) from error
        return True

    def _finish_abort(self, abort: Record) -> None:
        try:
            self.finish(abort)
        except OSError as error:
            _logger.debug("abort record %d is not marked as done, the next operation does it: %s", abort.seq, error)

    def _is_own(self, record: Record) -> bool:
        """Return whether the slot has this record: a client that repeats a request gets "exists" for its own file."""
        existing = self.read(record.seq)
        return existing.kind == record.kind and existing.owner == record.owner

    def _check_is_newest(self, record: Record) -> None:
        """Raise if a record was created in a slot that others used and pruned before (possible only without a lock).

        Such a record has no effect, because only the newest record is replayed. If our staging folder is missing,
        other processes may have applied and pruned the record: they delete the folder first.
        """
        state = self._list_with_retries(record)
        if state.newest == record.seq or self._was_replayed_by_other(record, state):
            return
        if record.kind == "commit" and not self._storage.staging_exists(self.staging_path(record.owner)):
            raise self._outcome_unknown(record)
        self._storage.remove(self._path(record.seq, "json"))
        raise CommitConflictError(
            f"Other writers advanced the journal to slot {state.newest} while slot {record.seq} was being created. "
            "Nothing was changed. Run the operation again."
        )

    def _list_with_retries(self, record: Record) -> LogState:
        """List the slots, with retries: after the record was created, an error must not look like a failed commit."""
        for _ in range(_LIST_ATTEMPTS - 1):
            try:
                return self.state()
            except OSError as error:
                _logger.debug("listing %s failed, trying again: %s", self.folder, error)
        try:
            return self.state()
        except OSError as error:
            raise self._outcome_unknown(record) from error

    def _was_replayed_by_other(self, record: Record, state: LogState) -> bool:
        """Return whether another process found our record and applied it."""
        if record.seq not in state.done:
            return False
        try:
            return self._storage.read_bytes(self._path(record.seq, "done")) == record.owner.encode()
        except FileNotFoundError:
            return False

    def _outcome_unknown(self, record: Record) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"The outcome of the commit is unknown: the storage failed while slot {record.seq} of {self.folder} was "
            "being written. Run recover(), then check whether the change is there before you run it again."
        )

    def sync(self) -> None:
        """Make every visible slot durable."""
        self._storage.sync_dirs([self.folder])

    def finish(self, record: Record) -> bool:
        """Set the policy, the marks and the tombstones of the record, and mark it as applied.

        Return False if another process has marked it before. A local disk does not tell: there, only one process at a
        time applies records. No sync is needed after the mark: replaying an applied record changes nothing.
        """
        if record.retain is not None:
            self.set_policy(record.seq, record.retain)
        if record.anew:
            self._set_slot("anew", record.seq)
        if record.tombstones is not None:
            self._set_tombstones(record.seq, record.tombstones)
        if record.partition_types is not None:
            self._set_types(record.seq, record.partition_types)
        if record.key is not None:
            self._set_slot("key", record.seq, json.dumps(record.key).encode())
        path, owner = self._path(record.seq, "done"), record.owner.encode()
        if self._storage.is_local:
            self._storage.write_bytes(path, owner)
            return True
        try:
            self._storage.create_exclusive(path, owner)
        except FileExistsError:
            if self._storage.stat_file(path) is None:  # a versioned bucket may refuse to create a deleted key
                self._storage.write_bytes(path, owner)
            return False
        return True

    def remember_copies(self, record: Record, state: LogState, paths: Iterable[str] = ()) -> None:
        """Store the names of the files of a record, and more ``paths`` for them, that a late copy may put back.

        This must precede the removal of the staged files: later, no such copy can begin.
        """
        if record.publish and state.late != record.seq:
            self._set_slot("late", record.seq, to_bytes(may_come(record, self._names("late", state), paths)))

    def note_removed(self, record: Record, state: LogState) -> None:
        """Store which files of a record that is being applied must not come back. This must precede its mark."""
        late = self._names("late", state) if record.retire else {}
        hit = any(item.path in late for item in record.retire)
        if hit or (state.gone and record.publish):
            known = self._names("gone", state)
            gone = are_gone(record, late, known)
            if gone != known:
                self._set_slot("gone", record.seq, to_bytes(gone))
            if late and not late.keys() - gone.keys():
                self._remove_older(re.compile(r"late-(\d{20})", re.ASCII), record.seq)
        for kind, slot in (("late", state.late), ("gone", state.gone)):
            if 0 < slot <= record.seq - MOST_COMMITS:
                self._storage.remove(join(self.folder, f"{kind}-{slot:020d}"))

    def gone(self, state: LogState) -> Names:
        """Return the names of files that are not data, although a late copy may have put them back."""
        return self._names("gone", state)

    def _names(self, kind: str, state: LogState) -> Names:
        """Return the newest list of names. A later commit may replace it meanwhile."""
        for _ in range(_LIST_ATTEMPTS):
            slot = state.late if kind == "late" else state.gone
            if not slot:
                return {}
            path = join(self.folder, f"{kind}-{slot:020d}")
            try:
                return from_bytes(self._storage.read_bytes(path), path)
            except FileNotFoundError:
                state = self.state()
        raise StorageError(f"{self.folder}: a list of removed files changed at each attempt. Run the operation again.")

    def effective(self, state: LogState) -> list[int]:
        """Return the slots of records that have an effect.

        On an object store, a record that is neither the newest nor done was created in a slot that had been used and
        pruned before. On a local disk there is no such record, but power loss can remove the mark of an applied one.
        """
        if self._storage.is_local:
            return list(state.records)
        return [seq for seq in state.records if seq in state.done or seq == state.newest]

    def set_policy(self, seq: int, retain: int) -> None:
        """Store for how long commits after a slot keep files. A policy of a later slot stays in effect.

        The folder of kept files is durable before the policy, so that commits do not have to sync it.
        """
        self._storage.make_dirs(self.kept_folder)
        self._storage.sync_dirs([self.sidecar])
        self._storage.write_bytes(join(self.folder, f"retain-{seq:020d}-{retain}"), b"")
        self._remove_older(_POLICY, seq)

    def tombstones(self, state: LogState) -> TombstoneList:
        """Return the newest list of files of tombstones. Those of a pending record may still be staged.

        Raises:
            FileNotFoundError: A later commit has replaced the list.
            DamagedFileError: A file is missing.
        """
        (seq, count), folder = state.tombstones, self.tombstones_folder
        record = self.read(state.newest) if state.is_pending else None
        if record is not None and record.tombstones is not None:
            seq, files = record.seq, record.tombstones
        elif not count:
            return TombstoneList(seq)
        else:
            path = join(self.folder, mark_of(seq, count))
            files = tombstones_from_bytes(self._storage.read_bytes(path), seq, path)
        files = tuple(file for file in files if file.slot >= state.anew)
        entries = {entry.path: (folder, entry) for entry in self._storage.list_dir(folder)}
        if record is not None and record.new_tombstones:
            staging = self.staging_path(record.owner)
            names = {file.staged: file.name for file in record.new_tombstones}
            staged = [entry for entry in self._storage.list_dir(staging) if entry.path in names]
            entries = {names[entry.path]: (staging, entry) for entry in staged} | entries
        missing = [file.name for file in files if file.name not in entries]
        if missing and self.state().tombstones == state.tombstones:
            raise DamagedFileError(
                f"The file of deleted keys {join(folder, missing[0])} is missing. Nothing was changed. Restore it from "
                "a backup, or pass tombstones=None once to remove the deleted keys."
            )
        if missing:
            raise FileNotFoundError(join(folder, missing[0]))
        found = ((file.name, *entries[file.name]) for file in files)
        located = [ViewFile(name, join(at, e.path), e.size, e.stamp, e.version) for name, at, e in found]
        return TombstoneList(seq, tuple(replace(file, staged="") for file in files), tuple(located))

    def _set_tombstones(self, seq: int, files: Sequence[TombstoneFile]) -> None:
        """Store the list of files of tombstones of a commit, and remove files that only earlier lists name.

        A file of a later commit has a higher slot, so it stays if this one is applied late.
        """
        with suppress(FileExistsError):
            self._storage.create_exclusive(join(self.folder, mark_of(seq, len(files))), tombstones_to_bytes(files))
        self._remove_older(MARK, seq)
        wanted = {file.name for file in files}
        found = list(map(NAME.fullmatch, self._storage.list_names(self.tombstones_folder)))
        unused = [name[0] for name in found if name is not None and int(name[1]) <= seq and name[0] not in wanted]
        self._storage.remove_many([join(self.tombstones_folder, name) for name in unused])
        self._storage.sync_dirs([self.folder, *([self.tombstones_folder] if found else [])])

    def _set_types(self, seq: int, types: PartitionTypes) -> None:
        """Store the types of the partition columns durably: the record that has them may be pruned."""
        self._storage.write_bytes(join(self.folder, mark_of_types(seq, types)), b"")
        self.sync()

    def key_columns(self, state: LogState) -> tuple[str, ...] | None:
        """Return the columns that identify a row, if they are recorded.

        Raises:
            StorageError: What the journal has is not a key.
        """
        pending = self.read(state.newest) if state.is_pending else None
        if pending is not None and pending.key is not None:
            return pending.key
        if not state.key or state.key < state.anew:
            return None
        path = join(self.folder, f"key-{state.key:020d}")
        try:
            return key_of(parse_json(self._storage.read_bytes(path)))
        except ValueError as error:
            raise StorageError(
                f"The key in {path} cannot be used: {error}. Pass the key columns, or delete this file and record the "
                "key again with fsspeckit adopt."
            ) from error

    def _remove_old_types(self, state: LogState) -> None:
        """Remove the types of earlier commits. Those of versions that can be read stay."""
        slots = [slot for slot, _ in state.types]
        first = max((slot for slot in slots if slot <= state.floor), default=0) if state.retain else slots[-1]
        old = [mark_of_types(slot, types) for slot, types in state.types if slot < first]
        self._storage.remove_many([join(self.folder, name) for name in old])

    def set_floor(self, seq: int) -> None:
        """Store durably that no version before a slot can be read."""
        self._set_slot("floor", seq)

    def _set_slot(self, kind: str, seq: int, data: bytes = b"") -> None:
        self._storage.write_bytes(join(self.folder, f"{kind}-{seq:020d}"), data)
        self._remove_older(re.compile(rf"{kind}-(\d{{20}})", re.ASCII), seq)

    def _remove_older(self, pattern: re.Pattern[str], seq: int) -> None:
        """Make the log durable, then remove the marks of earlier slots."""
        self.sync()
        names = ((name, pattern.fullmatch(name)) for name in self._storage.list_names(self.folder))
        older = [name for name, found in names if found is not None and int(found[1]) < seq]
        self._storage.remove_many([join(self.folder, name) for name in older])

    def prune(self, state: LogState) -> None:
        """Delete old slots. ``.done`` files go first, because a free slot must not look applied.

        ``state`` is the listing before the newest commit, which is applied. Then a local disk needs the mark of no
        earlier slot, and a journal without them is listed in half the time.
        """
        if self._storage.is_local:
            self._storage.remove_many([self._path(seq, "done") for seq in state.done])
        if len(state.types) > 1:
            self._remove_old_types(state)
        if len(state.records) <= KEPT_RECORDS + _PRUNE_SLACK:
            return
        last = state.records[-KEPT_RECORDS] - 1
        old = sorted({seq for seq in (*state.records, *state.done) if seq <= last})
        effective = [seq for seq in self.effective(state) if seq <= last]
        records = [record for record in for_each(self._storage, self.read_or_none, effective) if record is not None]
        self._save_keys(records)
        save_seen(self._storage, self.seen_folder, records, state.anew)
        if state.retain:
            # On an object store, records whose marks a prune removed before it crashed have no effect any more. They
            # are folded already, so a segment that begins with their slots would take their place.
            first = max(old[0], folded_until(self._storage, self.history_folder) + 1)
            if first <= last:
                fold(self._storage, self.history_folder, [each for each in records if each.seq >= first], (first, last))
            self.expire(oldest_expired(self._storage, self.history_folder, state.retain))
        for kind in ("done", "json"):
            self._storage.remove_many([self._path(seq, kind) for seq in old])

    def read_or_none(self, seq: int) -> Record | None:
        """Read the record of a slot, or return None if the slot is free."""
        try:
            return self.read(seq)
        except FileNotFoundError:
            return None

    def expire(self, floor: int, *, dry_run: bool = False) -> Expired:
        """Remove what only versions before ``floor`` need. First the floor is stored, so that no reader expects it."""
        expired = expired_files(self._storage, self.kept_folder, self.history_folder, floor)
        if not dry_run and (expired.kept or expired.segments):
            self.set_floor(floor)
            remove_expired(self._storage, self.kept_folder, self.history_folder, expired)
        return expired

    def _save_keys(self, records: Sequence[Record]) -> None:
        """Save idempotency keys and positions of records as names of empty files."""
        keyed = [(record.seq, record.idempotency_key) for record in records]
        self._save_names(self.keys_folder, [f"{seq:020d}-{name_digest(key)}" for seq, key in keyed if key is not None])
        readers = {reader: (record.seq, version) for record in records for reader, version in record.positions.items()}
        names = [f"{seq:020d}-{name_digest(reader)}-{version}" for reader, (seq, version) in readers.items()]
        self._save_names(self.positions_folder, names)

    def _save_names(self, folder: str, names: Sequence[str]) -> None:
        """Create empty files, and delete the oldest of all in the folder."""
        if not names:
            return
        self._storage.make_dirs(folder)
        self._storage.sync_dirs([self.sidecar])  # also if the folder exists: its creator may have died before this step
        for name in names:
            with suppress(FileExistsError):
                self._storage.create_exclusive(join(folder, name), b"")
        found = sorted(self._storage.list_names(folder))
        self._storage.remove_many([join(folder, name) for name in found[:-_KEPT_KEYS]])

    def _path(self, seq: int, kind: str) -> str:
        return join(self.folder, f"{seq:020d}.{kind}")

"""The journal beside a dataset: where it is, and how a slot in it is taken.

Every change is one record in one numbered slot, and a slot is taken once. This module knows nothing of what replaying a
record does to the dataset. Concurrent writers meet here and only here: whoever creates the file of a slot has it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fsspeckit.common.errors import CommitConflictError, NestedDatasetError, OutcomeUnknownError, StorageError
from fsspeckit.core.commit.nesting import (
    INSIDE,
    LOCK,
    check_contains_no_dataset,
    check_not_inside_dataset,
    sidecar_beside,
)
from fsspeckit.core.commit.record import MOST_RECORDS, Record, is_id, new_id
from fsspeckit.core.storage import Entry, Storage, for_each, join, parent

KEPT_RECORDS = 64
"""Records behind the newest that stay readable, for writers whose snapshot is a little old."""
_PRUNE_SLACK = 32
_KEPT_KEYS = 10_000
_STAGING = ".staging_"
_SLOT = re.compile(r"(\d{20})\.(json|done)", re.ASCII)
_KEY = re.compile(r"(\d{20})-([0-9a-f]{64})", re.ASCII)
_ATTEMPTS_TO_LIST = 3

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogState:
    """The slots as listed once. ``leftovers`` are temporary files of a crashed create."""

    records: tuple[int, ...] = ()
    done: frozenset[int] = frozenset()
    leftovers: tuple[str, ...] = ()

    @property
    def newest(self) -> int:
        """The highest slot taken; 0 for an empty journal."""
        return self.records[-1] if self.records else 0

    @property
    def is_pending(self) -> bool:
        """Whether the newest record has still to be carried out. Older ones without ``.done`` never are: ghosts."""
        return bool(self.records) and self.newest not in self.done


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class SidecarLocations:
    """The two places where the sidecar of a dataset may stand: inside it, and beside it where there is a beside."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self.root = root
        canonical = storage.canonical(root)
        holder = storage.sidecar_parent(canonical)
        name = canonical.rstrip("/").rpartition("/")[2]
        self.inside = join(canonical, INSIDE)
        self.beside = None if holder is None else sidecar_beside(holder, name)
        self._found: str | None = None

    def find(self) -> str | None:
        """The sidecar that every writer of the dataset uses, as first found; a commit looks again."""
        return self._found or self.find_again()

    def find_again(self) -> str | None:
        """Look where the sidecar stands now; one inside wins over one beside."""
        places = [place for place in (self.inside, self.beside) if place is not None]
        found = for_each(self._storage, self._look_at, places)
        self._found = next((place for place, entry in zip(places, found, strict=True) if entry), None)
        if self._found is not None and self._storage.is_local:
            self._storage.refuse_links(self._found)
            self._storage.list_names(self._found)
        return self._found

    def _look_at(self, place: str) -> Entry | None:
        try:
            return self._storage.stat(place)
        except PermissionError:
            if place != self.beside:
                raise
            return None  # who may see the dataset only, as on an object store, reads it without its journal

    def create(self) -> str:
        """Create the sidecar beside the dataset, or inside it where nothing may be written beside it.

        Both creators look at the other's place after making their own, so two writers cannot end up with one each.
        So do the creators of an outer and an inner dataset.
        """
        sidecar = self._create()
        try:
            self._check_below()
            check_not_inside_dataset(self._storage, self.root)
        except NestedDatasetError:
            self._remove_if_unused(sidecar)
            raise
        return sidecar

    def _check_below(self) -> None:
        try:
            tree = self._storage.list_tree(self.root)
        except FileNotFoundError:
            return
        check_contains_no_dataset(self.root, tree)

    def _create(self) -> str:
        if self.beside is not None:
            try:
                self._make(self.beside)
            except PermissionError:
                _logger.info("cannot write %s, keeping the journal inside the dataset", self.beside)
            else:
                return self.find_again() or self.beside
        self._make(self.inside)
        if self.beside is not None and self._storage.stat(self.beside):
            self._remove_if_unused(self.inside)
        return self.find_again() or self.inside

    def _remove_if_unused(self, sidecar: str) -> None:
        """Remove a sidecar that was just created; one that another writer uses already stays."""
        if set(self._storage.list_names(sidecar)) - {LOCK, "log"}:
            return
        self._storage.remove(join(sidecar, LOCK))
        self._storage.remove_dir_if_empty(join(sidecar, "log"))
        self._storage.remove_dir_if_empty(sidecar)
        self._found = None

    def _make(self, place: str) -> None:
        created = self._storage.make_dirs(join(place, "log"))
        self._storage.sync_dirs(parent(folder) for folder in created)
        self._storage.write_bytes(join(place, LOCK), b"")


class Log:
    """The numbered slots of one sidecar."""

    def __init__(self, storage: Storage, sidecar: str) -> None:
        self._storage = storage
        self.sidecar = sidecar
        self.folder = join(sidecar, "log")
        self.lock_path = join(sidecar, LOCK)
        self.keys_folder = join(sidecar, "keys")

    def staging_path(self, transaction: str) -> str:
        """The staging folder of a transaction."""
        return join(self.sidecar, _STAGING + transaction)

    def stagings(self) -> list[str]:
        """Ids of the transactions that have a staging folder."""
        names = self._storage.list_names(self.sidecar)
        ids = (name.removeprefix(_STAGING) for name in names if name.startswith(_STAGING))
        return [transaction for transaction in ids if is_id(transaction)]

    def state(self) -> LogState:
        """List the slots."""
        records, done, leftovers = [], set(), []
        for name in self._storage.list_names(self.folder):
            slot = _SLOT.fullmatch(name)
            if slot is not None and slot[2] == "json":
                records.append(self._possible(int(slot[1])))
            elif slot is not None:
                done.add(int(slot[1]))
            elif name.endswith(".tmp"):
                leftovers.append(join(self.folder, name))
        return LogState(tuple(sorted(records)), frozenset(done), tuple(leftovers))

    def _possible(self, seq: int) -> int:
        if not 0 < seq < MOST_RECORDS:
            raise StorageError(
                f"{self._path(seq, 'json')} has a number that no writer gave it. Nothing was done. Delete it if "
                "fsspeckit did not write it."
            )
        return seq

    def read(self, seq: int) -> Record:
        """The record of a slot."""
        path = self._path(seq, "json")
        return Record.from_bytes(self._storage.read_bytes(path), seq, path)

    def claim(self, record: Record) -> bool:
        """Take the slot of a record. False: somebody else has it and nothing happened.

        An error means that the slot is not ours, except for the one error that says the outcome is unknown.
        """
        path = self._path(record.seq, "json")
        try:
            self._storage.create_exclusive(path, record.to_bytes())
        except FileExistsError:
            try:
                if not self._is_ours(record):
                    return False
            except FileNotFoundError:
                return False  # a late record of somebody else, withdrawn again
        except OSError as error:
            if not self._settle(record, error):
                return False
        if not self._storage.is_local:
            self._check_not_late(record)
        return True

    def _settle(self, record: Record, error: OSError) -> bool:
        """A create failed, or its answer was lost: learn who has the slot, or take it ourselves for nothing."""
        if isinstance(error, PermissionError):
            raise error
        if self._storage.is_local:
            return self._confirm(record, error)
        abort = Record(seq=record.seq, kind="abort", owner=new_id())
        try:
            self._storage.create_exclusive(self._path(record.seq, "json"), abort.to_bytes())
        except FileExistsError:
            return self._confirm(record, error)
        except OSError:
            raise self._unknown(record) from error
        self._close_abort(abort)
        raise error

    def _confirm(self, record: Record, error: OSError) -> bool:
        """Look at the slot. If it is ours, what failed may have been the sync of its folder, so sync again."""
        try:
            if not self._is_ours(record):
                return False
            self.sync()
        except FileNotFoundError:
            if not self._storage.is_local:
                raise self._unknown(record) from error
            raise error from None  # a local create has no answer to lose: the slot is free, and it failed
        except OSError:
            raise self._unknown(record) from error
        return True

    def _close_abort(self, abort: Record) -> None:
        try:
            self.finish(abort)
        except OSError as error:
            _logger.debug("abort record %d is left for the next operation to close: %s", abort.seq, error)

    def _is_ours(self, record: Record) -> bool:
        """A client that repeats a request can turn its own success into "exists"."""
        found = self.read(record.seq)
        return found.kind == record.kind and found.owner == record.owner

    def _check_not_late(self, record: Record) -> None:
        """Where no lock protects us, our slot may have been pruned long ago and free again: then it counts for nothing.

        A late record is never replayed, because only the newest is. Our staging folder tells it from a record that
        others carried out and pruned meanwhile: they delete the folder first.
        """
        state = self._state_after(record)
        if state.newest == record.seq or self._was_done_for_us(record, state):
            return
        if record.kind == "commit" and not self._storage.staging_exists(self.staging_path(record.owner)):
            raise self._unknown(record)
        self._storage.remove(self._path(record.seq, "json"))
        raise CommitConflictError(
            f"the journal went on to {state.newest} while slot {record.seq} was being taken. "
            "Nothing was changed; run the operation again."
        )

    def _state_after(self, record: Record) -> LogState:
        """List again, insisting: after the record stands, a failure must not look like a failed commit."""
        for _ in range(_ATTEMPTS_TO_LIST - 1):
            try:
                return self.state()
            except OSError as error:
                _logger.debug("listing %s failed, trying again: %s", self.folder, error)
        try:
            return self.state()
        except OSError as error:
            raise self._unknown(record) from error

    def _was_done_for_us(self, record: Record, state: LogState) -> bool:
        """Somebody who found our record carried it out before we came back."""
        if record.seq not in state.done:
            return False
        try:
            return self._storage.read_bytes(self._path(record.seq, "done")) == record.owner.encode()
        except FileNotFoundError:
            return False

    def _unknown(self, record: Record) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"the storage does not say whether slot {record.seq} of {self.folder} was taken. "
            "The outcome is unknown: run recover(), then look whether the change is there before running it again."
        )

    def sync(self) -> None:
        """Make every slot that is visible now durable."""
        self._storage.sync_dirs([self.folder])

    def finish(self, record: Record) -> None:
        """Say that the record was carried out in full. Needs no sync: replaying a finished record changes nothing."""
        self._storage.write_bytes(self._path(record.seq, "done"), record.owner.encode())

    def prune(self, state: LogState) -> None:
        """Drop old slots, ``.done`` first: a slot that looks finished must never be free."""
        if len(state.records) <= KEPT_RECORDS + _PRUNE_SLACK:
            return
        last = state.records[-KEPT_RECORDS] - 1
        old = sorted({seq for seq in (*state.records, *state.done) if seq <= last})
        self._keep_keys([seq for seq in old if seq in state.done and seq in state.records])
        for kind in ("done", "json"):
            for_each(self._storage, self._storage.remove, [self._path(seq, kind) for seq in old])

    def committed(self, key: str) -> int | None:
        """The slot of the commit that was made under an idempotency key, None where there is none.

        Records come first: one that is pruned meanwhile has left its key before. A record that is neither the newest
        nor done counts for nothing.
        """
        state = self.state()
        counting = [seq for seq in state.records if seq in state.done or seq == state.newest]
        for record in for_each(self._storage, self._read_if_there, counting):
            if record is not None and record.kind == "commit" and record.idempotency_key == key:
                return record.seq
        kept = map(_KEY.fullmatch, self._storage.list_names(self.keys_folder))
        return next((int(name[1]) for name in kept if name is not None and name[2] == _digest(key)), None)

    def _read_if_there(self, seq: int) -> Record | None:
        try:
            return self.read(seq)
        except FileNotFoundError:
            return None

    def _keep_keys(self, seqs: Sequence[int]) -> None:
        """What records say of idempotency keys outlives them, in names of empty files; very old ones go."""
        found = [record for record in for_each(self._storage, self._read_if_there, seqs) if record is not None]
        keyed = [record for record in found if record.idempotency_key is not None]
        if not keyed:
            return
        created = self._storage.make_dirs(self.keys_folder)
        self._storage.sync_dirs(parent(folder) for folder in created)
        for record in keyed:
            with suppress(FileExistsError):
                name = f"{record.seq:020d}-{_digest(record.idempotency_key or '')}"
                self._storage.create_exclusive(join(self.keys_folder, name), b"")
        names = sorted(self._storage.list_names(self.keys_folder))
        for_each(self._storage, self._storage.remove, [join(self.keys_folder, name) for name in names[:-_KEPT_KEYS]])

    def _path(self, seq: int, kind: str) -> str:
        return join(self.folder, f"{seq:020d}.{kind}")

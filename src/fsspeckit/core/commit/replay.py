"""Carrying out what the journal says: the publishing step of a commit, and the same step again after a crash.

Every function here may be run twice, by two processes, or be cut off anywhere, and leaves what the record describes.
The caller holds the lock of the sidecar. Nothing is decided here; the record was the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from fsspeckit.common.errors import CommitConflictError
from fsspeckit.core.commit.journal import Log, LogState
from fsspeckit.core.commit.record import Published, Record, Retired, new_id
from fsspeckit.core.results import ResultView
from fsspeckit.core.storage import Storage, for_each, join, parent

_ATTEMPTS_TO_FENCE = 20
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Recovery(ResultView):
    """What a recovery did: records it carried out, and staging folders of dead transactions it removed."""

    replayed: tuple[int, ...] = ()
    removed: tuple[str, ...] = ()

    def _lines(self) -> list[tuple[str, str]]:
        return [("finished", f"{len(self.replayed):,} commits"), ("removed", f"{len(self.removed):,} stagings")]

    def __bool__(self) -> bool:
        return bool(self.replayed or self.removed)


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """What stands in a journal now: ``pending`` is a record to carry out, ``dead`` stagings belong to nobody alive."""

    sidecar: str | None = None
    newest: int = 0
    pending: int | None = None
    dead: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()

    @property
    def needs_recovery(self) -> bool:
        """Whether a recovery would do something."""
        return self.pending is not None or bool(self.dead)


class Replayer:
    """Carries records out on one dataset."""

    def __init__(self, storage: Storage, root: str, log: Log) -> None:
        self._storage = storage
        self._root = root
        self._log = log

    def publish_all(self, record: Record) -> None:
        """First run, right after the record was created and the inputs were checked: no stat, no listing."""
        self._make_folders(record)
        for_each(self._storage, lambda item: self._publish(record, item), record.publish)
        for_each(self._storage, lambda pair: self._retire(record, *pair), enumerate(record.retire))
        self._storage.sync_dirs(self._folders_of(record))
        self._close(record)

    def replay(self, record: Record) -> None:
        """Any later run: touch only what still is what the record says."""
        self._refuse_links(record)
        if record.kind == "commit":
            if record.retire and self._storage.has_folders:
                self._storage.make_dirs(self._log.staging_path(record.owner))
            self._make_folders(record)
            for_each(self._storage, lambda item: self._republish(record, item), record.publish)
            for_each(self._storage, lambda pair: self._retire_again(record, *pair), enumerate(record.retire))
            self._storage.sync_dirs(folder for folder in self._folders_of(record) if self._storage.stat(folder))
        self._close(record)
        if record.kind == "commit" and self._storage.is_local:
            self._storage.remove_tree(self._log.staging_path(record.owner))

    def _refuse_links(self, record: Record) -> None:
        """The record may have come with the dataset: no name in it may lead out of the dataset through a link."""
        paths = [item.path for item in record.publish] + [item.path for item in record.retire]
        self._storage.refuse_links(self._storage.canonical(self._root), {*record.folders, *map(parent, paths)} - {""})
        self._storage.list_names(self._log.staging_path(record.owner))

    def _close(self, record: Record) -> None:
        """Where no lock keeps late helpers out, they must find nothing left to copy once the record counts as done."""
        for transaction in record.fenced:
            self._storage.remove_tree(self._log.staging_path(transaction))
        if record.kind == "commit" and not self._storage.is_local:
            self._storage.remove_tree(self._log.staging_path(record.owner))
        self._log.finish(record)
        self._drop_empty_folders(record)

    def _make_folders(self, record: Record) -> None:
        """New folders are durable before the first file moves in, or a power loss could take both."""
        for folder in record.folders:
            self._storage.make_dirs(join(self._root, folder))
        self._storage.sync_dirs(parent(join(self._root, folder)) for folder in record.folders)

    def _publish(self, record: Record, item: Published) -> None:
        staged, path = join(self._log.staging_path(record.owner), item.staged), join(self._root, item.path)
        try:
            self._storage.publish(staged, path)
        except FileNotFoundError:
            if self._storage.stat(staged) is not None:
                # The staged file is there, so another program removed the folder that it goes to.
                self._storage.sync_dirs(map(parent, self._storage.make_dirs(parent(path))))
                self._storage.publish(staged, path)
            elif self._storage.stat(path) is None:
                _logger.error("%s of commit %d was deleted by another program", item.path, record.seq)

    def _republish(self, record: Record, item: Published) -> None:
        """A staged file that is gone was published before; one that would replace a changed file is left behind.

        Whoever changed that file did so after our commit, and would have won had we not been cut off.
        """
        current = self._storage.stat(join(self._root, item.path))
        published = current is not None and current.size == item.size and current.stamp == item.stamp
        if current is None or item.replaces is None or published or item.replaces.matches(current):
            self._publish(record, item)
        else:
            _logger.warning("%s was changed after commit %d replaced it; keeping the change", item.path, record.seq)

    def _retire(self, record: Record, index: int, item: Retired) -> None:
        trash = join(self._log.staging_path(record.owner), f"{index}.retired")
        self._storage.retire(join(self._root, item.path), trash)

    def _retire_again(self, record: Record, index: int, item: Retired) -> None:
        current = self._storage.stat(join(self._root, item.path))
        if current is None:
            return
        if item.identity.matches(current):
            self._retire(record, index, item)
        else:
            _logger.warning("%s is not the file that commit %d retired; keeping it", item.path, record.seq)

    def _folders_of(self, record: Record) -> list[str]:
        paths = [item.path for item in record.publish] + [item.path for item in record.retire]
        return sorted({parent(join(self._root, path)) for path in paths})

    def _drop_empty_folders(self, record: Record) -> None:
        """A partition that lost its last file loses its folder too; the dataset's own folder stays."""
        if not self._storage.has_folders:
            return
        for lost in sorted({parent(item.path) for item in record.retire}, reverse=True):
            folder = lost
            while folder and self._storage.remove_dir_if_empty(join(self._root, folder)):
                folder = parent(folder)


def journal_status(storage: Storage, log: Log) -> JournalStatus:
    """What a recovery would find; writes nothing."""
    state, stagings = log.state(), log.stagings()
    dead = _orphans(storage, log, stagings)
    alive = tuple(name for name in stagings if name not in dead)
    return JournalStatus(log.sidecar, state.newest, state.newest if state.is_pending else None, dead, alive)


def recover(storage: Storage, root: str, log: Log) -> Recovery:
    """Finish what was cut off and remove what dead transactions left; two listings where there is nothing to do."""
    state = log.state()
    if not (state.is_pending or state.leftovers or log.stagings()):
        return Recovery()
    replayer = Replayer(storage, root, log)
    with storage.lock(log.lock_path):
        state = log.state()
        replayed = replay_pending(log, replayer, state)
        for_each(storage, storage.remove, state.leftovers)
        removed = _fence_orphans(storage, log, replayer)
    return Recovery(replayed, removed)


def replay_pending(log: Log, replayer: Replayer, state: LogState) -> tuple[int, ...]:
    """Carry out the newest record if nobody did; older ones without ``.done`` are ghosts and stay untouched.

    Its writer may have died before the record was durable, so that comes first: what is begun must survive power loss.
    """
    if not state.is_pending:
        return ()
    log.sync()
    record = log.read(state.newest)
    replayer.replay(record)
    return (record.seq,) if record.kind == "commit" else ()


def _fence_orphans(storage: Storage, log: Log, replayer: Replayer) -> tuple[str, ...]:
    """Deleting somebody's staging is a commit of its own: once the slot is ours, that somebody can never commit."""
    for _ in range(_ATTEMPTS_TO_FENCE):
        state = log.state()
        replay_pending(log, replayer, state)
        orphans = _orphans(storage, log, log.stagings())
        if not orphans:
            return ()
        storage.make_dirs(log.folder)
        record = Record(seq=state.newest + 1, kind="fence", owner=new_id(), fenced=orphans)
        if log.claim(record):
            replayer.replay(record)
            return orphans
    raise CommitConflictError(f"other writers kept taking the next slot of {log.folder}. Run recover() again.")


def _orphans(storage: Storage, log: Log, transactions: Iterable[str]) -> tuple[str, ...]:
    candidates = list(transactions)
    held = for_each(storage, lambda transaction: storage.is_alive(log.staging_path(transaction)), candidates)
    return tuple(name for name, alive in zip(candidates, held, strict=True) if not alive)

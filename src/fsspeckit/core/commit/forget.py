"""Remove the journal of a dataset: its records, what it remembers, the footer index and kept versions.

The dataset is not changed. A commit that is not finished is finished first, and a writer at work is a conflict. On a
local disk the journal is moved away under its lock, then removed. An object store has no such lock, so a fence record
takes the next slot and stays: a writer that has planned with the old journal cannot take a slot of it for its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from fsspeckit.common.errors import CommitConflictError, TableFormatError
from fsspeckit.common.text import counted
from fsspeckit.core.commit.export_marks import TITLES
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.record import Record, new_id
from fsspeckit.core.result_view import ResultView, readable_bytes
from fsspeckit.core.storage import FOLDER, Storage, join, parent
from fsspeckit.core.storage.base import JOURNAL_NAMES


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ForgetResult(ResultView):
    """A journal that was removed: its commits, what it remembered, and its kept files. The data files stay."""

    journal: str | None = None
    commits: int = 0
    idempotency_keys: int = 0
    readers: int = 0
    kept_files: int = 0
    kept_bytes: int = 0
    dry_run: bool = False
    path: str = ""

    def _lines(self) -> list[tuple[str, str]]:
        if self.journal is None:
            return [("journal", "none, so there is nothing to forget")]
        keys, readers = counted(self.idempotency_keys, "idempotency key"), counted(self.readers, "reader")
        return [
            ("would remove" if self.dry_run else "removed", self.journal),
            ("commits", f"{self.commits:,}"),
            ("remembered", f"{keys}, {readers}"),
            ("kept files", f"{self.kept_files:,}, {readable_bytes(self.kept_bytes)}"),
        ]


def describe(storage: Storage, log: Log, state: LogState) -> ForgetResult:
    """Return what `forget` removes. Writes nothing."""
    records = [log.read_or_none(seq) for seq in log.effective(state)]
    commits = [record for record in records if record is not None and record.kind == "commit"]
    keys = {record.seq for record in commits if record.idempotency_key is not None}
    readers = {name for record in commits for name in (*record.positions, *record.seen) if not name.endswith("/time")}
    saved = [*storage.list_names(log.seen_folder), *storage.list_names(log.positions_folder)]
    kept = storage.list_dir(log.kept_folder)
    return ForgetResult(
        log.sidecar,
        len(commits),
        len(keys) + len(storage.list_names(log.keys_folder)),
        max(len(readers), len({name[21:85] for name in saved})),
        len(kept),
        sum(max(entry.size, 0) for entry in kept),
    )


def check_not_exported(root: str, state: LogState, *, is_lost: bool) -> None:
    """Raise if exported metadata or a catalog would be without the journal that describes them."""
    formats = sorted({mark.format for mark in state.exports} & TITLES.keys()) if not is_lost else []
    catalogs = sorted(state.kept - TITLES.keys())
    if formats:
        what = f"export {formats[0]} {root} --remove"
    elif catalogs:
        what = f"register {root} --catalog {catalogs[0]} --remove"
    else:
        return
    raise TableFormatError(f"{root} is exported or registered by its journal. Run `fsspeckit {what}` first.")


def forget(storage: Storage, log: Log) -> None:
    """Remove the journal.

    Raises:
        CommitConflictError: A writer is at work; nothing was removed.
    """
    with ExitStack() as stack:
        stack.enter_context(storage.lock(log.lock_path))
        stack.enter_context(storage.lock(log.staging_lock_path))
        state, pending = log.state(), None
        if state.is_pending:  # the dataset was removed before this commit was published
            pending = log.read(state.newest).owner
        working = [name for name in log.stagings() if name != pending and storage.is_alive(log.staging_path(name))]
        if working:
            raise CommitConflictError(
                f"{log.sidecar}: {counted(len(working), 'writer')} may be at work. Nothing was removed. Run `fsspeckit "
                "recover` on the dataset if its writers have ended, then forget again."
            )
        if storage.is_local:
            moved = join(parent(log.sidecar), f".forgotten-{new_id()}")
            storage.move_many([(log.sidecar, moved)])
            storage.sync_dirs([parent(log.sidecar)])
            storage.remove_tree(moved)
            return
        _remove_objects(storage, log, state)


def _remove_objects(storage: Storage, log: Log, state: LogState) -> None:
    """Remove what was listed before the fence: a writer that begins meanwhile has its own objects."""
    others, slots = storage.list_dir(log.sidecar), storage.list_names(log.folder)
    fence = Record(seq=state.newest + 1, kind="fence", owner=new_id())
    if not log.claim(fence):
        raise CommitConflictError(f"{log.sidecar}: another writer committed. Nothing was removed. Run it again.")
    log.finish(fence)
    # The records go last: without them, nothing shows that the rows of a key that is remembered are gone.
    for entry in others:
        if entry.path not in JOURNAL_NAMES:
            remove = storage.remove_tree if entry.size == FOLDER else storage.remove
            remove(join(log.sidecar, entry.path))
    storage.remove_many([join(log.folder, name) for name in sorted(slots) if name not in state.probed])

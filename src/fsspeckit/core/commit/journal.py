"""The journal of one dataset as operations use it: recover, take a view, read versions, and begin a transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from fsspeckit.common.choices import DEFAULT_PUBLISH, PublishMode
from fsspeckit.common.errors import DatasetLostError
from fsspeckit.core.commit.exclusive_create import ensure_exclusive_create, probe_exclusive_create
from fsspeckit.core.commit.exports import ExportLog
from fsspeckit.core.commit.footer_index import remove_index
from fsspeckit.core.commit.forget import ForgetResult, check_not_exported, describe, forget
from fsspeckit.core.commit.history import Expired
from fsspeckit.core.commit.listing import View, list_dataset
from fsspeckit.core.commit.log import Log, Survey
from fsspeckit.core.commit.memory import NO_FILES, Memory, lost
from fsspeckit.core.commit.nesting import check_not_inside_dataset, check_partition_folders
from fsspeckit.core.commit.publishing import Distribute, in_one_batch
from fsspeckit.core.commit.record import check_key, new_id
from fsspeckit.core.commit.replay import JournalStatus, Recovery, journal_status, needs_recovery, recover
from fsspeckit.core.commit.seen_files import SeenFiles
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.terms import Terms
from fsspeckit.core.commit.tombstones import TombstoneList
from fsspeckit.core.commit.transaction import CheckExportable, Settings, Transaction
from fsspeckit.core.commit.versions import Versions
from fsspeckit.core.storage import Storage, join

_SURVEY_SECONDS = 10.0


class Journal:
    """The journal of one dataset.

    Examples:
        >>> journal = Journal(storage, root)                                      # doctest: +SKIP
        >>> journal.recover()                                                     # doctest: +SKIP
        >>> with journal.begin(journal.view(), "append") as transaction:          # doctest: +SKIP
        ...     staged = transaction.staged_path()
        ...     write_parquet(staged)
        ...     transaction.commit(Changes(publish=(Publish(staged, "part-0.parquet", rows=3),)))
    """

    publish: PublishMode = DEFAULT_PUBLISH
    """How commits become visible on a local disk."""

    def __init__(self, storage: Storage, root: str, terms: Terms = Terms()) -> None:  # noqa: B008 - it is frozen
        self._storage = storage
        # Canonical, so that a link above the dataset that is changed during an operation has no effect on it.
        self._root = storage.canonical(root)
        self._locations = SidecarLocations(storage, self._root)
        self._survey: Survey | None = None
        self._is_checked = False
        self.terms = terms
        self.on_commit: Callable[[], None] = lambda: None
        self.refresh_exports: Callable[[], None] = lambda: None
        self.check_exportable: CheckExportable = lambda kinds, files, footers: None  # noqa: ARG005
        self.is_exported = False
        self.ignores_foreign_export = False
        self.distribute: Distribute = in_one_batch

    def exports(self) -> ExportLog:
        """Return the exports of the dataset. The journal is created if there is none."""
        sidecar = self._locations.find() or self._locations.create()
        return ExportLog(self._storage, self._root, Log(self._storage, sidecar))

    def existing_exports(self) -> ExportLog | None:
        """Return the exports of the dataset, or None if it has no journal."""
        sidecar = self._locations.find()
        return None if sidecar is None else ExportLog(self._storage, self._root, Log(self._storage, sidecar))

    def committed(self, key: str) -> int | None:
        """Return the slot of the commit with an idempotency key, or None. Writes nothing.

        Raises:
            DatasetLostError: There is one, but its rows are gone, as for `position` and `seen_files`; see `memory`.
        """
        check_key(key)
        memory = self._memory()
        return None if memory is None else memory.committed(key)

    def position(self, reader: str) -> int | None:
        """Return the last version that a reader of changes has processed into this dataset, or None."""
        memory = self._memory()
        return None if memory is None else memory.position(reader)

    def key_columns(self) -> tuple[str, ...] | None:
        """Return the columns that identify a row, if they are recorded. Writes nothing."""
        sidecar = self._locations.find()
        if sidecar is None or self.terms.reload:
            return None
        log = Log(self._storage, sidecar)
        return log.key_columns(log.state())

    def seen_files(self, reader: str) -> SeenFiles:
        """Return the source files that a reader has processed into this dataset."""
        memory = self._memory()
        return SeenFiles() if memory is None else memory.seen_files(reader)

    def _memory(self) -> Memory | None:
        sidecar = self._locations.find()
        if sidecar is None:
            return None
        return Memory(self._storage, self._root, Log(self._storage, sidecar), reload=self.terms.reload)

    def recover(self, *, end_writers: bool = False) -> Recovery:
        """Finish an interrupted commit and remove the staged files of dead writers. Creates no journal.

        An object store does not know which writers are dead. There, files of a day without a write are removed, and
        with ``end_writers`` those of all writers; one that is alive gets a conflict.
        """
        survey = self._locations.survey()
        if not needs_recovery(self._storage, survey, end_writers=end_writers):
            self._survey = survey
            if survey.state.is_export_outdated:
                self.refresh_exports()
            return Recovery()
        sidecar = self._locations.refresh()  # looks for a second journal before anything is changed
        if sidecar is None:
            return Recovery()
        try:
            done = recover(self._storage, self._root, Log(self._storage, sidecar), end_writers=end_writers)
        except FileNotFoundError:
            if self._locations.refresh() is not None:
                raise
            return Recovery()  # `forget` has removed the journal meanwhile
        if done.replayed:
            self.on_commit()
        if survey.state.kept:
            self.refresh_exports()
        return done

    def forget(self, *, dry_run: bool = False) -> ForgetResult:
        """Remove the journal, and return what that is. See `forget`."""
        if not dry_run:
            with suppress(DatasetLostError):  # a commit was not finished, and the folder is gone
                self.recover()
        view, sidecar = self.view_to_change(may_be_lost=True), self._locations.refresh()
        if sidecar is None:
            return ForgetResult(dry_run=dry_run)
        log = Log(self._storage, sidecar)
        check_not_exported(self._root, view.log, is_lost=view.is_lost)
        found = describe(self._storage, log, log.state())
        if not dry_run:
            self._storage.remove_many(join(self._root, path) for path in view.put_back)
            forget(self._storage, log)
            self._locations.refresh()
        return replace(found, dry_run=dry_run)

    def status(self, *, end_writers: bool = False) -> JournalStatus:
        """Return what a recovery would work on. Writes nothing."""
        sidecar = self._locations.find()
        if sidecar is None:
            return JournalStatus()
        return journal_status(self._storage, Log(self._storage, sidecar), end_writers=end_writers)

    def view(self, *, consistent: bool = True, may_lock: bool = True) -> View:
        """Return a snapshot of the dataset; ``exists`` is False if there is none. Writes nothing.

        ``may_lock``: the lock of the journal may be taken, because the caller does not hold it.
        One that is not ``consistent`` can have some of the files of a commit during the listing. It is enough for an
        append: no commit depends on it, and on an object store it takes one request less.
        """
        survey, self._survey = self._survey, None
        if survey is not None and survey.age > _SURVEY_SECONDS:
            survey = None  # a commit since then is likely, and would cost a second listing of the dataset
        view = list_dataset(
            self._storage,
            self._root,
            self._locations,
            survey,
            consistent=consistent,
            may_lock=may_lock,
            ignores_foreign_export=self.ignores_foreign_export,
        )
        self.is_exported = bool(view.log.exports)
        return view

    def check_not_lost(self, view: View) -> None:
        """Raise if there is no data file although the last commit left some."""
        if view.is_lost:
            raise lost(self._storage, self._root, NO_FILES)

    def versions(self, view: View, path: str) -> Versions:
        """Return the versions of the dataset as of a view; errors name ``path``. Writes nothing."""
        sidecar = self._locations.find()
        return Versions(self._storage, None if sidecar is None else Log(self._storage, sidecar), view, path)

    def tombstones(self, view: View) -> TombstoneList:
        """Return the files with the keys that change feeds have deleted, as of a view. Writes nothing."""
        sidecar = self._locations.find()
        if sidecar is None or self.terms.reload:
            return TombstoneList(view.log.tombstones[0])
        return Log(self._storage, sidecar).tombstones(view.log)

    def expire(self, floor: int, *, dry_run: bool) -> Expired:
        """Remove what only versions before ``floor`` need, and return what that is."""
        sidecar = self._locations.find()
        if sidecar is None:
            return Expired(0)
        log = Log(self._storage, sidecar)
        with self._storage.lock(log.lock_path, shared=dry_run):
            return log.expire(floor, dry_run=dry_run)

    def remove_index(self) -> None:
        """Remove the footer index, so that no value of a removed row is left in it."""
        sidecar = self._locations.find()
        if sidecar is not None:
            remove_index(self._storage, sidecar)

    def view_to_change(
        self,
        *,
        takes_filter: bool = False,
        consistent: bool = True,
        may_lock: bool = True,
        may_be_lost: bool = False,
    ) -> View:
        """Return a snapshot for an operation that changes the dataset. Raise if files may belong to other datasets.

        ``takes_filter`` says that the operation has a `partition_filter`, which errors then suggest; ``may_be_lost``,
        that it does not matter whether another program has removed all files.
        """
        # Who creates an outer dataset later sees the journal that is known here, so one check is enough.
        self._is_checked = self._locations.is_known
        check_not_inside_dataset(self._storage, self._root, self._has_sidecar, takes_filter=takes_filter)
        view = self.view(consistent=consistent, may_lock=may_lock)
        check_partition_folders(self._root, (file.path for file in view.files), self._has_sidecar)
        if not (may_be_lost or self.terms.reload):
            self.check_not_lost(view)
        return view

    def probe(self) -> None:
        """Raise if the storage cannot have a journal, because two writers could both commit. Creates no journal."""
        if self._storage.is_local:
            return
        found = self._locations.find()
        sidecar = found or self._locations.beside or self._locations.inside
        probe_exclusive_create(self._storage, Log(self._storage, sidecar))
        if found is None:
            self._storage.remove_dir_if_empty(sidecar)

    def _has_sidecar(self) -> bool:
        return self._locations.find() is not None

    def begin(self, view: View, operation: str) -> Transaction:
        """Open a transaction on a view: create its staging folder and mark it as in use."""
        sidecar = self._locations.find()
        if sidecar is None:
            sidecar = self._locations.create()
        else:
            if not self._is_checked:
                # Again: now its own journal is there for others to see.
                check_not_inside_dataset(self._storage, self._root)
            ensure_exclusive_create(self._storage, Log(self._storage, sidecar), view.log)
        log = Log(self._storage, sidecar)
        if any(mark.format == "iceberg" for mark in view.log.exports):
            ExportLog(self._storage, self._root, log).check("iceberg")
        transaction = new_id()
        self._storage.make_dirs(log.folder)  # the creator of the sidecar may have died before this step
        # Not the lock of commits: a writer can stage its files while another one commits.
        with self._storage.lock(log.staging_lock_path):
            handle = self._storage.claim_staging(log.staging_path(transaction))
        settings = Settings(
            self.terms,
            self.publish,
            self.distribute,
            self.view_to_change,
            self.on_commit,
            self.refresh_exports,
            self.check_exportable,
        )
        return Transaction(self._storage, self._locations, log, view, operation, transaction, handle, settings)

"""Keep versions of a dataset, list, compare and restore them, and remove old ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.errors import DatasetNotFoundError, FsspeckitError, StorageError, VersionNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.text import counted
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.record import MAX_RETAIN
from fsspeckit.core.commit.transaction import Changes, Publish, Transaction
from fsspeckit.core.commit.versions import History, Versions, check_version
from fsspeckit.core.dataset.place import Place, load_unchanged
from fsspeckit.core.dataset.snapshot import load_files
from fsspeckit.core.file_names import is_data_file, rewritten_name
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.parquet.damage import check_listed
from fsspeckit.core.result_view import SHOWN_FILES, FileRow, ResultView, below, readable_bytes
from fsspeckit.core.storage import for_each

_ATTEMPTS = 20
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RestoreResult(ResultView):
    """A restore: the version, and the files that came back and that were removed."""

    version: int
    restored_files: list[str] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)
    unchanged_files: int = 0
    bytes: int = 0
    commit_seq: int | None = None
    seconds: float = 0.0
    dry_run: bool = False
    path: str = ""

    def _lines(self) -> list[tuple[str, str]]:
        would = "would be " if self.dry_run else ""
        return [
            ("version", f"{self.version:,}"),
            (f"{would}restored", f"{counted(len(self.restored_files), 'file')}, {readable_bytes(self.bytes)}"),
            (f"{would}removed", counted(len(self.removed_files), "file")),
            ("unchanged", counted(self.unchanged_files, "file")),
        ]

    def _files(self) -> tuple[Sequence[FileRow], int]:
        if not self.dry_run:
            return (), 0
        reasons = (("insert", "part of the version", self.restored_files), ("delete", "newer", self.removed_files))
        files = [(action, below(self.path, path), reason) for action, reason, paths in reasons for path in paths]
        rows: list[FileRow] = [(*file, "", "") for file in files]
        return rows[:SHOWN_FILES], len(rows)


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A file that differs between two versions. It is missing in the version in which it has no rows and bytes."""

    path: str
    rows_before: int | None
    rows_after: int | None
    bytes_before: int | None
    bytes_after: int | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VersionDiff(ResultView):
    """The files that differ between two versions, and the rows of both versions."""

    before: int
    after: int
    files: list[FileDifference] = field(default_factory=list)
    rows_before: int = 0
    rows_after: int = 0
    unchanged_files: int = 0

    def _lines(self) -> list[tuple[str, str]]:
        added = sum(file.rows_before is None for file in self.files)
        removed = sum(file.rows_after is None for file in self.files)
        return [
            ("versions", f"{self.before:,} -> {self.after:,}"),
            ("added files", f"{added:,}"),
            ("removed files", f"{removed:,}"),
            ("changed files", f"{len(self.files) - added - removed:,}"),
            ("unchanged files", f"{self.unchanged_files:,}"),
            ("rows of differing files", f"{self.rows_before:,} -> {self.rows_after:,}"),
        ]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VacuumResult(ResultView):
    """A vacuum: the kept files that it removed, and the oldest version that can still be read."""

    removed_files: int = 0
    removed_bytes: int = 0
    oldest_version: int | None = None
    dry_run: bool = False

    def _lines(self) -> list[tuple[str, str]]:
        verb = "would remove" if self.dry_run else "removed"
        oldest = "none" if self.oldest_version is None else f"{self.oldest_version:,}"
        return [
            (verb, f"{counted(self.removed_files, 'kept file')}, {readable_bytes(self.removed_bytes)}"),
            ("oldest version", oldest),
        ]


def keep_history(place: Place, retain: int | None, *, may_be_new: bool = False) -> int:
    """Set for how many seconds commits keep the files that they remove, and return the oldest version that is kept.

    ``may_be_new``: there may be no dataset yet, and its first write follows.
    """
    if retain is not None and not 0 < retain <= MAX_RETAIN:
        raise ValueError(f"retain={retain} seconds is not between 1 and {MAX_RETAIN}. Pass a time such as '7d'.")
    with log_unexpected("keep_history", place.path):
        place.journal.recover()
        view = place.journal.view_to_change()
        if not may_be_new and not view.files and not view.head:
            raise not_found(place)
        with place.journal.begin(view, "keep_history") as transaction:
            info = {"operation": "keep_history", "retain": retain or 0}
            first = transaction.commit(Changes(info=info, retain=retain or 0)).seq
        kept = history(place).oldest_readable if view.log.retain and retain else None
        return first if kept is None else kept


def history(place: Place) -> History:
    """Return the versions of a dataset, newest first."""
    with log_unexpected("history", place.path):
        return with_versions(place, lambda versions: versions.history)


def diff(place: Place, before: int, after: int) -> VersionDiff:
    """Return the files that differ between two versions, with their rows and sizes."""
    for name, version in (("before", before), ("after", after)):
        check_version(name, version)

    def compare(versions: Versions) -> VersionDiff:
        old, new = ({file.path: file for file in versions.view_of(number).files} for number in (before, after))
        same = {path for path in old if old[path] == new.get(path)}
        rows = [_rows_of(place, [file for path, file in files.items() if path not in same]) for files in (old, new)]
        files = [
            FileDifference(
                place.full(path),
                *(each[path].rows if path in each else None for each in rows),
                *(each[path].size if path in each else None for each in rows),
            )
            for path in sorted({*rows[0], *rows[1]})
        ]
        counts = [sum(file.rows for file in each.values()) for each in rows]
        return VersionDiff(before, after, files, counts[0], counts[1], len(same))

    with log_unexpected("diff", place.path):
        return with_versions(place, compare)


def restore(
    place: Place, version: int | None, as_of: Any, *, dry_run: bool, retries: int = DEFAULT_RETRIES
) -> RestoreResult:
    """Commit the files of a version again. Files that did not change since then stay."""
    with log_unexpected("restore", place.path), Attempts(place, retries) as attempts:
        if not dry_run:
            place.journal.recover()
        wanted: int | None = None

        def run(versions: Versions) -> RestoreResult:
            nonlocal wanted
            wanted = versions.number(version, as_of) if wanted is None else wanted
            return _restore(place, versions, wanted, attempts, dry_run=dry_run)

        return attempts.run(lambda: with_versions(place, run, partial(place.journal.view_to_change, may_be_lost=True)))


def _restore(place: Place, versions: Versions, number: int, attempts: Attempts, *, dry_run: bool) -> RestoreResult:
    started, view = time.perf_counter(), versions.view
    target, current = versions.view_of(number), {file.path: file for file in view.files}
    wanted = target.files
    missing = [file for file in wanted if file != current.get(file.path)]
    same = {file.path for file in wanted} - {file.path for file in missing}
    rows = _rows_of(place, missing)
    removed = sorted(current.keys() - {file.path for file in wanted})
    tombstones = place.journal.tombstones(view)
    earlier = tuple(file for file in tombstones.files if file.since <= number)  # deletes after the version are undone
    is_same = len(earlier) == len(tombstones.files)
    result = RestoreResult(
        number,
        [place.full(file.path) for file in missing],
        [place.full(path) for path in removed],
        len(same),
        sum(file.size for file in missing),
        dry_run=dry_run,
        path=place.path,
    )
    if dry_run or (is_same and not (missing or removed)):
        return replace(result, seconds=time.perf_counter() - started)
    transaction = attempts.begin(view, "restore")
    publish = _stage(place, transaction, missing, rows, current)
    in_place = place.keeps_names
    publish = [replace(item, replaces=item.path in current) for item in publish]
    retire = [path for path in current if path not in same and not (in_place and path in rows)]
    info = {"operation": "restore", "restored_version": number}
    changes = Changes(
        tuple(publish),
        tuple(retire),
        tuple(current),
        complete_view=True,
        info=info,
        emptied=lambda: target.emptied,
        partition_types=target.partition_types,
        tombstones=None if is_same else earlier,
        tombstones_at=tombstones.slot,
    )
    commit = transaction.commit(changes)
    return replace(result, commit_seq=commit.seq, seconds=time.perf_counter() - started)


def _stage(
    place: Place,
    transaction: Transaction,
    files: Sequence[ViewFile],
    rows: dict[str, DataFile],
    current: Collection[str],
) -> list[Publish]:
    """Put kept files into the staging folder without reading them. The name of a new file ends like Parquet."""

    def stage(file: ViewFile) -> Publish:
        staged = transaction.staged_path()
        place.storage.duplicate(file.location, staged, file.size)
        if place.storage.in_place:
            check_listed(place.storage, file)  # a commit that is not finished may have replaced it before
        keeps_name = place.keeps_names and (is_data_file(file.path) or file.path in current)
        path = file.path if keeps_name else rewritten_name(file.path)
        return Publish(staged, path, rows[file.path].rows)

    return for_each(place.storage, stage, files)


def vacuum(place: Place, older_than: int | None, *, dry_run: bool, before: int | None = None) -> VacuumResult:
    """Remove the kept files that only versions need which were replaced more than ``older_than`` seconds ago.

    With ``before``, remove those of all versions before that one instead, whatever their time.
    """

    def run(versions: Versions) -> VacuumResult:
        seconds = versions.view.log.retain if older_than is None else older_than
        floor = versions.history[0].version if len(versions.history) else 0
        if before is not None:
            floor = min(before, floor)
        elif seconds:
            floor = versions.history.expired_at(int((time.time() - seconds) * 1e6))
        return remove_versions(place, versions, floor, dry_run=dry_run)

    with log_unexpected("vacuum", place.path):
        if not dry_run:
            place.journal.recover()
        files, size = remove_tombstones(place, int(time.time()), dry_run=dry_run)
        found = with_versions(place, run)
        return replace(found, removed_files=found.removed_files + files, removed_bytes=found.removed_bytes + size)


def remove_tombstones(place: Place, now: int | None = None, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove the deleted keys of change feeds that expired before a time, or all. Return their files and bytes."""

    def run() -> tuple[int, int]:
        view = place.journal.view()
        found = place.journal.tombstones(view)
        kept = tuple(file for file in found.files if now is not None and file.until > now)
        gone = {*found.files} - {*kept}
        if gone and not dry_run:
            with place.journal.begin(view, "vacuum") as transaction:
                info = {"operation": "vacuum"}
                transaction.commit(Changes(info=info, tombstones=kept, tombstones_at=found.slot))
        return len(gone), sum(file.size for file in gone)

    with Attempts(place, DEFAULT_RETRIES) as attempts:
        return attempts.run(lambda: load_unchanged(place, "vacuum", run))


def erase(place: Place, version: int | None) -> VacuumResult:
    """Remove all versions before a version, or before the current one. No kept file, bound or deleted key is left.

    Raises:
        StorageError: Something of them could not be removed. All the rest was removed.
    """

    def run(versions: Versions) -> VacuumResult:
        newest = versions.history[0].version if len(versions.history) else 0
        place.journal.remove_index()
        remove_tombstones(place)
        return remove_versions(place, versions, newest if version is None else version, dry_run=False, complete=True)

    with log_unexpected("erase", place.path):
        try:
            place.journal.recover()  # a commit that is not finished would keep its files afterwards
            return with_versions(place, run)
        except (OSError, FsspeckitError) as error:
            raise StorageError(
                f"The rows of {place.path} are deleted, but not all files of earlier versions are removed: {error} "
                "Then run the same delete with erase_history again."
            ) from error


def remove_versions(
    place: Place, versions: Versions, floor: int, *, dry_run: bool, complete: bool = False
) -> VacuumResult:
    """Remove all versions before ``floor``; if ``complete``, raise if something with the name of a kept file stays."""
    expired = place.journal.expire(floor, dry_run=dry_run)
    for folder in expired.folders:
        message = f"{folder} is a folder that fsspeckit has not created. Move or remove it."
        if complete:
            raise StorageError(message)
        _logger.warning(message)
    oldest = versions.history.oldest_readable
    if oldest is not None and (expired.kept or expired.segments):
        oldest = max(oldest, floor)  # otherwise all files of older versions are current ones, and stay readable
    return VacuumResult(len(expired.kept), sum(size for _, size in expired.kept), oldest, dry_run)


def _rows_of(place: Place, files: Sequence[ViewFile]) -> dict[str, DataFile]:
    """Read the footers of files."""
    view = View(place.root, exists=True, head=0, files=tuple(files), side_files=(), pending=False)
    return {file.path: file for file in load_files(place.storage, view)[1]}


def with_versions(place: Place, function: Callable[[Versions], _T], list_files: Callable[[], View] | None = None) -> _T:
    """Call a function with the versions of a dataset, again if a commit moves a file during the call."""
    for attempt in range(_ATTEMPTS):
        view = (list_files or place.journal.view)()
        versions = place.journal.versions(view, place.path)
        if not view.exists and not view.head:
            raise not_found(place)
        try:
            return function(versions)
        except FileNotFoundError as error:
            if attempt == _ATTEMPTS - 1:
                raise VersionNotFoundError(
                    f"Files of {place.path} were removed in each of {_ATTEMPTS} attempts ({error}). Run it again."
                ) from error
    raise AssertionError("unreachable")


def not_found(place: Place) -> DatasetNotFoundError:
    """Return the error for a dataset that does not exist."""
    return DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")

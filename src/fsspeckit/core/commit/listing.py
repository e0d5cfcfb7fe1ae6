"""List a dataset folder as one consistent snapshot of data files and side files. Nothing is written or recovered.

The snapshot is consistent also while a commit is being published: files that the pending record retires are left out,
and files that it has not published yet are read from the staging folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from fsspeckit.common.errors import CommitConflictError, StorageError
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.export_marks import ExportMark, foreign_commit, is_foreign, version_sizes
from fsspeckit.core.commit.file_kinds import split_entries
from fsspeckit.core.commit.file_list import MANY_FILES, FileList
from fsspeckit.core.commit.footer_index import FooterIndex
from fsspeckit.core.commit.log import Log, LogState, Survey
from fsspeckit.core.commit.nesting import INSIDE, check_contains_no_dataset
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.record import Identity, Published, Record
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.file_names import is_side_file
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import Entry, Storage, Tree, join
from fsspeckit.core.storage.base import LOCK
from fsspeckit.core.storage.foreign_tables import (
    DELTA,
    DELTA_FOLDER,
    check_not_inside_foreign_table,
    owned_folders,
    refusal,
)

_ATTEMPTS = 40
_ATTEMPTS_WITHOUT_LOCK = 3


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of a dataset folder.

    ``head`` is the newest journal slot in it, ``log`` the listing of the slots before that of the folder,
    ``listed_at`` its time by the monotonic clock, and ``index`` what is known of footers. ``emptied`` has the columns
    of a dataset that exists and has no file, because the last commit has removed the last one. ``is_lost``: there is no
    file, although the last commit left some. ``others`` are the visible files that are not Parquet, and ``put_back``
    those that are not data, see `late_copies`. ``partition_types`` are the recorded types of the partition columns.
    """

    root: str
    exists: bool
    head: int
    files: Sequence[ViewFile]
    side_files: tuple[Entry, ...]
    pending: bool
    log: LogState = field(default=LogState(), repr=False, compare=False)
    listed_at: float = field(default=0.0, repr=False, compare=False)
    index: FooterIndex | None = field(default=None, repr=False, compare=False)
    emptied: Emptied | None = field(default=None, repr=False, compare=False)
    is_lost: bool = False
    partition_types: PartitionTypes | None = field(default=None, repr=False, compare=False)
    others: tuple[Entry, ...] = ()
    put_back: tuple[str, ...] = ()

    @property
    def is_missing(self) -> bool:
        """Return whether there is no dataset: no data file, and no commit that removed the last one."""
        return not self.files and self.emptied is None


def check_not_table_format(root: str, tree: Tree, marks: Callable[[], Sequence[ExportMark]] | None) -> None:
    """Raise if the folder is, or contains, one that another program owns, such as a Delta Lake table.

    ``marks`` returns the marks of exported metadata. They are listed after the folder: the mark is written first. If it
    is None, the folder is known to have an export.
    """
    for owned in owned_folders(tree):
        if not owned.folder and owned.owner == DELTA and (marks is None or _is_exported(root, tree, marks())):
            continue
        if owned.folder and set(tree.sidecars) - {INSIDE}:
            continue  # that of another dataset is an export, or `check_contains_no_dataset` raises
        raise refusal(root, owned)


def _is_exported(root: str, tree: Tree, marks: Sequence[ExportMark]) -> bool:
    """Return whether an export wrote the Delta log. Raise if another program has committed to it since."""
    if not any(mark.format == "delta" for mark in marks):
        return False
    prefix = f"{DELTA_FOLDER}/"
    files = ((entry.path.removeprefix(prefix), entry.size) for entry in tree.files if entry.path.startswith(prefix))
    if is_foreign("delta", version_sizes("delta", files), marks):
        raise foreign_commit("delta", root)
    return True


@dataclass(frozen=True, slots=True)
class _Head:
    """The state of the journal. A listing is consistent if it is the same before and after it."""

    sidecar: str | None
    state: LogState
    listed_at: float
    index: tuple[Entry, ...] | None = None


def list_dataset(
    storage: Storage,
    root: str,
    locations: SidecarLocations,
    survey: Survey | None = None,
    *,
    consistent: bool = True,
    may_lock: bool = True,
    ignores_foreign_export: bool = False,
) -> View:
    """Return a snapshot of the dataset folder. List again if a commit happened during the listing.

    Args:
        storage: The storage of the dataset.
        root: The dataset folder.
        locations: The paths of the journal.
        survey: An earlier listing of the journal. It is as good as a new one: a commit since then is detected.
        consistent: Whether files of a commit that happens during the listing must be either all listed or none.
        may_lock: Whether the journal may be locked. A caller that holds its lock would wait for itself.
        ignores_foreign_export: Whether the files of another program that committed to exported metadata are listed.

    Raises:
        CommitConflictError: Every attempt was interrupted by a commit.
    """
    for attempt in range(_ATTEMPTS):
        # After a few attempts, block writers: many fast commits could otherwise starve a reader of a large folder.
        locks = may_lock and attempt >= _ATTEMPTS_WITHOUT_LOCK and storage.is_local
        locked = locations.find() if locks else None
        with storage.lock(join(locked, LOCK), shared=True) if locked else nullcontext():
            head = _read_head(storage, locations, survey if attempt == 0 else None)
            view = _list_once(
                storage, root, locations, head, consistent=consistent, ignores_foreign_export=ignores_foreign_export
            )
        if view is not None:
            return view
    raise CommitConflictError(f"{root} changed during each of {_ATTEMPTS} listings. Run the operation again.")


def _list_once(
    storage: Storage,
    root: str,
    locations: SidecarLocations,
    head: _Head,
    *,
    consistent: bool,
    ignores_foreign_export: bool,
) -> View | None:
    try:
        record = _pending_record(storage, head)
    except FileNotFoundError:
        return None
    staged = _staged_files(storage, head, record)
    try:
        tree: Tree | None = storage.list_tree(root)
    except FileNotFoundError:
        tree = None
    put_back = _put_back(storage, head, tree)
    if put_back and tree is not None:
        tree = replace(tree, files=tuple(entry for entry in tree.files if entry.path not in put_back))
    index = FooterIndex(storage, head.sidecar, head.index)
    data, others = split_entries(storage, root, tree.files if tree is not None else (), index)
    if tree is not None and INSIDE in tree.sidecars and head.sidecar == locations.beside != locations.refresh():
        return None
    if consistent and not _is_current(storage, locations, head):
        return None
    if tree is not None:
        marks = None if ignores_foreign_export else lambda: _read_head(storage, locations).state.exports
        check_not_table_format(root, tree, marks)
    if head.sidecar is None:  # the first writer of a dataset, which made its journal, looked above
        check_not_inside_foreign_table(storage, root)
    view = _assemble(root, head, record, staged, tree, data, in_place=storage.in_place)
    if not view.files and head.sidecar is not None:
        try:
            is_lost, emptied = Log(storage, head.sidecar).contents(head.state)
        except FileNotFoundError:
            return None  # a later commit has removed the record
        view = replace(view, exists=view.exists or emptied is not None, emptied=emptied, is_lost=is_lost)
    types = head.state.types_at(head.state.newest) if record is None else record.partition_types
    types = types or head.state.types_at(head.state.newest)
    view = replace(view, index=index, others=tuple(others), partition_types=types)
    return replace(view, put_back=tuple(sorted(put_back)))


def _put_back(storage: Storage, head: _Head, tree: Tree | None) -> set[str]:
    """Return the listed files that a commit has removed and a late copy has put back."""
    if head.sidecar is None or tree is None or not head.state.gone:
        return set()
    gone = Log(storage, head.sidecar).gone(head.state)
    return {entry.path for entry in tree.files if entry.path in gone and entry.size == gone[entry.path][1]}


def _read_head(storage: Storage, locations: SidecarLocations, survey: Survey | None = None) -> _Head:
    if survey is None and not storage.has_folders and not locations.is_known:
        survey = locations.survey()
    if survey is not None:
        return _Head(survey.sidecar, survey.state, survey.listed_at, survey.index)
    sidecar, now = locations.find(), time.monotonic()
    return _Head(sidecar, LogState() if sidecar is None else Log(storage, sidecar).state(), now)


def _is_current(storage: Storage, locations: SidecarLocations, head: _Head) -> bool:
    """Return whether the journal is still in the state of the head."""
    if head.sidecar is not None and locations.is_known and locations.find() == head.sidecar:
        return Log(storage, head.sidecar).has_position(head.state)
    return _read_head(storage, locations).state.newest == head.state.newest == 0


def _pending_record(storage: Storage, head: _Head) -> Record | None:
    if head.sidecar is None or not head.state.is_pending:
        return None
    record = Log(storage, head.sidecar).read(head.state.newest)
    return record if record.kind == "commit" else None


def _staged_files(storage: Storage, head: _Head, record: Record | None) -> dict[str, str]:
    """Return the paths of the files that the pending record still has in its staging folder, by name."""
    if head.sidecar is None or record is None:
        return {}
    staging = Log(storage, head.sidecar).staging_path(record.owner)
    return {name: join(staging, name) for name in storage.list_names(staging)}


def _assemble(
    root: str,
    head: _Head,
    record: Record | None,
    staged: dict[str, str],
    tree: Tree | None,
    data: Sequence[Entry],
    *,
    in_place: bool,
) -> View:
    if tree is not None:
        check_contains_no_dataset(root, tree, has_journal=head.sidecar is not None)
    entries = tree.files if tree is not None else ()
    prefix = join(root, "x")[:-1]
    side_files = tuple(entry for entry in entries if is_side_file(entry.path))
    if record is None and len(entries) >= MANY_FILES:
        return _large_view(root, head, data, side_files, prefix)
    files = {
        entry.path: ViewFile(entry.path, prefix + entry.path, entry.size, entry.stamp, entry.version, entry.modified)
        for entry in data
    }
    _check_names_are_text(files)
    if record is not None:
        retired = {item.path for item in record.retire}
        files = {path: file for path, file in files.items() if path not in retired}
        unpublished = [_unpublished(item, staged, files, in_place=in_place) for item in record.publish]
        files |= {file.path: file for file in unpublished if file is not None}
        side_files = tuple(entry for entry in side_files if entry.path not in retired)
    return View(
        root=root,
        exists=tree is not None or bool(files),
        head=head.state.newest,
        files=tuple(files[path] for path in sorted(files)),
        side_files=side_files,
        pending=record is not None,
        log=head.state,
        listed_at=head.listed_at,
    )


def _large_view(root: str, head: _Head, data: Sequence[Entry], side_files: tuple[Entry, ...], prefix: str) -> View:
    """Return a view of many files, of which no commit is pending."""
    _check_names_are_text(entry.path for entry in data)
    files = FileList.of(prefix, data)
    return View(root, True, head.state.newest, files, side_files, False, head.state, head.listed_at)


def _check_names_are_text(paths: Iterable[str]) -> None:
    """Raise if the name of a data file is not valid UTF-8: Arrow and the engines cannot open such a file."""
    for path in paths:
        if not path.isascii() and path.encode("utf-8", "replace").decode() != path:
            raise StorageError(f"The name of the file {path!a} is not valid UTF-8. Rename the file or its folder.")


def _unpublished(
    item: Published, staged: dict[str, str], files: dict[str, ViewFile], *, in_place: bool
) -> ViewFile | None:
    """Return the staged file of an item that is not published yet, or None if the listing already has it."""
    listed = files.get(item.path)
    published = listed is not None and item.is_at(Identity(listed.size, listed.stamp), in_place=in_place)
    if published or item.staged not in staged:
        return None
    path = item.path if listed is None or item.replaces is not None else item.other_path
    return ViewFile(path, staged[item.staged], item.size, item.stamp)

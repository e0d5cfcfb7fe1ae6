"""What stands in a dataset folder at one moment: data files, side files, and whether it is ours to touch at all.

A view is a snapshot also while a commit is being published: what the pending record retires is left out, and what it
has not yet published is read where it is staged. Taking a view writes nothing and never recovers.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from fsspeckit.common.errors import CommitConflictError, TableFormatError
from fsspeckit.core.commit.journal import Log, LogState, SidecarLocations
from fsspeckit.core.commit.nesting import LOCK, check_contains_no_dataset
from fsspeckit.core.commit.record import Published, Record
from fsspeckit.core.file_names import is_data_file, is_side_file
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import Entry, Storage, Tree, join

_ATTEMPTS = 40
_ATTEMPTS_WITHOUT_LOCK = 3


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of a dataset folder. ``head`` is the journal slot it belongs to."""

    root: str
    exists: bool
    head: int
    files: tuple[ViewFile, ...]
    side_files: tuple[Entry, ...]
    pending: bool


def check_not_table_format(root: str, tree: Tree) -> None:
    """Refuse a folder in which a table format keeps its own record of what is data."""
    folders = set(tree.folders)
    found = None
    if "_delta_log" in folders:
        found = "a Delta Lake table (_delta_log)"
    elif ".hoodie" in folders:
        found = "an Apache Hudi table (.hoodie)"
    elif "metadata" in folders and any(_is_iceberg_metadata(entry.path) for entry in tree.files):
        found = "an Apache Iceberg table (metadata)"
    if found:
        raise TableFormatError(f"{root} is {found}, not a plain Parquet folder. Use that format's own tools for it.")


def _is_iceberg_metadata(path: str) -> bool:
    return path == "metadata/version-hint.text" or (path.startswith("metadata/") and path.endswith(".metadata.json"))


@dataclass(frozen=True, slots=True)
class _Head:
    """What must be the same before and after listing."""

    sidecar: str | None
    state: LogState

    @property
    def position(self) -> tuple[int, bool]:
        return self.state.newest, self.state.is_pending


def list_dataset(storage: Storage, root: str, places: SidecarLocations) -> View:
    """Head, staged files, tree, head again; from the start where the head moved meanwhile."""
    for attempt in range(_ATTEMPTS):
        # Writers in a tight loop could starve a reader of a large folder: after a few tries they wait for it.
        waited_for = places.find() if attempt >= _ATTEMPTS_WITHOUT_LOCK and storage.is_local else None
        with storage.lock(join(waited_for, LOCK), shared=True) if waited_for else nullcontext():
            view = _view_once(storage, root, places)
        if view is not None:
            return view
    raise CommitConflictError(f"{root} kept changing while it was being listed. Try again when fewer writers are busy.")


def _view_once(storage: Storage, root: str, places: SidecarLocations) -> View | None:
    head = _read_head(storage, places)
    try:
        record = _pending_record(storage, head)
    except FileNotFoundError:
        return None
    staged = _staged_files(storage, head, record)
    try:
        tree: Tree | None = storage.list_tree(root)
    except FileNotFoundError:
        tree = None
    if _read_head(storage, places).position != head.position:
        return None
    return _assemble(root, head, record, staged, tree)


def _read_head(storage: Storage, places: SidecarLocations) -> _Head:
    sidecar = places.find()
    return _Head(sidecar, LogState() if sidecar is None else Log(storage, sidecar).state())


def _pending_record(storage: Storage, head: _Head) -> Record | None:
    if head.sidecar is None or not head.state.is_pending:
        return None
    record = Log(storage, head.sidecar).read(head.state.newest)
    return record if record.kind == "commit" else None


def _staged_files(storage: Storage, head: _Head, record: Record | None) -> dict[str, str]:
    """Where each file of the pending record is staged, for those that still are."""
    if head.sidecar is None or record is None:
        return {}
    staging = Log(storage, head.sidecar).staging_path(record.owner)
    return {name: join(staging, name) for name in storage.list_names(staging)}


def _assemble(root: str, head: _Head, record: Record | None, staged: dict[str, str], tree: Tree | None) -> View:
    if tree is not None:
        check_not_table_format(root, tree)
        check_contains_no_dataset(root, tree, has_journal=head.sidecar is not None)
    entries = tree.files if tree is not None else ()
    prefix = join(root, "x")[:-1]
    files = {
        entry.path: ViewFile(entry.path, prefix + entry.path, entry.size, entry.stamp)
        for entry in entries
        if is_data_file(entry.path)
    }
    side_files = tuple(entry for entry in entries if is_side_file(entry.path))
    if record is not None:
        retired = {item.path for item in record.retire}
        files = {path: file for path, file in files.items() if path not in retired}
        files |= {item.path: file for item in record.publish if (file := _unpublished(item, staged, files)) is not None}
        side_files = tuple(entry for entry in side_files if entry.path not in retired)
    return View(
        root=root,
        exists=tree is not None or bool(files),
        head=head.state.newest,
        files=tuple(files[path] for path in sorted(files)),
        side_files=side_files,
        pending=record is not None,
    )


def _unpublished(item: Published, staged: dict[str, str], files: dict[str, ViewFile]) -> ViewFile | None:
    """The staged file in place of one that is not published yet; None where the listing has it already."""
    listed = files.get(item.path)
    published = listed is not None and (item.replaces is None or listed.stamp == item.stamp)
    if published or item.staged not in staged:
        return None
    return ViewFile(item.path, staged[item.staged], item.size, item.stamp)

"""Export a dataset: load its files, and write the metadata of a table format for them.

An export that is kept is written again after every commit. The commit is final then, so an error is logged and not
raised; the next operation on the dataset, or a recovery, tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import (
    CatalogError,
    CommitConflictError,
    DatasetNotFoundError,
    FsspeckitError,
    PartitionError,
    StorageError,
    UnsupportedDataError,
)
from fsspeckit.common.partitions import typed_values
from fsspeckit.core.commit.exports import Exported, ExportLog
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.export.catalog_table import CatalogTable, OpenCatalog, Registration
from fsspeckit.core.export.glue import GlueCatalog
from fsspeckit.core.export.hive import HiveCatalog
from fsspeckit.core.export.prepare import FORMATS, Target
from fsspeckit.core.export.table import FileSchema, Table, TableFile
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.parquet.data_files import MAX_COLUMNS, FooterFacts
from fsspeckit.core.parquet.timestamps import fits_nanoseconds
from fsspeckit.core.storage import Storage

_ATTEMPTS = 20
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExportedVersion:
    """A version of exported metadata: its folder, its number, and whether it was written by this call."""

    folder: str
    version: int
    files: int
    rows: int
    is_new: bool


CATALOGS: Mapping[str, OpenCatalog] = {"glue": GlueCatalog, "hive": HiveCatalog}
"""The catalogs in which a dataset can be registered."""


def connected(journal: Journal, storage: Storage, root: str, path: str) -> Journal:
    """Return the journal, after whose commits the kept exports and catalogs of the dataset are written again."""
    journal.refresh_exports = partial(refresh, Journal(storage, root), storage, path)
    journal.check_exportable = partial(check_exportable, storage, path)
    return journal


def check_exportable(
    storage: Storage, path: str, kinds: frozenset[str], staged: Sequence[ViewFile], footers: Mapping[str, bytes]
) -> None:
    """Raise if staged files, with their footers by final path, have a column that a format cannot describe."""
    formats = [FORMATS[kind] for kind in sorted(kinds) if kind in FORMATS]
    if not formats:
        return
    facts = FooterFacts(())
    files = [facts.describe(file, footers[file.path]) for file in staged if file.path in footers]
    for form in formats:
        for each in FileSchema.distinct(files):
            form.check(Table(each.path, each.schema, (), (), [each]))
        _check_int96(storage, files, path, form.title)


def _check_int96(storage: Storage, files: Iterable[DataFile], path: str, title: str) -> None:
    """Raise if readers of table formats, which decode INT96 as nanoseconds, would read other values."""
    for file in files:
        if file.int96 and (storage.int96_local or not fits_nanoseconds(storage, file)):
            which = "without a time zone" if storage.int96_local else "before the year 1678 or after 2262"
            command = f"fsspeckit alter {path} --timestamps micros"
            command += " --storage-option int96=local" if storage.int96_local else ""
            raise UnsupportedDataError(
                f"{title} export of {path}: the column {file.int96[0]!r} of {file.path} has INT96 timestamps {which}, "
                f"which other readers change. Nothing was changed. Run `{command}`."
            )


def refresh(journal: Journal, storage: Storage, path: str) -> None:
    """Write all exports and catalogs again that are kept. Errors are logged: the commit before it is final."""
    with _logged(path, "an export"):
        exports = journal.exports()
        kept = journal.view().log.kept
        for kind in sorted(kept & FORMATS.keys()):
            with _logged(path, f"its {kind} export"):
                export(journal, storage, path, kind, exports)
        for kind in sorted(kept - FORMATS.keys()):
            with _logged(path, f"the {kind} catalog"):
                refresh_catalog(journal, storage, path, kind)


@contextmanager
def _logged(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, FsspeckitError, pa.ArrowException, ImportError, ValueError) as error:
        _logger.warning(
            "the commit to %s is final, but %s does not have it (%s); the next commit tries again", path, what, error
        )


def refresh_catalog(journal: Journal, storage: Storage, path: str, kind: str) -> None:
    """Write the table of a catalog again, until it describes the newest commit."""
    exports = journal.exports()
    with exports.lock():
        note = exports.read_note(f"{kind}.json")
        if note is None:
            raise CatalogError(f"The registration of {path} is missing. Run `fsspeckit register` again.")
        known = Registration.from_bytes(note, path)
        catalog, view = CATALOGS[kind](known.options), journal.view()
        for _ in range(_ATTEMPTS):
            described = catalog_table(view, storage, path)
            if described is not None:
                catalog.write(known.table, described)
            written, view = view.head, journal.view()
            if view.head == written:
                return


def catalog_table(view: View, storage: Storage, path: str) -> CatalogTable | None:
    """Return the description of a dataset for a catalog, or None if it has no files."""
    snapshot = _load(storage, view)
    return None if snapshot is None else CatalogTable.of(_described(snapshot, view, path), storage.url(view.root))


def export(journal: Journal, storage: Storage, path: str, kind: str, exports: ExportLog) -> ExportedVersion:
    """Write the metadata of the current state of a dataset.

    Raises:
        UnsupportedDataError: The format cannot describe a column. Nothing was written.
        TableFormatError: Another program has committed to the table. Nothing was written.
        CommitConflictError: Another process wrote a version first in every attempt.
    """
    with exports.lock():
        for _ in range(_ATTEMPTS):
            # The newest version first: if another process exports a later state, the version number is taken.
            old = exports.newest(kind)
            view = journal.view()
            try:
                done = _export_view(storage, view, path, kind, exports, old)
            except FileNotFoundError as error:
                if isinstance(error, DatasetNotFoundError):
                    raise
                continue  # a commit removed a file before its footer was read
            if done is not None:
                return done
    raise CommitConflictError(
        f"Other writers of {path} were first in each of {_ATTEMPTS} attempts to export it. Export it again."
    )


def _export_view(
    storage: Storage, view: View, path: str, kind: str, exports: ExportLog, old: Exported | None
) -> ExportedVersion | None:
    """Write the metadata of a view, or return None if another process wrote that version."""
    if view.pending:
        raise StorageError(f"A commit of {path} is not finished. Run recover(), and export it again.")
    form, snapshot = FORMATS[kind], _load(storage, view)
    if snapshot is None and old is None:
        raise DatasetNotFoundError(f"no parquet dataset at {path}; check the path, or write it first")
    table = None if snapshot is None else _described(snapshot, view, path)
    if snapshot is not None and table is not None:
        form.check(table)
        has = (lambda file: False) if old is None else form.has(old, path)  # noqa: ARG005
        new = (file for file, listed in zip(snapshot.files, table.files, strict=True) if not has(listed))
        _check_int96(storage, new, path, form.title)
    folder, version = exports.folder(kind), 0 if old is None else old.mark.version + 1
    target = Target(path, storage.url(folder.rpartition("/")[0]), storage.url(view.root), version or form.first)
    prepared = form.prepare(table, old, target)
    files = () if table is None else table.files
    rows = sum(file.rows for file in files)
    if prepared is None:
        assert old is not None
        exports.describe_slot(old, view.head)
        return ExportedVersion(storage.url(folder), old.mark.version, len(files), rows, False)
    if not exports.publish(kind, target.version, view.head, prepared.data, prepared.state, prepared.files):
        return None
    return ExportedVersion(storage.url(folder), target.version, len(files), rows, True)


def _load(storage: Storage, view: View) -> Snapshot | None:
    """Return the files of a view with statistics, or None if there is no dataset."""
    if view.is_missing:
        return None
    first = load_snapshot(storage, replace(view, files=view.files[:1]))
    assert first.schema is not None
    return load_snapshot(storage, view, stats_for=first.schema.names[:MAX_COLUMNS], empty_may_differ=True)


def _described(snapshot: Snapshot, view: View, path: str) -> Table:
    """Return the files of a view as an export describes them."""
    schema = full_schema(snapshot)
    values = _partition_values(snapshot, schema, path)
    listed = {file.path: file for file in view.files}
    files = [
        TableFile(
            file.path,
            file.size,
            int(listed[file.path].modified * 1000),
            file.rows,
            values[at],
            file.stats,
            file.row_groups,
            file.schema,
        )
        for at, file in enumerate(snapshot.files)
    ]
    return Table(path, schema, snapshot.partition_columns, files, FileSchema.distinct(snapshot.files))


def _partition_values(snapshot: Snapshot, schema: pa.Schema, path: str) -> list[tuple[Any, ...]]:
    """Return the typed partition values of each file."""
    columns = snapshot.partition_columns
    if not columns:
        return [()] * len(snapshot.files)
    texts = [file.partition for file in snapshot.files]
    outside = next((file.path for file in snapshot.files if file.partition is None), None)
    if outside is not None:
        raise PartitionError(
            f"{path} has partition folders, but {outside} is outside of them, so its rows have no partition. Nothing "
            "was exported. Move the file into a partition folder."
        )
    typed = [
        typed_values([each[at] if each is not None else None for each in texts], schema.field(name).type, name)
        for at, name in enumerate(columns)
    ]
    return list(zip(*(array.to_pylist() for array in typed), strict=True))

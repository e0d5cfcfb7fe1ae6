"""Register a dataset in a catalog, and delete its table there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from fsspeckit.common.choices import CatalogName, check_choice
from fsspeckit.common.errors import CatalogError, DatasetNotFoundError, StorageError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.exported import CATALOGS, catalog_table, refresh_catalog
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.export.catalog_table import Catalog, Registration, TableName
from fsspeckit.core.result_view import ResultView


@dataclass(frozen=True, slots=True, eq=False)
class RegisterResult(ResultView):
    """A registration: the table, its columns and partitions, and how many partitions were added and removed."""

    catalog: str
    table: str
    location: str
    columns: int
    partitions: int
    added: int
    removed: int
    kept: bool
    seconds: float = 0.0

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("catalog", self.catalog),
            ("table", self.table),
            ("location", self.location),
            ("columns", f"{self.columns:,}"),
            ("partitions", f"{self.partitions:,} ({self.added:,} added, {self.removed:,} removed)"),
            ("after each commit", "written again" if self.kept else "not written again"),
        ]


def register(
    place: Place,
    kind: CatalogName,
    table: str,
    options: Mapping[str, str],
    *,
    keep_registered: bool,
) -> RegisterResult:
    """Write the table of a dataset to a catalog, now and, if it is kept, after every commit."""
    started, known = time.perf_counter(), Registration(TableName.parse(table), options)
    with log_unexpected("register", place.path):
        catalog = open_catalog(kind, options)
        place.journal.recover()
        view = place.journal.view_to_change()
        if view.pending:
            raise StorageError(f"A commit of {place.path} is not finished. Run recover(), and register it again.")
        described = catalog_table(view, place.storage, place.path)
        if described is None:
            raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
        exports = place.journal.exports()
        _check_same_table(exports.read_note(f"{kind}.json"), known, place.path, kind)
        added, removed = catalog.write(known.table, described)
        exports.write_note(f"{kind}.json", known.to_bytes())
        exports.set_kept(kind, is_kept=keep_registered)
        if keep_registered and place.journal.view().head > view.head:
            refresh_catalog(place.journal, place.storage, place.path, kind)
    columns, seconds = len(described.columns) + len(described.partition_columns), time.perf_counter() - started
    counts = (columns, len(described.partitions), added, removed)
    return RegisterResult(kind, str(known.table), described.location, *counts, keep_registered, seconds)


def is_registered(place: Place, kind: CatalogName, table: str, options: Mapping[str, str]) -> bool:
    """Return whether every commit updates this table of a catalog already."""
    if kind not in place.journal.view().log.kept:
        return False
    note = place.journal.exports().read_note(f"{kind}.json")
    return note is not None and Registration.from_bytes(note, place.path) == Registration(
        TableName.parse(table), options
    )


def unregister(place: Place, kind: CatalogName) -> bool:
    """Delete the table of a dataset in a catalog, and return whether there was one. The data files stay."""
    with log_unexpected("unregister", place.path):
        if place.journal.status().sidecar is None:
            return False
        exports = place.journal.exports()
        note = exports.read_note(f"{kind}.json")
        if note is None:
            return False
        known = Registration.from_bytes(note, place.path)
        exports.set_kept(kind, is_kept=False)
        open_catalog(kind, known.options).remove(known.table)
        exports.write_note(f"{kind}.json", None)
        return True


def _check_same_table(note: bytes | None, known: Registration, path: str, kind: str) -> None:
    """Raise if the dataset is registered under another name, which nothing would update from now on."""
    old = None if note is None else Registration.from_bytes(note, path)
    if old is not None and old.table != known.table:
        raise CatalogError(
            f"{path} is registered as {old.table}. Run `fsspeckit register {path} --catalog {kind} --remove` first."
        )


def open_catalog(kind: CatalogName, options: Mapping[str, str]) -> Catalog:
    """Return a catalog. Raise if its name or an option is unknown."""
    check_choice("catalog", kind, get_args(CatalogName))
    return CATALOGS[kind](options)

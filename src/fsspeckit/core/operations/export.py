"""Export a dataset as a table of another format, and remove an export."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import get_args

from fsspeckit.common.choices import ExportFormat, ForeignChange, check_choice
from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset import exported, foreign_export
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.result_view import ResultView


@dataclass(frozen=True, slots=True, eq=False)
class ExportResult(ResultView):
    """An export: the folder and the version of its metadata, and the files and rows that the version has.

    ``changed`` is False if the newest version described the dataset already. ``kept`` is True if every commit writes a
    new version.
    """

    format: str
    location: str
    version: int
    files: int
    rows: int
    changed: bool
    kept: bool
    seconds: float = 0.0

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("format", self.format),
            ("metadata", self.location),
            ("version", f"{self.version:,}" + ("" if self.changed else " (no change)")),
            ("files", f"{self.files:,}"),
            ("rows", f"{self.rows:,}"),
            ("after each commit", "written again" if self.kept else "not written again"),
        ]


def export(place: Place, kind: ExportFormat, *, keep_exported: bool) -> ExportResult:
    """Write the metadata of a format for the current files, now and, if it is kept, after every commit."""
    check_choice("format", kind, get_args(ExportFormat))
    started = time.perf_counter()
    with log_unexpected("export", place.path):
        place.journal.recover()
        view = place.journal.view_to_change()
        if view.is_missing and not view.log.exports:
            raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
        exports = place.journal.exports()
        done = first = exported.export(place.journal, place.storage, place.path, kind, exports)
        exports.set_kept(kind, is_kept=keep_exported)
        if keep_exported:  # a commit since the export did not know yet that it is kept
            done = exported.export(place.journal, place.storage, place.path, kind, exports)
        changed, seconds = first.is_new or done.is_new, time.perf_counter() - started
        return ExportResult(kind, done.folder, done.version, done.files, done.rows, changed, keep_exported, seconds)


def remove_export(place: Place, kind: ExportFormat, foreign: ForeignChange | None = None) -> bool:
    """Delete the metadata of a format, and return whether there was any. The data files stay.

    ``foreign`` says what becomes of the change of another program that committed to the table.
    """
    check_choice("format", kind, get_args(ExportFormat))
    with log_unexpected("remove export", place.path):
        return foreign_export.remove_export(place, kind, foreign)

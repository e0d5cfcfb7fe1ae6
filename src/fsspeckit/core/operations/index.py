"""Build the footer index of a dataset again, from the footers of all files."""

from __future__ import annotations

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.progress import Progress, reporting


def rebuild_index(place: Place, progress: Progress = None) -> int:
    """Replace the footer index of a dataset, and return the number of files in it. No data file is changed."""
    with log_unexpected("rebuild index", place.path), reporting("rebuild index", progress) as reporter:
        place.journal.recover()
        view = place.journal.view_to_change()
        if view.is_missing:
            raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
        with vanished_file_is_conflict(place, "rebuild index"):
            on_done = reporter.stage("footers", len(view.files))
            files = read_data_files(place.storage, view.files, None, on_done=on_done)
        with place.journal.begin(view, "rebuild index") as transaction:
            transaction.rebuild_index(files)
        return len(files)

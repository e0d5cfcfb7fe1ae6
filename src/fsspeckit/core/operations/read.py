"""Read one consistent state of a dataset, and finish what a crashed writer left behind."""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.replay import Recovery
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import load_snapshot, single_file_view
from fsspeckit.core.engine.protocol import Engine, ReadRequest

_READ_ATTEMPTS = 20


def read(engine: Engine, place: Place, request: ReadRequest) -> pa.Table:
    """Read one consistent state of a dataset; a file that vanished meanwhile means reading a newer one."""
    with log_unexpected("read", place.path):
        for attempt in range(_READ_ATTEMPTS):
            view = existing_view(place)
            try:
                return engine.read(place.storage, load_snapshot(place.storage, view), request, place.full)
            except FileNotFoundError:
                if attempt == _READ_ATTEMPTS - 1:
                    raise
    raise AssertionError("unreachable")


def existing_view(place: Place) -> View:
    """The files of a dataset that must exist; a path to one file is a dataset of that file."""
    view = single_file_view(place.storage, place.root) or place.journal.view()
    if not view.files:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
    return view


def recover(place: Place) -> Recovery:
    """Finish or undo what a crashed writer left behind; refuses paths inside or above datasets, as changes do."""
    with log_unexpected("recover", place.path):
        place.journal.view_to_change()
        return place.journal.recover()

"""Read one consistent state of a dataset, and recover from a crashed writer."""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.replay import Recovery
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import single_file_view
from fsspeckit.core.engine.protocol import Engine, ReadRequest
from fsspeckit.core.planning.read import plan_read

_READ_ATTEMPTS = 20


def read(engine: Engine, place: Place, request: ReadRequest) -> pa.Table:
    """Read one consistent state of a dataset. If a file disappears during the read, read the newer state."""
    with log_unexpected("read", place.path):
        for attempt in range(_READ_ATTEMPTS):
            view = existing_view(place)
            try:
                snapshot, planned = plan_read(place.storage, view, request)
                return engine.read(place.storage, snapshot, planned, place.full)
            except FileNotFoundError:
                if attempt == _READ_ATTEMPTS - 1:
                    raise
    raise AssertionError("unreachable")


def existing_view(place: Place) -> View:
    """Return the files of a dataset, or raise if it does not exist. A path to one file is a dataset of that file."""
    view = single_file_view(place.storage, place.root) or place.journal.view()
    if not view.files:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
    return view


def recover(place: Place) -> Recovery:
    """Finish the commits and remove the staged files of crashed writers; a path inside or above datasets is refused."""
    with log_unexpected("recover", place.path):
        place.journal.view_to_change()
        return place.journal.recover()

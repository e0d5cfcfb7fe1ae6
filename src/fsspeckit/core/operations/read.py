"""Read one consistent state of a dataset, and recover from a crashed writer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.replay import Recovery
from fsspeckit.core.dataset.place import Place, load_unchanged
from fsspeckit.core.dataset.snapshot import single_file_view
from fsspeckit.core.engine.protocol import Engine, ReadRequest
from fsspeckit.core.planning.read import plan_read

_READ_ATTEMPTS = 20


def read(engine: Engine, place: Place, request: ReadRequest, version: int | None = None, as_of: Any = None) -> pa.Table:
    """Read one consistent state of a dataset. If a file disappears during the read, read the newer state.

    With ``version`` or ``as_of``, the state is that of a kept version, whose files may just have been moved.

    Raises:
        CommitConflictError: A listed file disappeared in every attempt.
    """
    found: int | None = None

    def attempt() -> pa.Table:
        nonlocal found
        view = requested_view(place, version, as_of) if found is None else requested_view(place, found, None)
        found = None if as_of is None else view.head  # a time is that of the same version in each attempt
        snapshot, planned = plan_read(place.storage, view, request)
        return engine.read(place.storage, snapshot, planned, place.full)

    with log_unexpected("read", place.path):
        return load_unchanged(place, "read", attempt, attempts=_READ_ATTEMPTS)


def requested_view(place: Place, version: int | None, as_of: Any) -> View:
    """Return the files of a dataset, or those of one of its versions."""
    if version is None and as_of is None:
        return existing_view(place)
    versions = place.journal.versions(place.journal.view(), place.path)
    view = versions.view_of(versions.number(version, as_of))
    if view.is_missing:
        raise DatasetNotFoundError(
            f"version {view.head} of {place.path} has no rows and no data file, so its columns are not known; "
            "read another version"
        )
    return view


def existing_view(place: Place) -> View:
    """Return the files of a dataset, or raise if it does not exist. A path to one file is a dataset of that file."""
    view = single_file_view(place.storage, place.root) or place.journal.view()
    if view.is_missing:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
    return view


def recover(place: Place) -> Recovery:
    """Finish the commits and remove the staged files of crashed writers; a path inside or above datasets is refused.

    Where it is not known which writers have crashed, the files of all are removed.
    """
    with log_unexpected("recover", place.path):
        place.journal.view_to_change(may_be_lost=True)
        return place.journal.recover(end_writers=True)

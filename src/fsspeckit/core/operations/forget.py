"""Remove the journal of a dataset. The data files stay."""

from __future__ import annotations

from dataclasses import replace

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.commit.forget import ForgetResult
from fsspeckit.core.dataset.place import Place


def forget(place: Place, *, dry_run: bool) -> ForgetResult:
    """Remove the journal, or with ``dry_run`` return what would be removed."""
    with log_unexpected("forget", place.path):
        found = place.journal.forget(dry_run=dry_run)
        if found.journal is None and place.journal.view().is_missing:
            raise DatasetNotFoundError(f"there is no dataset and no journal at {place.path}. Check the path.")
        return replace(found, path=place.path)

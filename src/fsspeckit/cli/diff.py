"""`--diff` of `plan`: sample rows before and after a change.

The operation runs until its commit, on staged files. There the rows are read, and the commit is refused, so that
nothing is published. The sample is therefore exactly what `apply` would do, on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import FsspeckitError

if TYPE_CHECKING:
    from fsspeckit.core.commit.listing import View
    from fsspeckit.core.operations.row_sample import RowSample
    from fsspeckit.core.storage import Storage
    from fsspeckit.datasets.io import DatasetIO

_SAME_ROWS = ("compact", "optimize")
"""Operations that move rows to other files and change none."""


class _SampledError(FsspeckitError):
    """Ends an operation before its commit."""


def sample_rows(
    io: DatasetIO,
    storage: Storage,
    operation: str,
    call: Callable[[DatasetIO], Any],
    key_columns: Sequence[str],
) -> RowSample:
    """Return some rows that an operation changes, without changing the dataset.

    Args:
        io: Runs the operation.
        storage: The storage of the dataset.
        operation: Its name.
        call: Calls the operation with the `DatasetIO` that it gets.
        key_columns: The columns that identify a row, if the operation has any.
    """
    from fsspeckit.core.operations.row_sample import RowSample, sample_changes

    found = RowSample()
    if operation in _SAME_ROWS:
        return found

    def look(before: View, after: View, _: object) -> None:
        nonlocal found
        found = sample_changes(storage, before, after, key_columns)
        raise _SampledError("the rows were read before the commit")

    try:
        call(io.on_terms(check=look))
    except _SampledError:
        return found
    return found  # there was nothing to commit

"""`--diff` of `plan` and `apply`: sample rows before and after a change.

The operation runs until its commit, on staged files. There the rows are read. For a plan the commit is then refused,
so that nothing is published. The sample is therefore exactly what `apply` does, on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import FsspeckitError

if TYPE_CHECKING:
    from fsspeckit.core.commit.listing import View
    from fsspeckit.core.operations.row_sample import RowSample
    from fsspeckit.core.storage import Storage
    from fsspeckit.datasets.io import DatasetIO

_SAME_ROWS = ("compact", "optimize", "vacuum")
"""Operations that move rows to other files, or remove files of old versions, and change no row."""


class _SampledError(FsspeckitError):
    """Ends an operation before its commit."""


@dataclass(slots=True)
class RowSampler:
    """A check of a commit that reads some of the rows that change."""

    storage: Storage
    operation: str
    key_columns: Sequence[str]
    check: Callable[[View], None] | None = None
    found: RowSample | None = None

    def __call__(self, before: View, after: View, _: object) -> None:
        """Read the rows, if the check of the files before the change does not raise."""
        from fsspeckit.core.operations.row_sample import RowSample, sample_changes

        if self.check is not None:
            self.check(before)
        if self.operation in _SAME_ROWS:
            self.found = RowSample()
        else:
            self.found = sample_changes(self.storage, before, after, self.key_columns)


def sample_rows(io: DatasetIO, sampler: RowSampler, call: Callable[[DatasetIO], Any]) -> RowSample:
    """Return some rows that an operation changes, without changing the dataset.

    Args:
        io: Runs the operation.
        sampler: Reads the rows.
        call: Calls the operation with the `DatasetIO` that it gets.
    """
    from fsspeckit.core.operations.row_sample import RowSample

    def look(before: View, after: View, info: object) -> None:
        sampler(before, after, info)
        raise _SampledError("the rows were read before the commit")

    if sampler.operation not in _SAME_ROWS:
        with suppress(_SampledError):
            call(io.on_terms(check=look))
    return sampler.found or RowSample()  # without rows if there is nothing to commit

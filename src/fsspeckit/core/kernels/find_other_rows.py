"""Find source rows for which a condition is not true. Memory is bounded by a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fsspeckit.common.partitions import as_read_from_folders
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression
from fsspeckit.core.values.take import filter_rows, take_rows

_BATCH_ROWS = 262_144
_SHOWN = 5


class SourcePiece(Protocol):
    """Some columns of a part of the source rows."""

    def read(self) -> pa.Table:
        """Return the rows."""


@dataclass(frozen=True, slots=True)
class FindOtherRows:
    """Evaluates a condition on source rows.

    Attributes:
        condition: The condition, over the columns of ``schema``.
        schema: The columns with the types that they have in the dataset.
        in_folders: Columns that are only in the names of folders: they have the values that readers get.
        without: A condition over the columns of the source; rows for which it is true are left out.
    """

    condition: Expression
    schema: pa.Schema
    in_folders: Sequence[str]
    without: Expression | None = None

    def __call__(self, piece: SourcePiece) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of rows for which the condition is false or NULL, and the first of them."""
        table, count = piece.read(), 0
        examples: list[dict[str, Any]] = []
        for start in range(0, table.num_rows, _BATCH_ROWS):
            batch = self._checked(table.slice(start, _BATCH_ROWS))
            others = np.flatnonzero(~matching_rows(self.condition, self._typed(batch)))
            count += len(others)
            if len(others) and len(examples) < _SHOWN:
                shown = others[: _SHOWN - len(examples)]
                examples += take_rows(batch.select(self.schema.names), shown).to_pylist()
        return count, examples

    def _checked(self, batch: pa.Table) -> pa.Table:
        return batch if self.without is None else filter_rows(batch, ~matching_rows(self.without, batch))

    def _typed(self, batch: pa.Table) -> pa.Table:
        if not self.schema.names:
            return batch
        return pa.table([self._column(batch, field) for field in self.schema], names=self.schema.names)

    def _column(self, batch: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        if field.name in self.in_folders:
            return as_read_from_folders(batch[field.name], field.type, field.name)
        return cast_schema(batch.select([field.name]), pa.schema([field]), operation="source")[field.name]

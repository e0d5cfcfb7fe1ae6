"""Decide about the rows of a part of a source that are all written: each goes to the partition of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.partitions import partition_folders
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace, in_chunks
from fsspeckit.core.model import RowNumbers


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedPart:
    """A part of a source.

    Attributes:
        folders: The partitions of its rows, in the order of their first rows.
        counts: The number of rows of each.
        places: Where the decisions about the rows are.
        values: The distinct values of each partition column.
    """

    folders: tuple[str, ...]
    counts: RowNumbers
    places: tuple[TablePlace, ...]
    values: tuple[pa.Array, ...]


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """Finds the partitions of rows; ``folder`` is where the decisions are written."""

    folder: TableFolder
    columns: tuple[str, ...]

    def __call__(self, piece: Any) -> PartitionedPart:
        """Find the partitions of the rows of one piece."""
        known: dict[str, int] = {}
        counts, first = np.zeros(0, dtype=np.int64), 0
        places, values = list[TablePlace](), list[list[pa.Array]]([] for _ in self.columns)
        with self.folder.writer() as writer:
            for table in in_chunks(piece.batches()):
                encoded = partition_folders(table.select(list(self.columns))).dictionary_encode()
                local = [known.setdefault(name, len(known)) for name in encoded.dictionary.to_pylist()]
                numbers = np.array(local, dtype=np.int64)[to_numpy(encoded.indices)]
                places.append(writer.add(inserted_rows(first, -1 - numbers)))
                more = np.bincount(numbers, minlength=len(known))
                more[: len(counts)] += counts
                counts, first = more, first + table.num_rows
                for found, name in zip(values, self.columns, strict=True):
                    found.append(_distinct(table[name]))
        return PartitionedPart(tuple(known), counts, tuple(places), tuple(map(_joined, values)))


def inserted_rows(first: int, targets: RowNumbers) -> pa.Table:
    """Return the decision to insert consecutive rows: their numbers, and for each the partition as a target."""
    count = len(targets)
    columns: dict[str, npt.NDArray[Any]] = {
        "row": np.arange(first, first + count, dtype=np.uint32),
        "target": targets.astype(np.int32),
        "position": np.zeros(count, dtype=np.uint32),
        "kind": np.zeros(count, dtype=np.int8),
    }
    return pa.table({name: to_arrow(values) for name, values in columns.items()})


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return pc.unique(values)


def _joined(found: list[pa.Array]) -> pa.Array:
    return pc.unique(pa.concat_arrays(found))

"""Check that the values of a file fit the types of the common schema of a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from fsspeckit.common.casting import exact_cast
from fsspeckit.core.model import DataFile
from fsspeckit.core.parquet.batches import read_batches
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.reader import open_parquet
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class ValueRangeCheck:
    """Reads columns of a file and returns the first one with a value that does not fit, or ``None``."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, item: tuple[DataFile, tuple[str, ...]]) -> str | None:
        """Check the given columns of one file."""
        file, names = item
        with (
            report_damage("reading", file.path),
            open_parquet(self.storage, file, verify=True, partial=True) as reader,
        ):
            for group in range(reader.num_row_groups):
                for table in read_batches(reader, group, names):
                    for name in names:
                        if not self._fits(table[name], self.schema.field(name).type):
                            return name
        return None

    @staticmethod
    def _fits(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
        try:
            for chunk in column.chunks:
                exact_cast(chunk, type_, fill_missing=True)
        except pa.ArrowInvalid:
            return False
        return True

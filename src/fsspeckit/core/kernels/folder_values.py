"""Check that a partition column in the rows of a file has the value of the file's folder.

Readers disagree on which of the two counts, so an operation that selects files by folder needs both to be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from fsspeckit.common.errors import PartitionError
from fsspeckit.common.partitions import distinct_texts, typed_values
from fsspeckit.common.types import unwrapped
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.model import DataFile
from fsspeckit.core.storage import Storage


def check_folder_value(column: pa.ChunkedArray, file: DataFile, name: str, text: str | None) -> None:
    """Raise if a value in the rows differs from the folder's text, read as the type of the column."""
    try:
        (expected,) = distinct_texts(typed_values([text], unwrapped(column.type)))
        others = [stored for stored in distinct_texts(column) if stored != expected]
    except PartitionError:  # no value of this type has the text of the folder
        others = [str(column[0])]
    if others:
        raise PartitionError(
            f"{file.path} has rows with {name}={others[0]!r}, but its folder is for {name}={text!r}, so readers "
            "disagree which partition these rows belong to. Nothing was changed. Move the rows to the folder of their "
            "value, or correct the value."
        )


@dataclass(frozen=True, slots=True)
class FolderValueCheck:
    """Reads partition columns of a file and raises if a value differs from the folder's."""

    storage: Storage

    def __call__(self, item: tuple[DataFile, Mapping[str, str | None]]) -> None:
        """Check the given columns of one file, which have the texts of its folder."""
        file, texts = item
        groups = [number for number, rows in enumerate(file.row_groups) if rows]
        schema = pa.schema([file.schema.field(name) for name in texts])
        for _, table in read_columns(self.storage, file, groups, schema):
            for name, text in texts.items():
                check_folder_value(table[name], file, name, text)

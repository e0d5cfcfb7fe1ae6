"""Read the footers of some files on a worker. The result is a table of footers in its stored form, which is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsspeckit.core.model import ViewFile
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.parquet.footer_format import to_bytes
from fsspeckit.core.parquet.footer_table import tables_of
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class ReadFooters:
    """Reads footers, with the statistics of some columns."""

    storage: Storage
    columns: tuple[str, ...]

    def __call__(self, files: Sequence[ViewFile]) -> bytes:
        """Return the facts of the files."""
        return to_bytes(tables_of(read_data_files(self.storage, files, self.columns)))

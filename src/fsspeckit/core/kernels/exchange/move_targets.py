"""Find the new partitions of rows that move and keep values of their old files, in a part of an exchange."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.partitions import parse_hive_partition_path, partition_folder
from fsspeckit.core.kernels.exchange.file_rows import Sums, sums_of_runs, write_by_part
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.model import RowNumbers

STAYS = -1
"""The number of the folder of a row that stays in its partition."""


@dataclass(frozen=True, slots=True, eq=False)
class NewPlaces:
    """Rows that move and keep values.

    Attributes:
        folders: The folders of their new partitions.
        groups: For each file and folder: the number of the file, that of the folder, and the number of rows.
        sums: The two sums of the positions of each of these groups.
        places: Where row, file, position and folder of the rows are, by part of the source.
    """

    folders: tuple[str, ...]
    groups: RowNumbers
    sums: Sums
    places: dict[int, TablePlace]


@dataclass(frozen=True, slots=True)
class MoveTargets:
    """Finds the folders of rows that move.

    Attributes:
        columns: The partition columns.
        identities: The partitions of the source, by their numbers.
        keep_for_null: Whether a row keeps its partition value where the source has NULL.
    """

    columns: tuple[str, ...]
    identities: tuple[str, ...]
    keep_for_null: bool

    def find(self, piece: pa.Table, hits: RowNumbers, partitions: RowNumbers, known: dict[str, int]) -> RowNumbers:
        """Return the numbers of the new folders of some rows of a file; ``partitions`` are those of the source rows.

        ``known`` has the numbers of the folders that were found before, and gets those of others.
        """
        if not self.keep_for_null:
            used, at = np.unique(partitions, return_inverse=True)
            found = [known.setdefault(self.identities[each], len(known)) for each in used.tolist()]
            return np.array(found, dtype=np.int64)[at]
        if "place" in piece.column_names:
            encoded = piece["place"].combine_chunks().dictionary_encode()
            before, codes = encoded.dictionary.to_pylist(), to_numpy(encoded.indices)[hits].astype(np.int64)
        else:
            before, codes = [piece.schema.metadata[b"place"].decode()], np.zeros(len(hits), dtype=np.int64)
        pairs, at = np.unique(partitions * len(before) + codes, return_inverse=True)
        count = len(before)
        found = [self._kept(self.identities[pair // count], before[pair % count], known) for pair in pairs.tolist()]
        return np.array(found, dtype=np.int64)[at]

    def _kept(self, identity: str, before: str, known: dict[str, int]) -> int:
        """Return the folder of a row with the values of the source, or those of its old folder where these are NULL."""
        new, old = (parse_hive_partition_path(f"{folder}/x", self.columns) for folder in (identity, before))
        values = [old[name] if new[name] is None else new[name] for name in self.columns]
        folder = partition_folder(self.columns, values)
        return STAYS if folder == before else known.setdefault(folder, len(known))


def store_moved(
    folder: TableFolder,
    parts: RowNumbers,
    rows: RowNumbers,
    files: RowNumbers,
    positions: RowNumbers,
    folders: RowNumbers,
    names: Iterable[str],
) -> NewPlaces:
    """Write rows that move, and return their counts; ``names`` are the new folders by their numbers."""
    order = np.lexsort((positions, folders, files))
    unique, starts, counts = np.unique(files[order] << 32 | folders[order], return_index=True, return_counts=True)
    columns = [rows.astype(np.uint32), files.astype(np.int32), positions.astype(np.uint32), folders.astype(np.int32)]
    return NewPlaces(
        tuple(names),
        np.stack([unique >> 32, unique & 0xFFFFFFFF, counts], axis=1),
        sums_of_runs(positions[order], starts),
        write_by_part(folder, parts, columns, ["row", "file", "position", "folder"]),
    )

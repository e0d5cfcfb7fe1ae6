"""The rows of a source that only workers know, and the new files and changes of files that they are sent to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from fsspeckit.core.dataset.source_keys import PartitionRows
from fsspeckit.core.kernels.exchange.route_moves import MoveRoutes
from fsspeckit.core.kernels.exchange.route_rows import SourceRoutes
from fsspeckit.core.kernels.exchange.stored_rows import StoredRows
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.planning.merge_request import FileChange


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedRows:
    """The routes of source rows to tasks.

    Attributes:
        inserts: The new rows of each partition, in the order in which their files are planned.
        partitions: The number of each of these partitions in the routes.
        routes: The routes of the rows of each part of the source.
        folder: Where the decisions about rows are.
        source: The schema of the source.
        file_rows: The most rows of a new file.
        files: The changes of files.
        others: For each file, the rows of which those without a match are removed, if they are not all others.
        moves: The routes of source rows to tasks that write moved rows which keep values.
    """

    inserts: tuple[tuple[PartitionRows, range], ...]
    partitions: tuple[int, ...]
    routes: tuple[SourceRoutes, ...]
    folder: TableFolder
    source: pa.Schema
    file_rows: int
    files: tuple[FileChange, ...] = ()
    others: Sequence[StoredRows | None] = ()
    moves: MoveRoutes = field(default_factory=MoveRoutes)

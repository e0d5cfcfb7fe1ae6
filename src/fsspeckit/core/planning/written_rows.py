"""Find the partitions of the rows of a write; workers find them if the source is too large for one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import PartitionRows, split_by_partition
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.exchange.partition_source import PartitionSource
from fsspeckit.core.kernels.exchange.route_moves import MovedPlaces
from fsspeckit.core.kernels.exchange.route_rows import SourceRoutes
from fsspeckit.core.kernels.exchange.summarize_source import CheckCasts, raise_first_failure
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.model import NO_ROWS, RowNumbers
from fsspeckit.core.planning.exchange.routed_rows import ExchangedRows
from fsspeckit.core.planning.exchange.source_summary import cast_fields
from fsspeckit.core.progress import Reporter


@dataclass(frozen=True, slots=True, eq=False)
class WrittenRows:
    """The rows of each partition, in the order of their first rows.

    ``values`` returns the values of a partition column. ``exchanged`` has the routes of rows to tasks, if only workers
    know the rows.
    """

    groups: Sequence[PartitionRows]
    values: Callable[[str], pa.ChunkedArray]
    exchanged: ExchangedRows | None = None


def plan_rows(
    engine: Engine,
    source: Source,
    body: pa.Schema,
    columns: Sequence[str],
    existing: Mapping[str, str],
    file_rows: int,
    path: str,
    reporter: Reporter,
) -> WrittenRows:
    """Find the partitions of all rows, by some columns. Raise if a value does not fit the schema of the files.

    ``existing`` maps partitions to folders.
    """
    folder = source.exchange_folder
    if folder is None:
        source.check_casts(body, operation="write", path=path)
        split = split_by_partition(source, range(source.rows), columns, existing)
        return WrittenRows(split, lambda name: source.columns([name])[name])
    wanted = cast_fields(source.schema, body)
    if wanted.names:
        check = CheckCasts(wanted, "write", path)
        raise_first_failure(engine.map(check, source.pieces(wanted.names), lambda _: None))
    found = _partitioned(engine, source, folder, columns, reporter) if columns else _unpartitioned(source)
    before, totals = np.cumsum(found.counts, axis=0) - found.counts, found.counts.sum(axis=0).tolist()
    groups = tuple(
        PartitionRows(existing.get(name, name), name, range(total))
        for name, total in zip(found.names, totals, strict=True)
    )
    rows = ExchangedRows(
        tuple((group, range(len(group.rows))) for group in groups),
        tuple(range(len(groups))),
        tuple(replace(route, ranks=ranks) for route, ranks in zip(found.routes, before, strict=True)),
        folder,
        source.schema,
        file_rows,
    )
    return WrittenRows(groups, found.values.__getitem__, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Partitions:
    """The partitions of a source, the number of rows by part and partition, and the routes without ranks."""

    names: Sequence[str]
    counts: RowNumbers
    routes: Sequence[SourceRoutes]
    values: Mapping[str, pa.ChunkedArray]


def _unpartitioned(source: Source) -> _Partitions:
    counts = [chunk.rows for chunk in source.chunks()]
    pieces = zip(source.pieces(source.schema.names), counts, strict=True)
    routes = [SourceRoutes(piece, (), NO_ROWS, MovedPlaces(), every=count) for piece, count in pieces]
    return _Partitions([""], np.array(counts, dtype=np.int64).reshape(-1, 1), routes, {})


def _partitioned(
    engine: Engine, source: Source, folder: TableFolder, columns: Sequence[str], reporter: Reporter
) -> _Partitions:
    read = source.pieces(columns)
    on_done = reporter.stage("find partitions", len(read), rows=source.rows)
    parts = engine.map(PartitionSource(folder, tuple(columns)), read, on_done)
    numbers: dict[str, int] = {}
    maps = [
        np.array([numbers.setdefault(name, len(numbers)) for name in part.folders], dtype=np.int64) for part in parts
    ]
    counts = np.zeros((len(parts), len(numbers)), dtype=np.int64)
    routes = []
    for number, (part, map_) in enumerate(zip(parts, maps, strict=True)):
        counts[number, map_] = part.counts
    for piece, part, map_ in zip(source.pieces(source.schema.names), parts, maps, strict=True):
        routes.append(SourceRoutes(piece, part.places, NO_ROWS, MovedPlaces(), map_))
    values = {name: pa.chunked_array([part.values[at] for part in parts]) for at, name in enumerate(columns)}
    return _Partitions(list(numbers), counts, routes, values)

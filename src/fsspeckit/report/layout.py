"""Analyse the layout of a dataset from its footers: sizes, row groups, codecs, partitions, columns.

`load_all_statistics` reads the footers; everything else is pure functions over the `Snapshot`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from fsspeckit.common.int96 import int96_columns
from fsspeckit.core.commit.replay import JournalStatus
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot
from fsspeckit.core.model import DataFile
from fsspeckit.core.operations.read import existing_view
from fsspeckit.core.progress import Progress, reporting
from fsspeckit.core.result_view import ResultMapping, readable_bytes
from fsspeckit.report.overlap import Overlap, Range, file_range, has_bounds, overlap

MB = 2**20
_EDGES = (0, 1 * MB, 8 * MB, 32 * MB, 128 * MB, 512 * MB)


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """One column: its range, the overlap of files, and how many files lack statistics or have a Bloom filter."""

    name: str
    type: str
    lower: str | None
    upper: str | None
    overlap: Overlap | None
    files_without_statistics: int
    files_with_bloom_filter: int


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """One folder of data files."""

    partition: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout(ResultMapping):
    """The layout of a dataset.

    ``skew`` is the size of the largest partition divided by the mean size, ``other_files`` the visible files that are
    not Parquet.
    """

    path: str
    rows: int
    files: int
    bytes: int
    size_histogram: Mapping[str, int]
    row_groups: int
    rows_per_row_group: int
    uncompressed_per_row_group: int
    codecs: Mapping[str, int]
    schema: Mapping[str, str]
    partition_columns: tuple[str, ...]
    partitions: tuple[PartitionLayout, ...]
    skew: float
    columns: tuple[ColumnLayout, ...]
    journal: JournalStatus
    int96: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()

    @property
    def pending_journal(self) -> bool:
        """Whether the journal needs recovery."""
        return self.journal.needs_recovery

    def _names(self) -> tuple[str, ...]:
        return (*ResultMapping._names(self), "pending_journal")


def load_all_statistics(place: Place, progress: Progress = None) -> Snapshot:
    """Return the snapshot of a dataset with the statistics of every column.

    Each footer is read once if all files have the columns of the first file, otherwise twice.
    """
    view = existing_view(place)
    first = load_snapshot(place.storage, replace(view, files=view.files[:1]))
    names = first.schema.names if first.schema is not None else []
    with reporting("inspect", progress) as reporter:

        def load(columns: Sequence[str]) -> Snapshot:
            on_done = reporter.stage("footers", len(view.files))
            return load_snapshot(place.storage, view, stats_for=columns, on_done=on_done, read=())

        snapshot = load(names)
        all_names = snapshot.schema.names if snapshot.schema is not None else []
        return snapshot if set(all_names) <= set(names) else load(all_names)


def analyse(snapshot: Snapshot, path: str, journal: JournalStatus) -> Layout:
    """Return the layout of a snapshot."""
    files = snapshot.files
    folders = by_folder(files)
    partitions = tuple(
        PartitionLayout(folder, len(part), sum(f.rows for f in part), sum(f.size for f in part))
        for folder, part in sorted(folders.items())
    )
    sizes = [part.bytes for part in partitions]
    groups = sum(len(file.row_groups) for file in files)
    schema = snapshot.schema if snapshot.schema is not None else pa.schema([])
    return Layout(
        path=path,
        rows=snapshot.rows,
        files=len(files),
        bytes=sum(file.size for file in files),
        size_histogram=histogram([file.size for file in files]),
        row_groups=groups,
        rows_per_row_group=snapshot.rows // max(groups, 1),
        uncompressed_per_row_group=sum(file.uncompressed for file in files) // max(groups, 1),
        codecs=dict(Counter(file.codec.lower() or "none" for file in files)),
        schema={field.name: str(field.type) for field in schema},
        partition_columns=snapshot.partition_columns,
        partitions=partitions,
        skew=round(max(sizes) * len(sizes) / sum(sizes), 2) if sum(sizes) else 1.0,
        columns=tuple(_column(field, folders) for field in schema if not pa.types.is_nested(field.type)),
        journal=journal,
        int96=int96_columns(schema),
        other_files=tuple(entry.path for entry in snapshot.view.others),
    )


def by_folder(files: Sequence[DataFile]) -> dict[str, list[DataFile]]:
    """Group files by their folder."""
    folders: dict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        folders[file.path.rpartition("/")[0]].append(file)
    return dict(folders)


def histogram(sizes: Sequence[int]) -> dict[str, int]:
    """Return the number of files in each size class.

    Examples:
        >>> histogram([100, 2 * MB, 3 * MB])
        {'under 1.0 MB': 1, '1.0 MB to 8.0 MB': 2}
    """
    names = [f"{readable_bytes(low)} to {readable_bytes(high)}" for low, high in pairwise(_EDGES)]
    names[0] = f"under {readable_bytes(_EDGES[1])}"
    names.append(f"over {readable_bytes(_EDGES[-1])}")
    counts = Counter(sum(size >= edge for edge in _EDGES) - 1 for size in sizes)
    return {name: counts[number] for number, name in enumerate(names) if counts[number]}


def _column(field: pa.Field, folders: Mapping[str, Sequence[DataFile]]) -> ColumnLayout:
    name = field.name
    files = [file for part in folders.values() for file in part if file.rows]
    natives = {file.stats[name].native for file in files if name in file.stats}
    native = next(iter(natives), None)
    ranges = [_ranges(part, name) for part in folders.values()] if _share_an_order(natives) else []
    flat = [bounds for part in ranges for bounds in part]
    return ColumnLayout(
        name=name,
        type=str(field.type),
        lower=_readable(min(low for low, _ in flat), native) if flat else None,
        upper=_readable(max(high for _, high in flat), native) if flat else None,
        overlap=overlap(ranges),
        files_without_statistics=sum(name in file.schema.names and not has_bounds(file, name) for file in files),
        files_with_bloom_filter=sum(name in file.blooms for file in files),
    )


def _ranges(files: Sequence[DataFile], name: str) -> list[Range]:
    return [bounds for file in files if file.rows and (bounds := file_range(file, name)) is not None]


def _share_an_order(natives: set[pa.DataType | None]) -> bool:
    """Return whether raw bounds are comparable: all have one type (time units included), or all are numbers."""
    numbers = all(
        native is not None and (pa.types.is_integer(native) or pa.types.is_floating(native)) for native in natives
    )
    return len(natives) == 1 or numbers


def _readable(value: Any, native: pa.DataType | None) -> str:
    """Format a raw bound as text, a number or a time."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if native is None or not pa.types.is_temporal(native) or pa.types.is_duration(native):
        return f"{value / 10**native.scale}" if native is not None and pa.types.is_decimal(native) else str(value)
    whole = pa.int32() if native.bit_width == 32 else pa.int64()
    plain = pa.timestamp(native.unit) if pa.types.is_timestamp(native) else native
    return str(pa.array([value], whole).cast(plain).cast(pa.string())[0])

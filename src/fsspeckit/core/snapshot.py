"""The state of a dataset at one moment: its files, and what their footers say.

The sole reader of footers. Each footer is read once, in parallel; only what planning needs is kept of it. A file that
cannot be read is an error that names it, raised before anything is written. Nothing here writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from posixpath import basename, dirname
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import to_numpy, valid_mask
from fsspeckit.common.errors import DamagedFileError, FsspeckitError, PartitionError, SchemaMismatchError
from fsspeckit.common.partitions import parse_hive_partition_path
from fsspeckit.common.schema import unify_schemas
from fsspeckit.core.commit import View, ViewFile, open_file
from fsspeckit.core.footer import INT96_UNIT, open_reader, read_footer
from fsspeckit.core.mark import read_mark, unmarked, unmarked_schema
from fsspeckit.core.model import ColumnStats, DataFile, PartitionValues
from fsspeckit.core.storage import Storage

_THREADS = 64
_PROBE = 16
_SLOW = 0.002  # seconds for a footer; from the page cache it takes a tenth of that
_EXACT_TEXT_WRITERS = ("parquet-cpp", "DuckDB")
_SURELY_WHOLE = 16
_DIGITS_128 = 38
_KEPT_FOOTERS = 8 * 1024 * 1024  # bytes of footers; parsed, they take several times that
_TAIL = 12  # bytes around a footer: its length, and the file's magic at both ends


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All data files of a dataset with one schema over them."""

    root: str
    view: View
    files: tuple[DataFile, ...]
    schema: pa.Schema | None
    partition_columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows in the dataset."""
        return sum(file.rows for file in self.files)

    def full_path(self, path: str) -> str:
        """A file's path as users see it."""
        return f"{self.root}/{path}"


def load_snapshot(
    storage: Storage,
    view: View,
    *,
    stats_for: Sequence[str] = (),
    empty_may_differ: bool = False,
    keep_footers: bool = False,
    on_done: Callable[[int], None] | None = None,
) -> Snapshot:
    """Read all footers of the view's files; with ``empty_may_differ``, files without rows need not fit the others.

    With ``keep_footers``, as many as fit into little memory are kept, for files that will be read as a whole.
    ``on_done`` is told of every footer that is read.
    """
    shapes = _Shapes(tuple(stats_for), _KEPT_FOOTERS if keep_footers else 0)
    columns, values = partition_layout([file.path for file in view.files])
    read = _read_footers(storage, view.files, shapes, on_done)
    files = (
        tuple(replace(file, partition=value) for file, value in zip(read, values, strict=True))
        if columns
        else tuple(read)
    )
    schema = joint_schema(files, view.root) if empty_may_differ else _unified(files, view.root)
    return Snapshot(view.root, view, files, schema, columns)


def joint_schema(files: Sequence[DataFile], root: str) -> pa.Schema | None:
    """One schema over all files that hold rows; files without rows add what fits."""
    filled = [file for file in files if file.rows]
    schema = _unified(filled or files[:1], root)
    for empty in {id(file.schema): file.schema for file in files if not file.rows}.values():
        try:
            schema = unify_schemas([schema, empty])
        except SchemaMismatchError:
            continue
    return schema


def _unified(files: Sequence[DataFile], root: str) -> pa.Schema | None:
    """One schema over all files; where two have none in common, the error names both."""
    firsts = list({id(file.schema): file for file in reversed(files)}.values())[::-1]
    try:
        return unify_schemas(file.schema for file in firsts) if firsts else None
    except SchemaMismatchError as error:
        for number, file in enumerate(firsts):
            for other in firsts[:number]:
                unify_schemas([other.schema, file.schema], operation=f"joining {other.path} and {file.path}", path=root)
        raise error


def view_of_file(storage: Storage, path: str) -> View | None:
    """A path to one file, seen as a dataset of that file; ``None`` where the path is no file."""
    found = storage.stat(path)
    if found is None or found.size < 0:
        return None
    file = ViewFile(basename(path), path, found.size, found.stamp)
    return View(dirname(path), exists=True, head=0, files=(file,), side_files=(), pending=False)


def _read_footers(
    storage: Storage, files: Sequence[ViewFile], shapes: _Shapes, on_done: Callable[[int], None] | None
) -> list[DataFile]:
    """Parsing holds the interpreter lock, so threads pay only where they wait: on remote storage or a cold disk."""

    def one(file: ViewFile) -> DataFile:
        found = _read_footer(storage, file, shapes)
        if on_done is not None:
            on_done(1)
        return found

    probe = files[:_PROBE] if storage.is_local else files[:1]
    started = time.perf_counter()
    read = [one(file) for file in probe]
    rest = files[len(probe) :]
    waits = not storage.is_local or time.perf_counter() - started > _SLOW * len(probe)
    if not waits or len(rest) < 2:
        return read + [one(file) for file in rest]
    with ThreadPoolExecutor(min(_THREADS, len(rest))) as pool:
        return read + list(pool.map(one, rest))


def partition_layout(paths: Sequence[str]) -> tuple[tuple[str, ...], list[PartitionValues | None]]:
    """Partition columns of a dataset from its folders, and each file's values (none for a file outside them)."""
    folders = [dirname(path) for path in paths]
    parsed = {folder: parse_hive_partition_path(f"{folder}/x") for folder in dict.fromkeys(folders)}
    layouts = {tuple(values) for values in parsed.values() if values}
    if len(layouts) > 1:
        shown = " and ".join(sorted("/".join(layout) for layout in layouts)[:2])
        raise PartitionError(
            f"the dataset's folders disagree on the partition columns ({shown}); move the odd files away"
        )
    columns = next(iter(layouts), ())
    found = {folder: tuple(values.values()) if values else None for folder, values in parsed.items()}
    return columns, [found[folder] for folder in folders]


@contextmanager
def naming_damage(operation: str, path: str) -> Iterator[None]:
    """Turn what pyarrow raises on a broken file into an error that names it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, pa.ArrowMemoryError) as error:
        if isinstance(error, FsspeckitError):
            raise
        raise DamagedFileError(
            f"{operation}: {path} cannot be read as Parquet ({error}); restore or move the file, then run again"
        ) from error


def open_parquet(
    storage: Storage,
    file: ViewFile | DataFile,
    *,
    verify: bool = False,
    partial: bool = False,
    coded: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
) -> pq.ParquetFile:
    """Open a data file as it was listed; one replaced since is a FileNotFoundError.

    With ``verify`` every page read is checked against its checksum, where it has one. ``partial`` says that few columns
    are wanted: their ranges are read as such, or the disk's read-ahead would fetch their neighbours too. Columns in
    ``coded`` are read as dictionary codes. ``metadata``, or a footer that is kept, saves reading the footer again.
    """
    return pq.ParquetFile(
        open_file(storage, file),
        metadata=metadata or (file.parsed if isinstance(file, DataFile) else None),
        read_dictionary=list(coded),
        coerce_int96_timestamp_unit=INT96_UNIT,
        pre_buffer=partial or not storage.is_local,
        page_checksum_verification=verify,
    )


def open_rows(storage: Storage, file: DataFile, coded: Sequence[str]) -> pq.ParquetReader:
    """Open a data file like `open_parquet`, to read and verify whole row groups of it."""
    return open_reader(
        open_file(storage, file),
        metadata=file.parsed,
        read_dictionary=list(coded),
        pre_buffer=not storage.is_local,
        page_checksum_verification=True,
    )


def refuse_nanoseconds(storage: Storage, file: DataFile, row_groups: Iterable[int]) -> None:
    """Raise where an INT96 timestamp has digits below the microsecond: they would be lost."""
    for group in row_groups if file.int96 else ():
        _refuse_nanoseconds(storage, file, group)


def _refuse_nanoseconds(storage: Storage, file: DataFile, group: int) -> None:
    with open_parquet(storage, file) as reader, pq.ParquetFile(open_file(storage, file)) as finer:
        coarse, fine = (source.read_row_group(group, file.int96) for source in (reader, finer))
    for name in file.int96:
        if pa.types.is_nested(coarse[name].type):
            continue
        digits = to_numpy(fine[name]) - to_numpy(coarse[name]) * 1000
        if (valid_mask(fine[name]) & (digits > 0) & (digits < 1000)).any():
            raise SchemaMismatchError(
                f"column {name!r} of {file.path} holds INT96 timestamps with nanoseconds, which cannot be rewritten "
                "without loss; rewrite the file with 64-bit timestamps first"
            )


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Where a column's statistics are in a footer, and the Arrow type their raw values have."""

    index: int
    native: pa.DataType | None


@dataclass(frozen=True, slots=True)
class _Shape:
    parquet: pq.ParquetSchema
    metadata: dict[bytes, bytes] | None
    arrow: pa.Schema
    int96: tuple[str, ...]
    leaves: dict[str, _Leaf]
    paths: tuple[str, ...]


class _Shapes:
    """The few distinct schemas among many files, each converted to Arrow once, and room for footers to be kept."""

    def __init__(self, stats_for: tuple[str, ...], room: int) -> None:
        self._stats_for, self._room = stats_for, room
        self._known: list[_Shape] = []

    def of(self, file: pq.ParquetReader, notes: Mapping[bytes, bytes] | None) -> _Shape:
        meta, metadata = file.metadata, unmarked(notes)
        for shape in self._known:
            if meta.schema.equals(shape.parquet) and metadata == shape.metadata and _fits(meta.schema, shape.paths):
                return shape
        arrow = unmarked_schema(file.schema_arrow)
        is_nested = any(pa.types.is_nested(type_) for type_ in arrow.types)
        paths = tuple(meta.schema.column(i).path for i in range(len(meta.schema))) if is_nested else ()
        leaves = {name: leaf for name in self._stats_for if (leaf := _leaf(arrow, meta.schema, name)) is not None}
        shape = _Shape(meta.schema, metadata, arrow, _int96(arrow, meta.schema), leaves, paths)
        self._known.insert(0, shape)
        return shape

    def kept(self, meta: pq.FileMetaData) -> pq.FileMetaData | None:
        """The footer, if there is room for it."""
        self._room -= meta.serialized_size
        return meta if self._room >= 0 else None


def _fits(schema: pq.ParquetSchema, paths: Sequence[str]) -> bool:
    """Whether leaves have these paths, where there are any: pyarrow compares only the last part of them."""
    return all(schema.column(i).path == path for i, path in enumerate(paths))


def _read_footer(storage: Storage, file: ViewFile, shapes: _Shapes) -> DataFile:
    with naming_damage("reading the footer", file.path):
        reader, _ = read_footer(storage, file.location, file.size)
        meta = reader.metadata
        notes = meta.metadata
        shape = shapes.of(reader, notes)
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        stats, blooms = {}, {}
        for name, leaf in shape.leaves.items():
            chunks = [group.column(leaf.index) for group in groups]
            stats[name] = _column_stats(chunks, leaf.native, meta.created_by or "")
            offsets = tuple((c.bloom_filter_offset, c.bloom_filter_length) for c in chunks)
            if any(offset is not None for offset, _ in offsets):
                blooms[name] = tuple(None if at is None or size is None else (at, size) for at, size in offsets)
        return DataFile(
            path=file.path,
            location=file.location,
            size=file.size,
            stamp=file.stamp,
            rows=meta.num_rows,
            row_groups=tuple(group.num_rows for group in groups),
            uncompressed=sum(group.total_byte_size for group in groups),
            codec=groups[0].column(0).compression if groups and meta.num_columns else "",
            schema=shape.arrow,
            partition=None,
            stats=stats,
            blooms=blooms,
            mark=read_mark(notes, meta.num_rows),
            footer=meta.serialized_size + _TAIL,
            int96=shape.int96,
            parsed=shapes.kept(meta),
        )


def _column_stats(chunks: Sequence[Any], native: pa.DataType | None, writer: str) -> ColumnStats:
    lower: list[Any] = []
    upper: list[Any] = []
    nulls: list[int | None] = []
    for chunk in chunks:
        found = chunk.statistics
        nulls.append(found.null_count if found is not None and found.has_null_count else None)
        bounds = (
            (found.min_raw, found.max_raw) if native is not None and found is not None and found.has_min_max else None
        )
        if bounds is not None and isinstance(bounds[0], bytes):
            if native == pa.float32():
                bounds = _half(bounds[0]), _half(bounds[1])
            elif not _whole_text(bounds, writer):
                bounds = None
        lower.append(None if bounds is None else bounds[0])
        upper.append(None if bounds is None else bounds[1])
    return ColumnStats(tuple(lower), tuple(upper), tuple(nulls), native)


def _half(raw: bytes) -> float:
    return float(np.frombuffer(raw, "<f2")[0])


def _whole_text(bounds: tuple[bytes, bytes], writer: str) -> bool:
    """Some writers cut long bounds and pyarrow does not show the flag that says so."""
    return writer.startswith(_EXACT_TEXT_WRITERS) or max(map(len, bounds)) < _SURELY_WHOLE


def leaf_count(type_: pa.DataType) -> int:
    """How many Parquet leaf columns a type has."""
    if pa.types.is_dictionary(type_):
        return leaf_count(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return leaf_count(type_.storage_type)
    if pa.types.is_nested(type_):
        return sum(leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def _int96(arrow: pa.Schema, parquet: pq.ParquetSchema) -> tuple[str, ...]:
    """Columns that are, or hold, timestamps of 96 bits."""
    leaves = [parquet.column(i) for i in range(len(parquet))]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    return tuple(dict.fromkeys(path if path in arrow.names else path.split(".")[0] for path in paths))


def _leaf(arrow: pa.Schema, parquet: pq.ParquetSchema, name: str) -> _Leaf | None:
    at = arrow.get_all_field_indices(name)
    if len(at) != 1 or pa.types.is_nested(arrow.field(at[0]).type):
        return None
    index = sum(leaf_count(arrow.field(i).type) for i in range(at[0]))
    column = parquet.column(index)
    return _Leaf(index, native_type(column.physical_type, str(column.logical_type), arrow.field(at[0]).type))


def native_type(physical: str, logical: str, arrow: pa.DataType) -> pa.DataType | None:
    """The Arrow type of raw statistics, or ``None`` where they cannot be used as proof."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if physical in ("INT32", "INT64"):
        return _native_integer(physical, logical, arrow)
    if physical in ("FLOAT", "DOUBLE") and pa.types.is_floating(arrow):
        return pa.float32() if physical == "FLOAT" else pa.float64()
    if physical == "BOOLEAN":
        return pa.bool_()
    if physical == "BYTE_ARRAY" and not pa.types.is_decimal(arrow):
        return pa.binary()
    if physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_decimal(arrow):
        wide = pa.decimal256 if arrow.precision > _DIGITS_128 else pa.decimal128
        return wide(arrow.precision, arrow.scale)
    return pa.float32() if physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_float16(arrow) else None


_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


def _native_integer(physical: str, logical: str, arrow: pa.DataType) -> pa.DataType | None:
    unit = next((short for long, short in _UNITS.items() if f"timeUnit={long}" in logical), None)
    if pa.types.is_timestamp(arrow):
        return None if unit is None else pa.timestamp(unit, arrow.tz)
    if pa.types.is_time(arrow):
        return None if unit is None else (pa.time32(unit) if unit == "ms" else pa.time64(unit))
    if pa.types.is_date(arrow):
        return pa.date32() if physical == "INT32" else None
    if pa.types.is_integer(arrow):
        unsigned = pa.types.is_unsigned_integer(arrow)
        if physical == "INT32":
            return pa.uint32() if unsigned else pa.int32()
        return pa.uint64() if unsigned else pa.int64()
    if pa.types.is_decimal(arrow) and arrow.precision <= 18:
        return pa.decimal128(arrow.precision, arrow.scale)
    return arrow if pa.types.is_duration(arrow) else None

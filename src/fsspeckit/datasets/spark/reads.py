"""A DataFrame that does nothing but read local Parquet files: executors read the same splits of them with Arrow.

Spark would decode them in Java, make rows of columns and columns of rows again: two fifths of a large merge.
Taken are only queries and files whose values Arrow reads exactly as Spark does; where anything is in doubt, or Arrow
raises an error, Spark reads them itself.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pat

from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark.shared import SpillFile, write_spill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCAN = "org.apache.spark.sql.execution.FileSourceScanExec"
_FORMAT = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_LISTED = "org.apache.spark.sql.execution.datasources.InMemoryFileIndex"
_MOST_FILES = 256  # asking Spark about each takes a few calls
_BATCH_ROWS, _BATCH_BYTES = 4096, 64 * 1024 * 1024
_GAUGED_ROWS = 400
_ROW_BYTES = 4096  # of wider rows Spark hands over few at a time, and making rows is the lesser part of it
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_ALIKE = (
    pat.is_boolean,
    pat.is_signed_integer,
    pat.is_float32,
    pat.is_float64,
    pat.is_string,
    pat.is_binary,
    pat.is_date32,
    pat.is_timestamp,
    pat.is_decimal128,
)
_VERSION, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"
_NEW_CALENDAR = b"3.0.0"  # compared as texts, as Spark does
_SUMS_AT = 8  # after a magic word and how many bytes each sum is of


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a file as Spark listed it; row groups whose middle lies there belong to it."""

    path: str
    start: int
    length: int
    size: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Split:
    """What one task of Spark's scan would read, the schema of its rows, and where they go."""

    stretches: tuple[Stretch, ...]
    schema: pa.Schema
    same_calendar: bool
    storage: Storage
    folder: str


def splits_of(frame: DataFrame, schema: pa.Schema, storage: Storage, folder: str) -> list[Split] | None:
    """The splits of a DataFrame that reads files and nothing else; None for any other."""
    if not len(schema) or not all(any(is_it(type_) for is_it in _ALIKE) for type_ in schema.types):
        return None
    scan = frame.select("*")._jdf.queryExecution().sparkPlan()  # planned anew: it may be cached since
    if not _is_plain(scan, schema):
        return None
    parts = [[_stretch(file) for file in part.files()] for part in scan.inputRDD().partitions()]
    found = [stretch for part in parts for stretch in part]
    conf = frame.sparkSession.conf
    if not _are_whole(found) or conf.get("spark.sql.parquet.fieldId.read.enabled") != "false":
        return None
    same_calendar = conf.get("spark.sql.parquet.datetimeRebaseModeInRead") == "CORRECTED"
    return [Split(tuple(part), schema, same_calendar, storage, folder) for part in parts]


def _is_plain(scan: Any, schema: pa.Schema) -> bool:
    """Whether a physical plan reads listed Parquet files with no option, folder column or condition."""
    if scan.getClass().getName() != _SCAN:
        return False
    relation = scan.relation()
    options, listed = relation.options(), relation.location()
    return (
        relation.fileFormat().getClass().getName() == _FORMAT
        and listed.getClass().getName() == _LISTED
        and len(listed.inputFiles()) <= _MOST_FILES
        and (options.isEmpty() or (options.size() == 1 and options.contains("path")))
        and not relation.partitionSchema().fields()
        and scan.dataFilters().isEmpty()
        and scan.partitionFilters().isEmpty()
        and not scan.bucketedScan()
        and [field.name() for field in scan.requiredSchema().fields()] == schema.names
        and scan.output().size() == len(schema)
    )


def _stretch(file: Any) -> Stretch:
    address = urlsplit(file.urlEncodedPath())
    is_here = address.scheme == "file" and not address.netloc
    path = unquote(address.path) if is_here else ""
    return Stretch(path, file.start(), file.length(), file.fileSize(), file.modificationTime())


def _are_whole(stretches: Sequence[Stretch]) -> bool:
    """Whether there are some, all on this machine, and those of each file are all of it and do not overlap."""
    ends: dict[str, int] = {}
    for stretch in sorted(stretches, key=lambda stretch: (stretch.path, stretch.start)):
        if not stretch.path or stretch.start != ends.get(stretch.path, 0):
            return False
        ends[stretch.path] = stretch.start + stretch.length
    return bool(ends) and all(ends[stretch.path] == stretch.size for stretch in stretches)


def spill_split(split: Split) -> tuple[bool, SpillFile | None]:
    """Write the rows of a split to a file; False where Spark has to read them itself."""
    try:
        if not all(_is_sure(stretch, split) for stretch in split.stretches):
            return False, None
        return True, write_spill(_batches(split), split.schema, split.storage, split.folder)
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError):
        return False, None


def _batches(split: Split) -> Iterator[pa.RecordBatch]:
    names = split.schema.names
    for stretch in split.stretches:
        with _opened(stretch) as reader:
            groups = [group for group, at in enumerate(_middles(reader.metadata)) if _holds(stretch, at)]
            for batch in reader.iter_batches(_BATCH_ROWS, groups, names, use_threads=False) if groups else ():
                table = pa.Table.from_batches([batch]).select(names).cast(split.schema)
                _check_values(table)
                yield from table.to_batches()


def _opened(stretch: Stretch) -> pq.ParquetFile:
    return pq.ParquetFile(pa.OSFile(stretch.path), page_checksum_verification=True, pre_buffer=False)


def _check_values(table: pa.Table) -> None:
    """Raise for rows that take much memory, and for numbers with more digits than their type has."""
    if table.nbytes > _BATCH_BYTES:
        raise pa.ArrowInvalid("its rows are too wide")
    for column in table.columns:
        if pat.is_decimal(column.type):
            column.validate(full=True)


def _holds(stretch: Stretch, middle: int) -> bool:
    return stretch.start <= middle < stretch.start + stretch.length


def _middles(meta: pq.FileMetaData) -> list[int]:
    """The middle byte of each row group, by which it belongs to a split."""
    found = []
    for group in (meta.row_group(i) for i in range(meta.num_row_groups)):
        chunks = [group.column(i) for i in range(group.num_columns)]
        start = min(chunks[0].data_page_offset, chunks[0].dictionary_page_offset or chunks[0].data_page_offset)
        found.append(start + sum(chunk.total_compressed_size for chunk in chunks) // 2)
    return found


def _is_sure(stretch: Stretch, split: Split) -> bool:
    """Whether the file is the one that was listed, and Spark sees the same values in it as Arrow."""
    if not _is_as_listed(stretch):
        return False
    with _opened(stretch) as reader:
        meta, names = reader.metadata, split.schema.names
        if not _has_same_types(reader.schema_arrow, split.schema) or not _has_same_times(meta, split):
            return False
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        codecs = {group.column(i).compression for group in groups for i in range(group.num_columns)}
        widths = [group.total_byte_size // max(1, group.num_rows) for group in groups]
        first = next(reader.iter_batches(_GAUGED_ROWS, columns=names, use_threads=False), None)
        return (
            codecs <= _CODECS
            and all(0 <= middle < stretch.size for middle in _middles(meta))
            and max(widths, default=0) <= _ROW_BYTES
            and (first is None or first.nbytes <= _ROW_BYTES * _GAUGED_ROWS)
        )


def _is_as_listed(stretch: Stretch) -> bool:
    """Whether nobody wrote the file since, and Hadoop would not find that its checksums are those of another one."""
    now, (folder, name) = os.stat(stretch.path), os.path.split(stretch.path)
    if (now.st_size, now.st_mtime_ns // 1_000_000) != (stretch.size, stretch.changed_ms):
        return False
    sums = f"{folder}/.{name}.crc"
    return not os.path.exists(sums) or os.stat(sums).st_mtime_ns >= now.st_mtime_ns or _has_sums(stretch, sums)


def _has_sums(stretch: Stretch, sums: str) -> bool:
    """Whether these are the checksums of the bytes: Hadoop itself writes them a moment before the last of the bytes."""
    with open(sums, "rb") as told, open(stretch.path, "rb") as file:
        step = int.from_bytes(told.read(_SUMS_AT)[4:], "big")
        if not step:
            return False
        first, end = stretch.start // step, -(-(stretch.start + stretch.length) // step)
        told.seek(_SUMS_AT + 4 * first)
        file.seek(first * step)
        return told.read(4 * (end - first)) == b"".join(
            zlib.crc32(file.read(step)).to_bytes(4, "big") for _ in range(first, end)
        )


def _has_same_times(meta: pq.FileMetaData, split: Split) -> bool:
    """Whether dates and times are counted as today, and not by an older calendar or in 96 bits."""
    notes, leaves = meta.metadata or {}, (meta.schema.column(i) for i in range(len(meta.schema)))
    if _LEGACY in notes or any(leaf.physical_type == "INT96" and leaf.path in split.schema.names for leaf in leaves):
        return False
    return notes[_VERSION] >= _NEW_CALENDAR if _VERSION in notes else split.same_calendar


def _has_same_types(own: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether all columns are there, once whatever the case of their names, with the types that Spark told."""
    distinct = len({name.lower() for name in own.names}) == len(own.names)
    return distinct and all(
        field.name in own.names and _told(own.field(field.name).type) == field.type for field in wanted
    )


def _told(type_: pa.DataType) -> pa.DataType:
    """The type that Spark makes of a column which Arrow reads as this one, where both are the same but for a name."""
    if pat.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pat.is_large_string(type_):
        return pa.string()
    return pa.binary() if pat.is_large_binary(type_) else type_

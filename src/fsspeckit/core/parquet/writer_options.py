"""How a Parquet file is written: like the file it replaces, or, for a new file, as its first rows suggest.

Owns every option passed to the Parquet writer. A dictionary that was tried and given up costs more than the rest of
the encoding, so one is asked for only where the input shows that it pays. Page checksums are always written.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Sequence
from math import ceil, log, log2
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.parquet.footer import PHYSICAL, Chunk, Footer

WriterOptions = dict[str, Any]

DEFAULT_CODEC = "snappy"
_WRITTEN_AS = {"": "none", "UNCOMPRESSED": "none", "LZ4_LEGACY": "lz4"}
DEFAULT_ROW_GROUP = 500_000
_logger = logging.getLogger(__name__)
_ALWAYS: WriterOptions = {"version": "2.6", "write_page_checksum": True}
_GROUP_BYTES = 128 * 1024 * 1024
_FEWEST_ROWS = 1024
_PAYS = 0.8
_SAMPLE_ROWS = 4096
_SAMPLE_DISTINCT = 0.25
_JOINED_DISTINCT = 0.5
_FALSE_HITS = 0.05  # of a Bloom filter: the share that pyarrow allows
_SMALLEST_FILTER = 32
_FILTER_HEADER = 15
_KEPT_ENCODINGS = {
    "DELTA_BINARY_PACKED": ("INT32", "INT64"),
    "DELTA_LENGTH_BYTE_ARRAY": ("BYTE_ARRAY",),
    "DELTA_BYTE_ARRAY": ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"),
    "BYTE_STREAM_SPLIT": ("INT32", "INT64", "FLOAT", "DOUBLE", "FIXED_LEN_BYTE_ARRAY"),
}
"""Encodings that a rewritten file keeps, and the physical types that can have them; a damaged footer may say others."""
_FILTERED = ("INT32", "INT64", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def codec_name(footer_name: str) -> str:
    """The writer's name for a codec as footers spell it; the older LZ4, which cannot be written, becomes the newer."""
    return _WRITTEN_AS.get(footer_name, footer_name.lower())


def report_codecs(files: Iterable[DataFile]) -> None:
    """Log that files which are rewritten change their codec, because the one that they have cannot be written."""
    old = [file.path for file in files if file.codec in _WRITTEN_AS and codec_name(file.codec) != "none"]
    if old:
        _logger.warning(
            "%d file(s), such as %s, have the older LZ4 codec, which cannot be written; they are rewritten with lz4 "
            "(LZ4_RAW). Pass compression to choose another codec.",
            len(old),
            old[0],
        )


def like_file(
    footer: Footer, sample: pa.Table, options: WriteOptions, key_columns: Sequence[str], recast: bool
) -> WriterOptions:
    """Writer options that repeat a file's codecs, encodings and indexes; ``sample`` is what was decoded of it first."""
    chunks = footer.chunks(0)
    plain = _plain_sizes(sample, footer.group_rows(0))
    dictionary = [c.leaf.path for c in chunks if c.has_dictionary and _pays(c, plain.get(c.leaf.path))]
    encodings = {} if recast else {c.leaf.path: kept for c in chunks if (kept := _kept_encoding(c))}
    codecs = {c.leaf.path: codec_name(c.codec) for c in chunks}
    return _ALWAYS | {
        "compression": options.compression or codecs,
        "use_dictionary": [path for path in dictionary if path not in encodings] or False,
        "column_encoding": encodings or None,
        "write_page_index": any(c.has_index for c in chunks),
        "bloom_filter_options": _blooms(chunks, footer) or None,
        "sorting_columns": _sorting(footer, key_columns, sample.schema) if not recast else None,
        "store_schema": b"ARROW:schema" in footer.notes,
        "use_deprecated_int96_timestamps": _all_int96(footer, sample.schema),
        "store_decimal_as_integer": any(
            PHYSICAL[c.leaf.physical] in ("INT32", "INT64") and c.leaf.is_decimal for c in chunks
        ),
        "use_compliant_nested_type": not any(".item" in c.leaf.path for c in chunks),
    }


def like_files(footer: Footer, sample: pa.Table, options: WriteOptions, recast: bool, rows: int) -> WriterOptions:
    """Writer options for rows of several files that were written alike, in row groups of at most ``rows``.

    A dictionary that did not pay in a small file may pay for all of them: then their rows repeat each other's values.
    """
    found = like_file(footer, sample, options, (), recast)
    blooms = {name: {"ndv": rows} for name in found["bloom_filter_options"] or ()}
    tried = [c.leaf.path for c in footer.chunks(0) if c.has_dictionary and c.leaf.path in sample.column_names]
    repeated = [name for name in tried if _repeats(sample[name], _JOINED_DISTINCT)]
    dictionary = list(dict.fromkeys([*(found["use_dictionary"] or ()), *repeated]))
    return found | {
        "sorting_columns": None,
        "bloom_filter_options": blooms or None,
        "use_dictionary": dictionary or False,
    }


def rows_per_group(files: Sequence[DataFile], options: WriteOptions) -> int:
    """Rows of a new row group: as asked, else many, unless rows are wide."""
    if options.row_group_size is not None:
        return options.row_group_size
    width = sum(file.uncompressed for file in files) // max(1, sum(file.rows for file in files))
    return max(_FEWEST_ROWS, min(DEFAULT_ROW_GROUP, _GROUP_BYTES // max(1, width)))


def dictionary_columns(footer: Footer, schema: pa.Schema) -> list[str]:
    """Text columns that surely kept a dictionary in every row group: cheaper to handle as codes, never as texts.

    A plain text takes four bytes at least, so fewer than three for each value is proof.
    """
    if not footer.groups or any(pa.types.is_nested(field.type) for field in schema):
        return []
    texts = [i for i, field in enumerate(schema) if field.type in (pa.string(), pa.binary())]
    groups = [footer.chunks(number) for number in range(len(footer.groups))] if texts else []
    kept = [i for i in texts if all(_kept_dictionary(chunks[i]) for chunks in groups)]
    return [schema.names[i] for i in kept]


def _kept_dictionary(chunk: Chunk) -> bool:
    return chunk.has_dictionary and chunk.uncompressed < 3 * chunk.values


def _plain_sizes(sample: pa.Table, group_rows: int) -> dict[str, float]:
    """Bytes that flat columns of the first row group would take without a dictionary."""
    scale = group_rows / max(1, sample.num_rows)
    columns = zip(sample.column_names, sample.columns, strict=True)
    known = {n: c for n, c in columns if not pa.types.is_nested(c.type) and not pa.types.is_dictionary(c.type)}
    return {name: column.nbytes * scale for name, column in known.items()}


def _pays(chunk: Chunk, plain_bytes: float | None) -> bool:
    return plain_bytes is None or chunk.uncompressed < _PAYS * plain_bytes


def _kept_encoding(chunk: Chunk) -> str | None:
    if chunk.has_dictionary:
        return None
    physical = PHYSICAL[chunk.leaf.physical]
    return next(
        (name for name, types in _KEPT_ENCODINGS.items() if name in chunk.encodings and physical in types), None
    )


def _blooms(chunks: Sequence[Chunk], footer: Footer) -> dict[str, dict[str, int]]:
    most = max(map(footer.group_rows, range(len(footer.groups))))
    return {
        c.leaf.path: {"ndv": max(1, most)} for c in chunks if c.has_bloom and PHYSICAL[c.leaf.physical] in _FILTERED
    }


def _sorting(footer: Footer, key_columns: Sequence[str], schema: pa.Schema) -> Any:
    """Replaced rows keep their keys, so an order over key columns still holds; any other may not."""
    sorting = footer.sorting(0)
    if not sorting or any(pa.types.is_nested(field.type) for field in schema):
        return None
    return sorting if all(footer.leaves[by.column_index].path in key_columns for by in sorting) else None


def _all_int96(footer: Footer, schema: pa.Schema) -> bool:
    found = sum(PHYSICAL[leaf.physical] == "INT96" for leaf in footer.leaves)
    return bool(found and found >= sum(pa.types.is_timestamp(field.type) for field in schema))


def for_new_file(sample: pa.Table, options: WriteOptions) -> WriterOptions:
    """Writer options for rows that replace nothing."""
    flat = [name for name, column in zip(sample.column_names, sample.columns, strict=True) if _repeats(column)]
    nested = [path for path in leaf_paths(sample.schema) if path not in sample.column_names]
    return _ALWAYS | {"compression": options.compression or DEFAULT_CODEC, "use_dictionary": flat + nested or False}


def _repeats(column: pa.ChunkedArray, share: float = _SAMPLE_DISTINCT) -> bool:
    """Whether the values of a sample repeat enough for a dictionary."""
    if pa.types.is_dictionary(column.type):
        return True
    if not _has_unique(column.type):
        return False
    half = _SAMPLE_ROWS // 2
    rows = column if len(column) <= _SAMPLE_ROWS else _ends(column, half)
    return len(rows.unique()) <= max(16, share * len(rows))


def _has_unique(type_: pa.DataType) -> bool:
    """Whether distinct values of a type can be counted, and are worth it."""
    if pa.types.is_decimal(type_):
        return bool(type_.bit_width >= 128)
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.float32(), pa.float64())
    return type_ in texts or pa.types.is_integer(type_) or pa.types.is_temporal(type_)


def _ends(column: pa.ChunkedArray, half: int) -> pa.ChunkedArray:
    return pa.chunked_array([*column.slice(0, half).chunks, *column.slice(len(column) - half).chunks], column.type)


def check_distinct(schema: pa.Schema, operation: str) -> None:
    """Raise for a column name that stands twice."""
    if len(set(schema.names)) < len(schema.names):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise SchemaMismatchError(f"{operation}: column(s) {twice} stand twice; rename one of each")


def check_writable(schema: pa.Schema, operation: str) -> None:
    """Raise for columns that no Parquet file can hold, before anything is written."""
    check_distinct(schema, operation)
    for field in schema:
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"{operation}: column {field.name!r} of type {field.type} cannot be stored in Parquet ({error}); "
                "cast it or leave it out"
            ) from error


def check_blooms(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise for columns that are not there or can have no Bloom filter."""
    for name in columns:
        if name not in schema.names:
            raise ValueError(f"bloom_filter_columns names unknown column {name!r}; choose among {schema.names}")
        field = schema.field(name)
        refused = "it is nested" if pa.types.is_nested(field.type) else _bloom_trouble(field.with_nullable(True))
        if refused:
            raise ValueError(
                f"column {name!r} of type {field.type} cannot have a Bloom filter ({refused}); leave it out"
            )


def _bloom_trouble(field: pa.Field) -> str | None:
    """What the writer says to a Bloom filter of such a column, asked by writing one null."""
    schema = pa.schema([field])
    try:
        with pq.ParquetWriter(io.BytesIO(), schema, bloom_filter_options={field.name: {"ndv": 1}}) as writer:
            writer.write_table(pa.Table.from_arrays([pa.nulls(1, field.type)], schema=schema))
    except (pa.ArrowException, OSError) as error:
        return str(error)
    return None


def leaf_paths(schema: pa.Schema) -> list[str]:
    """Paths of a schema's Parquet leaves, asked of the writer itself."""
    if not any(pa.types.is_nested(field.type) for field in schema):
        return list(schema.names)
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema).close()
    parquet = pq.ParquetFile(sink).schema
    return [parquet.column(i).path for i in range(len(parquet))]


def leaf_count(type_: pa.DataType) -> int:
    """How many Parquet leaf columns a type has."""
    if pa.types.is_dictionary(type_):
        return leaf_count(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return leaf_count(type_.storage_type)
    if pa.types.is_nested(type_):
        return sum(leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def filter_bytes(distinct: float) -> int:
    """Bytes that a filter of so many values takes in a file: a power of two, as small as keeps false hits rare."""
    bits = -8 * max(1.0, distinct) / log(1 - _FALSE_HITS ** (1 / 8))
    return max(_SMALLEST_FILTER, (1 << ceil(log2(bits))) // 8) + _FILTER_HEADER

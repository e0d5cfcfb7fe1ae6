"""Choose the options of the Parquet writer: those of the file that is replaced, or from a sample of a new file's rows.

A dictionary that the writer starts and discards costs more than the rest of the encoding, so one is requested only if
the input shows that it saves space. Page checksums are always written.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Sequence
from math import ceil, log, log2
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.arrow_versions import BLOOM_FILTERS, INSTALLED, require, require_extensions
from fsspeckit.common.errors import ColumnNameError, SchemaMismatchError
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.parquet.footer import PHYSICAL, Chunk, Footer

WriterOptions = dict[str, Any]

DEFAULT_CODEC = "snappy"
_CODEC_NAMES = {"": "none", "UNCOMPRESSED": "none", "LZ4_LEGACY": "lz4"}
DEFAULT_ROW_GROUP = 500_000
_logger = logging.getLogger(__name__)
_ALWAYS: WriterOptions = {"version": "2.6", "write_page_checksum": True}
_MAX_GROUP_BYTES = 128 * 1024 * 1024
_MIN_GROUP_ROWS = 1024
_MAX_DICTIONARY_SHARE = 0.8
_SAMPLE_ROWS = 4096
_SAMPLE_DISTINCT = 0.25
_JOINED_DISTINCT = 0.5
_FALSE_POSITIVES = 0.05  # of a Bloom filter: the share that pyarrow allows
_MIN_FILTER_BYTES = 32
_FILTER_HEADER = 15
_KEPT_ENCODINGS = {
    "DELTA_BINARY_PACKED": ("INT32", "INT64"),
    "DELTA_LENGTH_BYTE_ARRAY": ("BYTE_ARRAY",),
    "DELTA_BYTE_ARRAY": ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"),
    "BYTE_STREAM_SPLIT": ("INT32", "INT64", "FLOAT", "DOUBLE", "FIXED_LEN_BYTE_ARRAY"),
}
"""Encodings that a rewritten file keeps, with their physical types: a damaged footer may have other combinations."""
_BLOOM_TYPES = ("INT32", "INT64", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def codec_name(footer_name: str) -> str:
    """Return pyarrow's name for a codec of a footer. LZ4_LEGACY cannot be written and becomes LZ4_RAW."""
    return _CODEC_NAMES.get(footer_name, footer_name.lower())


def report_codecs(files: Iterable[DataFile]) -> None:
    """Log a warning if rewritten files change their codec because the old one cannot be written."""
    old = [file.path for file in files if file.codec in _CODEC_NAMES and codec_name(file.codec) != "none"]
    if old:
        _logger.warning(
            "%d file(s), such as %s, have the deprecated LZ4 codec, which cannot be written; they are rewritten with "
            "lz4 (LZ4_RAW). Pass compression to choose another codec.",
            len(old),
            old[0],
        )


def like_file(
    footer: Footer, sample: pa.Table, options: WriteOptions, key_columns: Sequence[str], recast: bool
) -> WriterOptions:
    """Return writer options with the codecs, encodings and indexes of a file. ``sample`` is its first decoded rows."""
    chunks = footer.chunks(0)
    plain = _plain_sizes(sample, footer.group_rows(0))
    dictionary = [c.leaf.path for c in chunks if c.has_dictionary and _saves_space(c, plain.get(c.leaf.path))]
    # Older versions of polars read a dictionary type only from pages with codes.
    coded = [field.name for field in sample.schema if pa.types.is_dictionary(field.type)]
    dictionary = list(dict.fromkeys([*dictionary, *coded]))
    encodings = {} if recast else {c.leaf.path: kept for c in chunks if (kept := _kept_encoding(c))}
    encodings = {path: kept for path, kept in encodings.items() if path not in coded}
    codecs = {c.leaf.path: codec_name(c.codec) for c in chunks}
    return _ALWAYS | {
        "compression": options.compression or codecs,
        "use_dictionary": [path for path in dictionary if path not in encodings] or False,
        "column_encoding": encodings or None,
        "write_page_index": any(c.has_index for c in chunks),
        "bloom_filter_options": _blooms(chunks, footer) or None,
        "sorting_columns": _sorting(footer, key_columns, sample.schema) if not recast else None,
        "store_schema": b"ARROW:schema" in footer.key_values,
        "use_deprecated_int96_timestamps": any(PHYSICAL[leaf.physical] == "INT96" for leaf in footer.leaves),
        "store_decimal_as_integer": any(
            PHYSICAL[c.leaf.physical] in ("INT32", "INT64") and c.leaf.is_decimal for c in chunks
        ),
        "use_compliant_nested_type": not any(".item" in c.leaf.path for c in chunks),
    }


def like_files(footer: Footer, sample: pa.Table, options: WriteOptions, recast: bool, rows: int) -> WriterOptions:
    """Return writer options for rows of several files with the same layout, in row groups of at most ``rows``.

    A dictionary that saves no space in one small file can save space for all of them, if they have common values.
    """
    like_one = like_file(footer, sample, options, (), recast)
    blooms = {name: {"ndv": rows} for name in like_one["bloom_filter_options"] or ()}
    candidates = [c.leaf.path for c in footer.chunks(0) if c.has_dictionary and c.leaf.path in sample.column_names]
    repeated = [name for name in candidates if _repeats(sample[name], _JOINED_DISTINCT)]
    dictionary = list(dict.fromkeys([*(like_one["use_dictionary"] or ()), *repeated]))
    return like_one | {
        "sorting_columns": None,
        "bloom_filter_options": blooms or None,
        "use_dictionary": dictionary or False,
    }


def rows_per_group(files: Sequence[DataFile], options: WriteOptions) -> int:
    """Return the rows of a new row group: as requested, else the default, or fewer if rows are wide."""
    if options.row_group_size is not None:
        return options.row_group_size
    width = sum(file.uncompressed for file in files) // max(1, sum(file.rows for file in files))
    return max(_MIN_GROUP_ROWS, min(DEFAULT_ROW_GROUP, _MAX_GROUP_BYTES // max(1, width)))


def dictionary_columns(footer: Footer, schema: pa.Schema) -> list[str]:
    """Return the text columns that certainly have a dictionary in every row group. They are read as codes.

    A plain value takes at least four bytes, so fewer than three bytes per value prove a dictionary.
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
    """Estimate the bytes of the flat columns of the first row group without a dictionary."""
    scale = group_rows / max(1, sample.num_rows)
    columns = zip(sample.column_names, sample.columns, strict=True)
    known = {n: c for n, c in columns if not pa.types.is_nested(c.type) and not pa.types.is_dictionary(c.type)}
    return {name: column.nbytes * scale for name, column in known.items()}


def _saves_space(chunk: Chunk, plain_bytes: float | None) -> bool:
    return plain_bytes is None or chunk.uncompressed < _MAX_DICTIONARY_SHARE * plain_bytes


def _kept_encoding(chunk: Chunk) -> str | None:
    if chunk.has_dictionary:
        return None
    physical = PHYSICAL[chunk.leaf.physical]
    return next(
        (name for name, types in _KEPT_ENCODINGS.items() if name in chunk.encodings and physical in types), None
    )


def _blooms(chunks: Sequence[Chunk], footer: Footer) -> dict[str, dict[str, int]]:
    paths = [c.leaf.path for c in chunks if c.has_bloom and PHYSICAL[c.leaf.physical] in _BLOOM_TYPES]
    if paths and INSTALLED < BLOOM_FILTERS:
        _logger.warning("A file is rewritten without its Bloom filters, which need pyarrow %d or later.", BLOOM_FILTERS)
        return {}
    rows = max(map(footer.group_rows, range(len(footer.groups))))
    return {path: {"ndv": max(1, rows)} for path in paths}


def _sorting(footer: Footer, key_columns: Sequence[str], schema: pa.Schema) -> Any:
    """Return the sort order if it has only key columns: replaced rows keep their keys, but not other values."""
    sorting = footer.sorting(0)
    if not sorting or any(pa.types.is_nested(field.type) for field in schema):
        return None
    return sorting if all(footer.leaves[by.column_index].path in key_columns for by in sorting) else None


def for_new_file(sample: pa.Table, options: WriteOptions) -> WriterOptions:
    """Return writer options for a new file."""
    flat = [name for name, column in zip(sample.column_names, sample.columns, strict=True) if _repeats(column)]
    nested = [path for path in leaf_paths(sample.schema) if path not in sample.column_names]
    return _ALWAYS | {"compression": options.compression or DEFAULT_CODEC, "use_dictionary": flat + nested or False}


def _repeats(column: pa.ChunkedArray, share: float = _SAMPLE_DISTINCT) -> bool:
    """Return whether the values of a sample repeat often enough for a dictionary."""
    if pa.types.is_dictionary(column.type):
        return True
    if not _can_count_distinct(column.type):
        return False
    half = _SAMPLE_ROWS // 2
    rows = column if len(column) <= _SAMPLE_ROWS else _first_and_last(column, half)
    return len(rows.unique()) <= max(16, share * len(rows))


def _can_count_distinct(type_: pa.DataType) -> bool:
    """Return whether distinct values of a type can be counted, and a dictionary can save space."""
    if pa.types.is_decimal(type_):
        return bool(type_.bit_width >= 128)
    texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.float32(), pa.float64())
    return type_ in texts or pa.types.is_integer(type_) or pa.types.is_temporal(type_)


def _first_and_last(column: pa.ChunkedArray, half: int) -> pa.ChunkedArray:
    return pa.chunked_array([*column.slice(0, half).chunks, *column.slice(len(column) - half).chunks], column.type)


def check_distinct(schema: pa.Schema, operation: str) -> None:
    """Raise if two columns have the same name."""
    if len(set(schema.names)) < len(schema.names):
        duplicates = sorted({name for name in schema.names if schema.names.count(name) > 1})
        names = ", ".join(map(repr, duplicates))
        raise SchemaMismatchError(f"{operation}: duplicate column names: {names}. Rename one of each pair.")


def check_writable(schema: pa.Schema, operation: str) -> None:
    """Raise for column types that Parquet does not support, before anything is written."""
    check_distinct(schema, operation)
    for field in schema:
        require_extensions(extension_names(field.type), f"{operation}: column {field.name!r}")
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"{operation}: column {field.name!r} of type {field.type} cannot be stored in Parquet ({error}); "
                "convert it or leave it out"
            ) from error


def check_blooms(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise for columns that do not exist or cannot have a Bloom filter."""
    for name in columns:
        if name not in schema.names:
            raise ColumnNameError(f"bloom_filter_columns names unknown column {name!r}; choose among {schema.names}")
        require(BLOOM_FILTERS, "Bloom filters")
        field = schema.field(name)
        reason = "it is nested" if pa.types.is_nested(field.type) else _bloom_error(field.with_nullable(True))
        if reason:
            raise SchemaMismatchError(
                f"column {name!r} of type {field.type} cannot have a Bloom filter ({reason}); leave it out"
            )


def _bloom_error(field: pa.Field) -> str | None:
    """Return the error of the writer for a Bloom filter on such a column, or None. Found by writing one null."""
    schema = pa.schema([field])
    try:
        with pq.ParquetWriter(io.BytesIO(), schema, bloom_filter_options={field.name: {"ndv": 1}}) as writer:
            writer.write_table(pa.Table.from_arrays([pa.nulls(1, field.type)], schema=schema))
    except (pa.ArrowException, OSError) as error:
        return str(error)
    return None


def leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the paths of a schema's Parquet leaves, from an empty file that pyarrow writes."""
    if not any(pa.types.is_nested(field.type) for field in schema):
        return list(schema.names)
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema).close()
    parquet = pq.ParquetFile(sink).schema
    return [parquet.column(i).path for i in range(len(parquet))]


def extension_names(type_: pa.DataType) -> list[str]:
    """Return the names of the extension types of a column."""
    if isinstance(type_, pa.BaseExtensionType):
        return [type_.extension_name]
    inner = [type_.value_type] if pa.types.is_dictionary(type_) else []
    if pa.types.is_nested(type_):
        inner = [type_.field(i).type for i in range(type_.num_fields)]
    return [name for child in inner for name in extension_names(child)]


def leaf_count(type_: pa.DataType) -> int:
    """Return the number of Parquet leaf columns of a type."""
    if pa.types.is_dictionary(type_):
        return leaf_count(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return leaf_count(type_.storage_type)
    if pa.types.is_nested(type_):
        return sum(leaf_count(type_.field(i).type) for i in range(type_.num_fields))
    return 1


def filter_bytes(distinct: float) -> int:
    """Return the bytes of a Bloom filter for so many distinct values: the smallest sufficient power of two."""
    bits = -8 * max(1.0, distinct) / log(1 - _FALSE_POSITIVES ** (1 / 8))
    return max(_MIN_FILTER_BYTES, (1 << ceil(log2(bits))) // 8) + _FILTER_HEADER

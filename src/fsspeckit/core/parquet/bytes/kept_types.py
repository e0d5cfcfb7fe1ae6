"""Write a file whose columns are stored otherwise than pyarrow stores them.

Rows are encoded in memory by pyarrow. INT96 timestamps are encoded once more, since pyarrow has one option for the
whole file, and the chunks of both are put together. Other columns keep their bytes and get the schema elements of the
files of the dataset (`fsspeckit.core.parquet.stored_types`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Self

import pyarrow as pa

from fsspeckit.core.parquet.bytes.assembler import AssembledFile, ChunkBytes, encoded_chunks, new_chunks
from fsspeckit.core.parquet.bytes.format_fields import (
    FileField,
    MetaField,
    SchemaField,
    StatisticsField,
    empty_footer,
    leaf_ranges,
)
from fsspeckit.core.parquet.bytes.thrift import BINARY, I32, LIST, STRUCT, Struct
from fsspeckit.core.parquet.stored_types import Column, columns_of, fitted, has_order, paths_of
from fsspeckit.core.parquet.writer_options import WriterOptions

_OPTION = "use_deprecated_int96_timestamps"
_BOUNDS = frozenset({
    StatisticsField.max_old, StatisticsField.min_old, StatisticsField.max, StatisticsField.min,
    StatisticsField.max_is_exact, StatisticsField.min_is_exact,
})  # fmt: skip


class KeptTypesWriter:
    """Writes tables to an open sink, like `pq.ParquetWriter`.

    Args:
        sink: The output.
        schema: The schema of the tables.
        options: Writer options.
        int96: Whether each leaf is INT96.
        kept: The schema elements of columns that are not stored as pyarrow does.
    """

    def __init__(
        self, sink: Any, schema: pa.Schema, options: WriterOptions, int96: Sequence[bool], kept: Mapping[str, Column]
    ) -> None:
        plain, old = (empty_footer(schema, options | {_OPTION: value}) for value in (False, True))
        self._int96 = int96
        leaves = zip(schema.names, leaf_ranges(plain), strict=True)
        self._leaves = {name: own for name, own in leaves if any(int96[leaf] for leaf in own)}
        self._metadata = {} if schema.metadata is None else dict(schema.metadata)
        self._footer = _with_columns(_joined(plain, old, int96), schema.names, kept)
        self._stored = _leaves_of(self._footer)
        produced = [path for path, _ in _leaves_of(plain)]
        paths = {_text(path): _text(own) for (path, _), own in zip(self._stored, produced, strict=True)}
        self._options = _with_paths(options, paths)
        self._changes = bool(kept)
        self._file = AssembledFile(sink)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the file stays unfinished."""

    def write_table(self, table: pa.Table, rows: int) -> None:  # noqa: ARG002 - like pyarrow's writer
        """Write rows as one row group."""
        if not table.num_rows:
            return
        group, chunks = encoded_chunks(table, self._options | {_OPTION: False})
        old = new_chunks(table.select(list(self._leaves)), self._options | {_OPTION: True}) if self._leaves else {}
        for name, leaves in self._leaves.items():
            for leaf, chunk in zip(leaves, old[name], strict=True):
                chunks[leaf] = chunk if self._int96[leaf] else chunks[leaf]
        if self._changes:
            chunks = [_as_stored(chunk, *leaf) for chunk, leaf in zip(chunks, self._stored, strict=True)]
        self._file.add_group(group, chunks)

    def add_key_value_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Add metadata to the footer."""
        self._metadata |= metadata

    def close(self) -> None:
        """Write the footer."""
        self._file.finish(self._footer, self._metadata)


def _as_stored(chunk: ChunkBytes, path: tuple[bytes, ...], leaf: Struct) -> ChunkBytes:
    """Return a chunk with the path of its leaf, and without bounds and filter if its values have no order."""
    meta = chunk.meta | {MetaField.path: (LIST, (BINARY, list(path)))}
    if has_order(leaf):
        return replace(chunk, meta=meta)
    if MetaField.statistics in meta:
        statistics = meta[MetaField.statistics][1]
        left = {field: value for field, value in statistics.items() if field not in _BOUNDS}
        meta[MetaField.statistics] = STRUCT, left
    for field in (MetaField.bloom_offset, MetaField.bloom_size):
        meta.pop(field, None)
    return replace(chunk, meta=meta, index=None, bloom=None)


def _leaves_of(footer: Struct) -> list[tuple[tuple[bytes, ...], Struct]]:
    return [leaf for column in columns_of(footer[FileField.schema][1][1]) for leaf in paths_of(iter(column))]


def _text(path: tuple[bytes, ...]) -> str:
    return b".".join(path).decode()


def _with_paths(options: WriterOptions, paths: Mapping[str, str]) -> WriterOptions:
    """Return writer options for some leaves by their paths in pyarrow's files instead of those in the stored ones."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {paths.get(path, path): option for path, option in value.items()}
        return [paths.get(path, path) for path in value] if isinstance(value, list) else value

    return {name: renamed(value) for name, value in options.items()}


def _with_columns(footer: Struct, names: Sequence[str], kept: Mapping[str, Column]) -> Struct:
    """Return a footer with the elements of some columns."""
    kind, elements = footer[FileField.schema][1]
    columns = []
    for name, produced in zip(names, columns_of(elements), strict=True):
        columns.append((fitted(kept[name], produced) if name in kept else None) or produced)
    return footer | {FileField.schema: (LIST, (kind, [elements[0], *chain.from_iterable(columns)]))}


def _joined(plain: Struct, old: Struct, int96: Sequence[bool]) -> Struct:
    """Return a footer with the schema elements and column orders of the INT96 leaves of another one."""
    kind, elements = plain[FileField.schema][1]
    joined, leaf = [], 0
    for element, other in zip(elements, old[FileField.schema][1][1], strict=True):
        is_leaf = not element.get(SchemaField.children, (I32, 0))[1]
        joined.append(other if is_leaf and int96[leaf] else element)
        leaf += is_leaf
    footer = plain | {FileField.schema: (LIST, (kind, joined))}
    if FileField.column_orders in plain:
        kind, orders = plain[FileField.column_orders][1]
        others = old[FileField.column_orders][1][1]
        chosen = [theirs if is_old else own for own, theirs, is_old in zip(orders, others, int96, strict=True)]
        footer[FileField.column_orders] = LIST, (kind, chosen)
    return footer

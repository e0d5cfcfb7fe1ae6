"""Write a file in which some timestamps are INT96 and others are not: pyarrow has one option for the whole file.

Rows are encoded in memory by pyarrow, the INT96 columns once more with that option, and the chunks of both are put
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from fsspeckit.core.parquet.bytes.assembler import AssembledFile, encoded_chunks, new_chunks
from fsspeckit.core.parquet.bytes.format_fields import FileField, SchemaField, empty_footer, leaf_ranges
from fsspeckit.core.parquet.bytes.thrift import I32, LIST, Struct
from fsspeckit.core.parquet.writer_options import WriterOptions

_OPTION = "use_deprecated_int96_timestamps"


class MixedTimestampsWriter:
    """Writes tables to an open sink, like `pq.ParquetWriter`. ``int96`` says for each leaf whether it is INT96."""

    def __init__(self, sink: Any, schema: pa.Schema, options: WriterOptions, int96: Sequence[bool]) -> None:
        self._options, self._int96 = options, int96
        plain, old = (empty_footer(schema, options | {_OPTION: value}) for value in (False, True))
        self._footer = _joined(plain, old, int96)
        leaves = zip(schema.names, leaf_ranges(plain), strict=True)
        self._leaves = {name: own for name, own in leaves if any(int96[leaf] for leaf in own)}
        self._metadata = {} if schema.metadata is None else dict(schema.metadata)
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
        old = new_chunks(table.select(list(self._leaves)), self._options | {_OPTION: True})
        for name, leaves in self._leaves.items():
            for leaf, chunk in zip(leaves, old[name], strict=True):
                chunks[leaf] = chunk if self._int96[leaf] else chunks[leaf]
        self._file.add_group(group, chunks)

    def add_key_value_metadata(self, metadata: Mapping[bytes, bytes]) -> None:
        """Add metadata to the footer."""
        self._metadata |= metadata

    def close(self) -> None:
        """Write the footer."""
        self._file.finish(self._footer, self._metadata)


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

"""Columns of a source that are read once, however often rows are taken from them."""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.core.dataset.source import Source
from fsspeckit.core.model import RowNumbers


class SourceColumns:
    """Reads a column of a source when it is first needed, and keeps it while the operation is planned."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._columns: dict[str, tuple[pa.Field, pa.ChunkedArray]] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of the source."""
        return self._source.schema

    def take(self, rows: range | RowNumbers, schema: pa.Schema) -> pa.Table:
        """Return the given rows with ``schema``, as `Source.take`."""
        names = [name for name in schema.names if name in self.schema.names] or self.schema.names[:1]
        unread = [name for name in names if name not in self._columns]
        if unread:
            table = self._source.columns(unread)
            self._columns.update({name: (table.field(name), table[name]) for name in unread})
        fields, arrays = zip(*(self._columns[name] for name in names), strict=True)
        return Source(pa.Table.from_arrays(list(arrays), schema=pa.schema(fields))).take(rows, schema)

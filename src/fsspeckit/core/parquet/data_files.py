"""From listed files to data files: footers are read, checked, and kept as the few facts that planning needs.

The sole reader of footers for planning. A file that cannot be read is an error that names it, raised before anything
is written. Footers that are laid out like one that was read before are matched against it
(`fsspeckit.core.parquet.footer_template`); all others are read field by field, with the same result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.parquet.bytes.format_fields import FileField, notes_of
from fsspeckit.core.parquet.bytes.thrift import (
    I64,
    LIST,
    STRUCT,
    Struct,
    field_header,
    read_list_head,
    read_signed,
    read_struct,
    write_struct,
    write_value,
)
from fsspeckit.core.parquet.column_stats import column_stats, has_defined_order, native_type
from fsspeckit.core.parquet.footer import (
    PHYSICAL,
    Footer,
    Leaf,
    check_not_encrypted,
    check_sum,
    open_footer,
    read_footer_bytes,
    writer_of,
)
from fsspeckit.core.parquet.footer_template import RowGroupFacts, RowGroupTemplate, read_group
from fsspeckit.core.parquet.reader import report_damage
from fsspeckit.core.parquet.sort_note import read_sort_note, schema_without_sort_note, without_sort_note
from fsspeckit.core.storage import Storage

_THREADS = 64
_PROBE = 16
_SLOW = 0.002  # seconds for a footer; from the page cache it takes a tenth of that
_TRAILER = 8
_AROUND = 12  # bytes around a footer: its length, and the file's magic at both ends
_WORTH_A_TEMPLATE = 3
_MOST_TEMPLATES = 8
_MOST_TAILS = 64
_ROWS_HEADER = field_header(FileField.rows, FileField.schema, I64)
_GROUPS_HEADER = field_header(FileField.groups, FileField.rows, LIST)


def read_data_files(
    storage: Storage,
    files: Sequence[ViewFile],
    stats_for: Sequence[str],
    *,
    kept_bytes: int = 0,
    on_done: Callable[[int], None] | None = None,
) -> list[DataFile]:
    """Read all footers, with statistics of some columns; as many as fit into ``kept_bytes`` are kept for reading.

    Parsing holds the interpreter lock, so threads pay only where they wait: on remote storage or a cold disk.
    """
    footers = _FooterReader(storage, tuple(stats_for), kept_bytes)

    def one(file: ViewFile) -> DataFile:
        found = footers.read(file)
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


@dataclass(frozen=True, slots=True)
class _Column:
    """Where the statistics of a column are in a footer, and the Arrow type that they have."""

    number: int
    leaf: Leaf
    native: pa.DataType | None
    ordered: bool


@dataclass(frozen=True, slots=True)
class _Tail:
    """What a footer says behind its row groups, with the schema that follows from it."""

    notes: Mapping[bytes, bytes]
    writer: str
    shape: _Shape


@dataclass(frozen=True, slots=True)
class _Shape:
    """What all files have in common whose schemas and notes are the same."""

    arrow: pa.Schema
    int96: tuple[str, ...]
    columns: Mapping[str, _Column]


@dataclass(slots=True)
class _Head:
    """A schema as footers begin with it, and what was seen behind it."""

    data: bytes
    leaves: Sequence[Leaf]
    wanted: Sequence[int]
    read: int = 0
    templates: list[RowGroupTemplate] = field(default_factory=list)
    tails: dict[bytes, _Tail] = field(default_factory=dict)
    shapes: dict[Any, _Shape] = field(default_factory=dict)


class _FooterReader:
    """Reads footers one after the other, and remembers how they are laid out."""

    def __init__(self, storage: Storage, stats_for: tuple[str, ...], kept_bytes: int) -> None:
        self._storage, self._stats_for, self._room = storage, stats_for, kept_bytes
        self._heads: list[_Head] = []

    def read(self, file: ViewFile) -> DataFile:
        with report_damage("reading the footer", file.path):
            data = read_footer_bytes(self._storage, file.location, file.size)
            data_end = file.size - len(data) - _TRAILER
            groups, tail = self._matched(data, data_end) or self._parsed(data, data_end)
        self._room -= len(data)
        rows = sum(group.rows for group in groups)
        stats, blooms = {}, {}
        for name, column in tail.shape.columns.items():
            chunks = [group.stats[column.number] for group in groups]
            stats[name] = column_stats(chunks, column.leaf, column.native, tail.writer, ordered=column.ordered)
            if any(chunk.bloom is not None for chunk in chunks):
                blooms[name] = tuple(chunk.bloom for chunk in chunks)
        return DataFile(
            path=file.path,
            location=file.location,
            size=file.size,
            stamp=file.stamp,
            rows=rows,
            row_groups=tuple(group.rows for group in groups),
            uncompressed=sum(group.uncompressed for group in groups),
            codec=groups[0].codec if groups else "",
            schema=tail.shape.arrow,
            partition=None,
            stats=stats,
            blooms=blooms,
            sort_note=read_sort_note(tail.notes, rows),
            footer=len(data) + _AROUND,
            int96=tail.shape.int96,
            raw_footer=data if self._room >= 0 else None,
        )

    def _matched(self, data: bytes, data_end: int) -> tuple[list[RowGroupFacts], _Tail] | None:
        """The facts of a footer that is laid out like others."""
        head = next((head for head in self._heads if head.templates and data.startswith(head.data)), None)
        found = None if head is None else _match_groups(data, head, data_end)
        if head is None or found is None:
            return None
        groups, end = found
        rest = data[end:]
        tail = head.tails.get(rest)
        if tail is None:
            tree, stop = read_struct(rest, after=FileField.groups)
            if stop != len(rest):
                return None
            tail = self._tail(tree, head, data)
            if len(head.tails) < _MOST_TAILS:
                head.tails[rest] = tail
        return groups, tail

    def _parsed(self, data: bytes, data_end: int) -> tuple[list[RowGroupFacts], _Tail]:
        """The facts of any other footer."""
        footer = Footer(data, data_end)
        head = next((head for head in self._heads if data.startswith(head.data)), None)
        if head is None:
            head = self._new_head(footer)
        head.read += 1
        if head.read >= _WORTH_A_TEMPLATE:
            _add_templates(head, footer)
        groups = [read_group(group, head.wanted) for group in footer.groups]
        return groups, self._tail(footer.tree, head, data)

    def _new_head(self, footer: Footer) -> _Head:
        """Of a footer that is not spelled as it would be here, the beginning is never found again, which is fine."""
        first = {number: footer.tree[number] for number in (FileField.version, FileField.schema)}
        tops = {leaf.top for leaf in footer.leaves if leaf.path in self._stats_for}
        wanted = [i for i, leaf in enumerate(footer.leaves) if leaf.top in tops and leaf.path in self._stats_for]
        head = _Head(write_struct(first)[:-1], footer.leaves, wanted)
        self._heads.insert(0, head)
        return head

    def _tail(self, tree: Struct, head: _Head, data: bytes) -> _Tail:
        check_not_encrypted(tree)
        notes, writer = notes_of(tree), writer_of(tree)
        orders = tree.get(FileField.orders, (0, None))
        kept = without_sort_note(notes) or {}
        key = tuple(sorted(kept.items())), writer, write_value(*orders) if orders[0] == LIST else b""
        if key not in head.shapes:
            head.shapes[key] = self._shape(head, orders, open_footer(data))
        return _Tail(notes, writer, head.shapes[key])

    def _shape(self, head: _Head, orders: tuple[int, Any], reader: pq.ParquetReader) -> _Shape:
        arrow, parquet = schema_without_sort_note(reader.schema_arrow), reader.metadata.schema
        columns = {}
        for number in head.wanted:
            leaf = head.leaves[number]
            own = arrow.field(leaf.top)
            if own.name != leaf.path or arrow.names.count(own.name) > 1 or pa.types.is_nested(own.type):
                continue  # the leaf of another column that only has the same path
            native = native_type(PHYSICAL[leaf.physical], str(parquet.column(number).logical_type), own.type)
            columns[own.name] = _Column(number, leaf, native, has_defined_order(orders, number))
        old = dict.fromkeys(arrow.names[leaf.top] for leaf in head.leaves if PHYSICAL[leaf.physical] == "INT96")
        return _Shape(arrow, tuple(old), columns)


def _match_groups(data: bytes, head: _Head, data_end: int) -> tuple[list[RowGroupFacts], int] | None:
    """The row groups of a footer, and where they end; nothing where one of them is like no other."""
    at = len(head.data)
    if data[at : at + 1] != _ROWS_HEADER:
        return None
    told, at = read_signed(data, at + 1)
    if data[at : at + 1] != _GROUPS_HEADER:
        return None
    count, kind, at = read_list_head(data, at + 1)
    if count and kind != STRUCT:
        return None
    groups = []
    for _ in range(count):
        matches = (template.match(data, at, data_end) for template in head.templates)
        found = next((found for found in matches if found), None)
        if found is None:
            return None
        groups.append(found[0])
        at = found[1]
    check_sum(told, sum(group.rows for group in groups))
    return groups, at


def _add_templates(head: _Head, footer: Footer) -> None:
    for group in footer.groups:
        if len(head.templates) >= _MOST_TEMPLATES:
            return
        data = write_struct(group)
        if any(template.match(data, 0, footer.data_end) for template in head.templates):
            continue
        template = RowGroupTemplate.of(group, head.leaves, head.wanted)
        if template is not None:
            head.templates.append(template)

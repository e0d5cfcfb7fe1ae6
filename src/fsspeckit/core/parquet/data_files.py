"""Read and check the footers of listed files, and return the facts that planning needs.

A file that cannot be read raises an error with its path, before anything is written. Footers with the same layout as
earlier ones are matched against a template (`fsspeckit.core.parquet.footer_template`); all others are parsed field by
field, with the same result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from fsspeckit.common.arrow_versions import require_extensions
from fsspeckit.common.errors import FsspeckitError, StorageError
from fsspeckit.common.int96 import int96_columns, unit_of
from fsspeckit.common.stored_types import decoded_columns
from fsspeckit.core.model import ColumnStats, DataFile, KeptBytes, ViewFile
from fsspeckit.core.parquet.bytes.format_fields import TRAILER, FileField, SchemaField, key_values_of
from fsspeckit.core.parquet.bytes.thrift import (
    I64,
    LIST,
    STRUCT,
    Struct,
    field_header,
    read_list_header,
    read_signed,
    read_struct,
    write_struct,
    write_value,
)
from fsspeckit.core.parquet.column_stats import column_stats, has_defined_order, native_type
from fsspeckit.core.parquet.damage import check_listed, report_damage
from fsspeckit.core.parquet.footer import (
    INT96_UNIT,
    PHYSICAL,
    Footer,
    Leaf,
    check_not_encrypted,
    check_row_sum,
    open_footer,
    read_end,
    writer_of,
)
from fsspeckit.core.parquet.footer_template import RowGroupFacts, RowGroupTemplate, read_group
from fsspeckit.core.parquet.int96 import ARROW_SCHEMA, known_unit, mark_int96, read_as
from fsspeckit.core.parquet.sort_note import read_sort_note, schema_without_sort_note, without_sort_note
from fsspeckit.core.parquet.stored_schema import decodable_footer
from fsspeckit.core.parquet.stored_types import columns_of, has_new_type, has_order, mark_decoded, mark_stored
from fsspeckit.core.parquet.timestamps import needs_nanoseconds, old_columns, without_old_bounds
from fsspeckit.core.storage import Storage

_THREADS = 64
_PROBE_FILES = 16
_SLOW_FOOTER_SECONDS = 0.002  # seconds for a footer; from the page cache it takes a tenth of that
_OVERHEAD = 12  # bytes around a footer: its length, and the file's magic at both ends
_SMALL_FILE = 1024 * 1024  # bytes that take less time than one more round trip to an object store
_KEPT_CONTENT = 128 * 1024 * 1024  # bytes of small files that are kept until they are read
_MIN_FOOTERS_FOR_TEMPLATE = 3
_MAX_TEMPLATES = 8
_MAX_SUFFIXES = 64
_MAX_SHARED = 16
_MAX_SHARED_LEAVES = 200
MAX_COLUMNS = 128
"""The most columns of a file whose statistics are read if none are named."""
_COMPARED = ("rows", "row_groups", "uncompressed", "codec", "schema", "footer", "int96", "sort_note", "blooms")
_UNKNOWN_TYPE = "LogicalType that is not recognized"
_ROWS_HEADER = field_header(FileField.rows, FileField.schema, I64)
_GROUPS_HEADER = field_header(FileField.groups, FileField.rows, LIST)


def read_data_files(
    storage: Storage,
    files: Sequence[ViewFile],
    stats_for: Sequence[str] | None,
    *,
    kept_bytes: int = 0,
    on_done: Callable[[int], None] | None = None,
) -> list[DataFile]:
    """Read all footers, with statistics of the columns ``stats_for``, or of all columns up to a limit.

    Raw footers up to ``kept_bytes`` in total are kept for reading the files later; on remote storage, small files are
    then read whole with their footers. ``on_done`` gets 1 after each file.
    Parsing holds the interpreter lock, so threads are used only for I/O waits: on remote storage or a cold disk.
    """
    footers = _FooterReader(storage, stats_for, kept_bytes)

    def one(file: ViewFile) -> DataFile:
        try:
            data_file = footers.read(file)
        except FsspeckitError:
            check_listed(storage, file)  # if it was replaced meanwhile, its size is not that of the listing
            raise
        if on_done is not None:
            on_done(1)
        return data_file

    probe = files[:_PROBE_FILES] if storage.is_local else files[:1]
    started = time.perf_counter()
    read = [one(file) for file in probe]
    rest = files[len(probe) :]
    is_slow = not storage.is_local or time.perf_counter() - started > _SLOW_FOOTER_SECONDS * len(probe)
    if not is_slow or len(rest) < 2:
        return read + [one(file) for file in rest]
    with ThreadPoolExecutor(min(_THREADS, len(rest))) as pool:
        return read + list(pool.map(one, rest))


def read_writer(storage: Storage, file: DataFile) -> str:
    """Return the name of the program that wrote a file."""
    with report_damage("reading the footer of", file.path):
        data, _ = read_end(storage, file.location, file.size)
        tree, _ = read_struct(data)
        return writer_of(tree)


@dataclass(frozen=True, slots=True)
class _Column:
    """The leaf number of a column, and the Arrow type of its statistics."""

    number: int
    leaf: Leaf
    native: pa.DataType | None
    ordered: bool


@dataclass(frozen=True, slots=True)
class _Suffix:
    """The content of a footer after its row groups, and the schema that follows from it."""

    key_values: Mapping[bytes, bytes]
    writer: str
    schema: _SchemaInfo


@dataclass(frozen=True, slots=True)
class _SchemaInfo:
    """What files with the same schema and key-value metadata have in common."""

    arrow: pa.Schema
    is_replaced: bool
    decoded: tuple[str, ...]
    int96: tuple[str, ...]
    old: tuple[str, ...]
    columns: Mapping[str, _Column]


@dataclass(slots=True)
class _Prefix:
    """The bytes of a footer before its row groups, and what was read after them in earlier footers."""

    data: bytes
    leaves: Sequence[Leaf]
    wanted: Sequence[int]
    read: int = 0
    templates: list[RowGroupTemplate] = field(default_factory=list)
    suffixes: dict[bytes, _Suffix] = field(default_factory=dict)
    schemas: dict[Any, _SchemaInfo] = field(default_factory=dict)


_SHARED: dict[frozenset[str] | None, list[_Prefix]] = {}
"""Layouts that later operations of this process use again, by the columns whose statistics are read. A layout matches
a footer exactly or not at all, so it does not matter from which dataset it is."""
_SHARING = threading.Lock()


def _share(names: frozenset[str] | None, new: Sequence[_Prefix] = ()) -> list[_Prefix]:
    """Add layouts to those that are shared for some columns, and return these. A few layouts are kept, the newest."""
    with _SHARING:
        _SHARED[names] = [*new, *_SHARED.pop(names, [])][:_MAX_SHARED]
        while len(_SHARED) > _MAX_SHARED:
            del _SHARED[next(iter(_SHARED))]
        return list(_SHARED[names])


class FooterFacts:
    """Describes files by their footers, and caches the layouts of footers."""

    def __init__(self, stats_for: Sequence[str] | None) -> None:
        self._stats_for = None if stats_for is None else frozenset(stats_for)
        self._prefixes = _share(self._stats_for)

    def describe(self, file: ViewFile, data: bytes) -> DataFile:
        """Return a file with the facts of its footer. Raise `pa.ArrowInvalid` on damage."""
        data_end = file.size - len(data) - TRAILER
        groups, suffix = self._match(data, data_end) or self._parse(data, data_end)
        rows = sum(group.rows for group in groups)
        stats, blooms = {}, {}
        for name, column in suffix.schema.columns.items():
            chunks = [group.stats[column.number] for group in groups]
            known = column_stats(chunks, column.leaf, column.native, suffix.writer, ordered=column.ordered)
            stats[name] = without_old_bounds(known) if name in suffix.schema.old else known
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
            schema=suffix.schema.arrow,
            partition=None,
            stats=stats,
            blooms=blooms,
            sort_note=read_sort_note(suffix.key_values, rows),
            footer=len(data) + _OVERHEAD,
            int96=suffix.schema.int96,
            raw_footer=decodable_footer(data, suffix.schema.decoded) if suffix.schema.is_replaced else None,
            version=file.version,
        )

    def _match(self, data: bytes, data_end: int) -> tuple[list[RowGroupFacts], _Suffix] | None:
        """Return the facts of a footer with a known layout, or None."""
        prefix = next((prefix for prefix in self._prefixes if prefix.templates and data.startswith(prefix.data)), None)
        matched = None if prefix is None else _match_groups(data, prefix, data_end)
        if prefix is None or matched is None:
            return None
        groups, end = matched
        rest = data[end:]
        suffix = prefix.suffixes.get(rest)
        if suffix is None:
            tree, stop = read_struct(rest, after=FileField.groups)
            if stop != len(rest) or min(tree, default=FileField.key_values) <= FileField.groups:
                return None  # also if a field before the row groups is here a second time
            suffix = self._suffix(tree, prefix, data)
            if len(prefix.suffixes) >= _MAX_SUFFIXES:
                prefix.suffixes.clear()
            prefix.suffixes[rest] = suffix
        return groups, suffix

    def _parse(self, data: bytes, data_end: int) -> tuple[list[RowGroupFacts], _Suffix]:
        """Parse a footer field by field and return its facts. pyarrow checks fields that are not used here."""
        footer = Footer(data, data_end)
        _check_readable(data, footer)
        prefix = next((prefix for prefix in self._prefixes if data.startswith(prefix.data)), None)
        if prefix is None:
            prefix = self._new_prefix(footer)
        prefix.read += 1
        if prefix.read >= _MIN_FOOTERS_FOR_TEMPLATE:
            _add_templates(prefix, footer)
        groups = [read_group(group, prefix.wanted) for group in footer.groups]
        return groups, self._suffix(footer.tree, prefix, data)

    def _new_prefix(self, footer: Footer) -> _Prefix:
        """Add the prefix of a footer. If its writer encodes it differently, it never matches, which is harmless."""
        first = {number: footer.tree[number] for number in (FileField.version, FileField.schema)}
        names = self._stats_for
        if names is None:
            names = frozenset(leaf.path for leaf in footer.leaves[:MAX_COLUMNS])
        wanted = [i for i, leaf in enumerate(footer.leaves) if leaf.path in names]
        prefix = _Prefix(write_struct(first)[:-1], footer.leaves, wanted)
        self._prefixes.insert(0, prefix)
        if len(footer.leaves) <= _MAX_SHARED_LEAVES:
            _share(self._stats_for, [prefix])
        return prefix

    def _suffix(self, tree: Struct, prefix: _Prefix, data: bytes) -> _Suffix:
        check_not_encrypted(tree)
        key_values, writer = key_values_of(tree), writer_of(tree)
        orders = tree.get(FileField.column_orders, (0, None))
        kept = without_sort_note(key_values) or {}
        key = tuple(sorted(kept.items())), writer, write_value(*orders) if orders[0] == LIST else b""
        schema = prefix.schemas.get(key)
        if schema is None:
            schema = self._schema_info(prefix, orders, data, writer, bare=ARROW_SCHEMA not in key_values)
            if len(prefix.schemas) >= _MAX_SUFFIXES:
                prefix.schemas.clear()
            prefix.schemas[key] = schema
        return _Suffix(key_values, writer, schema)

    def _schema_info(
        self, prefix: _Prefix, orders: tuple[int, Any], data: bytes, writer: str, *, bare: bool
    ) -> _SchemaInfo:
        plain = decodable_footer(data)
        reader = open_footer(plain)
        parquet = reader.metadata.schema
        arrow = mark_int96(schema_without_sort_note(reader.schema_arrow), prefix.leaves, plain)
        elements = read_struct(prefix.data + b"\0")[0][FileField.schema][1][1]
        arrow = mark_decoded(mark_stored(arrow, elements, bare=bare), writer)
        leaves = [element for element in elements[1:] if not element.get(SchemaField.children, (0, 0))[1]]
        names = (str(parquet.column(number).logical_type) for number in range(len(parquet)))
        require_extensions(names, "reading a footer")
        columns = {}
        for number in prefix.wanted:
            leaf = prefix.leaves[number]
            own = arrow.field(leaf.top)
            if own.name != leaf.path or arrow.names.count(own.name) > 1 or pa.types.is_nested(own.type):
                continue  # the leaf of another column with the same path
            if not has_order(leaves[number]):
                continue
            native = native_type(PHYSICAL[leaf.physical], str(parquet.column(number).logical_type), own.type)
            columns[own.name] = _Column(number, leaf, native, has_defined_order(orders, number))
        decoded = decoded_columns(arrow)
        is_replaced = bool(decoded) or plain is not data
        return _SchemaInfo(arrow, is_replaced, decoded, int96_columns(arrow), old_columns(arrow), columns)


def _check_readable(data: bytes, footer: Footer) -> None:
    """Raise if pyarrow cannot read the footer. Integers of 128 bits, which polars stores, are named."""
    try:
        open_footer(data)
    except (pa.ArrowException, OSError) as error:
        if _UNKNOWN_TYPE in str(error):
            elements = footer.tree[FileField.schema][1][1]
            names = [column[0][SchemaField.name][1].decode() for column in columns_of(elements) if has_new_type(column)]
            raise pa.ArrowNotImplementedError(f"{error}, in column(s) {names}; a newer version may") from error
        if not isinstance(error, pa.ArrowNotImplementedError):
            raise
        stored = {number: value for number, value in footer.tree.items() if number != FileField.key_values}
        schema = open_footer(write_struct(stored)).schema_arrow
        names = [field.name for field in schema if field.type == pa.binary(16)]
        raise pa.ArrowNotImplementedError(f"{error}: column(s) {names}") from error


class _FooterReader(FooterFacts):
    """Reads footers, and keeps some of them."""

    def __init__(self, storage: Storage, stats_for: Sequence[str] | None, kept_bytes: int) -> None:
        super().__init__(stats_for)
        self._storage, self._keep_bytes = storage, kept_bytes
        self._reads_whole, self._kept_content = kept_bytes > 0, _KEPT_CONTENT

    def read(self, file: ViewFile) -> DataFile:
        with report_damage("reading the footer", file.path):
            data, content = self._read(file)
            found = self._with_times(self.describe(file, data))
        self._keep_bytes -= len(data)
        keeps = self._keep_bytes >= 0 and found.raw_footer is None
        if not keeps and content is None:
            return found
        return replace(found, raw_footer=data if keeps else found.raw_footer, content=content)

    def _with_times(self, file: DataFile) -> DataFile:
        """Return a file with the unit of its INT96 columns. Values are read if the footer does not tell it."""
        if not file.int96:
            return file
        unit = known_unit(file.schema.metadata) or ("ns" if needs_nanoseconds(self._storage, file) else INT96_UNIT)
        return with_times(file, unit, local=self._storage.int96_local)

    def _read(self, file: ViewFile) -> tuple[bytes, KeptBytes | None]:
        """Return the footer of a file, and the whole file if it is small and a second read costs a round trip."""
        keeps = self._storage.workers > 1 and file.size <= self._kept_content
        whole = keeps and self._reads_whole and file.size <= _SMALL_FILE
        data, end = read_end(self._storage, file.location, file.size, file.size if whole else 0)
        if not keeps or len(end) != file.size:
            return data, None
        self._kept_content -= file.size
        return data, KeptBytes(end)


def with_times(file: DataFile, unit: str, *, local: bool) -> DataFile:
    """Return a file with instants in a unit, or without their time zone, in its INT96 columns."""
    if unit == unit_of(file.schema) and not local:
        return file
    return replace(file, schema=_read_as(file.schema.serialize().to_pybytes(), unit, local))


@lru_cache(maxsize=_MAX_SUFFIXES)
def _read_as(schema: bytes, unit: str, local: bool) -> pa.Schema:
    """Return `read_as`: the same object for the same schema, because files are grouped by it."""
    return read_as(pa.ipc.read_schema(pa.py_buffer(schema)), unit, local=local)


def confirm_facts(storage: Storage, file: DataFile, data: bytes) -> bytes:
    """Return the footer of a file that the index describes, to open the file with. Raise if the facts differ."""
    listed = ViewFile(file.path, file.location, file.size, file.stamp, file.version)
    found = FooterFacts(tuple(file.stats)).describe(listed, data)
    found = with_times(found, unit_of(file.schema), local=storage.int96_local)
    if not _agree(file, found):
        raise StorageError(
            f"The footer index does not describe {file.path}. Nothing was changed. Run `fsspeckit inspect "
            "--rebuild-index` on the dataset, then run the operation again."
        )
    return found.raw_footer or data


def _agree(indexed: DataFile, found: DataFile) -> bool:
    """Return whether an entry of the index has the facts of the footer. Bounds that it does not have are unknown."""
    same = all(getattr(indexed, name) == getattr(found, name) for name in _COMPARED)
    return same and all(
        name in found.stats and _bounds_agree(indexed.stats[name], found.stats[name]) for name in indexed.stats
    )


def _bounds_agree(indexed: ColumnStats, found: ColumnStats) -> bool:
    if (indexed.native, indexed.nulls) != (found.native, found.nulls):
        return False
    pairs = [*zip(indexed.lower, found.lower, strict=True), *zip(indexed.upper, found.upper, strict=True)]
    return all(mine is None or mine == theirs or (mine != mine and theirs != theirs) for mine, theirs in pairs)


def _match_groups(data: bytes, prefix: _Prefix, data_end: int) -> tuple[list[RowGroupFacts], int] | None:
    """Return the row groups of a footer and their end, or None if one of them matches no template."""
    at = len(prefix.data)
    if data[at : at + 1] != _ROWS_HEADER:
        return None
    rows, at = read_signed(data, at + 1)
    if data[at : at + 1] != _GROUPS_HEADER:
        return None
    count, kind, at = read_list_header(data, at + 1)
    if count and kind != STRUCT:
        return None
    groups = []
    for _ in range(count):
        matches = (template.match(data, at, data_end) for template in prefix.templates)
        match = next(filter(None, matches), None)
        if match is None:
            return None
        group, at = match
        groups.append(group)
    check_row_sum(rows, sum(group.rows for group in groups))
    return groups, at


def _add_templates(prefix: _Prefix, footer: Footer) -> None:
    for group in footer.groups:
        if len(prefix.templates) >= _MAX_TEMPLATES:
            return
        data = write_struct(group)
        if any(template.match(data, 0, footer.data_end) for template in prefix.templates):
            continue
        template = RowGroupTemplate.of(group, prefix.leaves, prefix.wanted)
        if template is not None:
            prefix.templates.append(template)

"""Read row groups of footers with a known layout by matching bytes, which is much faster than parsing fields.

Most files of a dataset have one writer and one schema, so their row groups differ only in numbers and bounds. A
template is built from a row group that was parsed field by field. It contains the bytes that must be equal (fields,
names, types, codecs, encodings) and gaps for values that may differ. Binary values are skipped by their length, so a
match reads the bytes exactly. A row group that does not match is parsed field by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fsspeckit.core.parquet.bytes.format_fields import ChunkField, GroupField, MetaField, StatisticsField, chunks_of
from fsspeckit.core.parquet.bytes.thrift import (
    BINARY,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    field_header,
    list_header,
    read_signed,
    read_varint,
    write_value,
)
from fsspeckit.core.parquet.column_stats import RawStats, bounds_differ, raw_stats
from fsspeckit.core.parquet.footer import CODECS, PHYSICAL, Leaf, check_bloom, check_count, check_offsets, check_values

_NUMBER = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_NUMBERS = (I16, I32, I64)
_CONSTANT_FIELDS = (MetaField.kind, MetaField.encodings, MetaField.path, MetaField.codec)
_CHECKED_FIELDS = {
    MetaField.values: "values",
    MetaField.data_offset: "data_offset",
    MetaField.dictionary_offset: "dictionary_offset",
    MetaField.uncompressed_size: "uncompressed_size",
    MetaField.compressed_size: "size",
}
_COUNT = 3  # field of an encoding statistic; the other fields are the page type and the encoding


class RowGroupFacts(NamedTuple):
    """What planning needs from a row group: rows, uncompressed bytes, and statistics of some leaves."""

    rows: int
    uncompressed: int
    codec: str
    stats: dict[int, RawStats]


def read_group(group: Struct, wanted: Sequence[int]) -> RowGroupFacts:
    """Return the facts of a parsed row group."""
    chunks = [chunk[ChunkField.meta][1] for chunk in chunks_of(group)]
    codec = CODECS[chunks[0][MetaField.codec][1]] if chunks else ""
    stats = {leaf: raw_stats(chunks[leaf]) for leaf in wanted}
    return RowGroupFacts(group[GroupField.rows][1], group[GroupField.uncompressed_size][1], codec, stats)


class _Gap(NamedTuple):
    """The name of the value in a gap: a field of a leaf, or of the row group if ``leaf`` is None."""

    leaf: int | None
    name: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern. A part with a gap has one capturing group; for a binary value it captures the length."""

    pattern: bytes
    gap: _Gap | None = None
    is_binary: bool = False


class _UnknownFieldError(Exception):
    """A field without a rule."""


Rule = Callable[[int, int, Any], Iterator[_Part]]


class RowGroupTemplate:
    """The layout of a row group, with gaps for its numbers and for the statistics of the wanted leaves."""

    def __init__(self, group: Struct, leaves: Sequence[Leaf], wanted: Sequence[int]) -> None:
        self._leaves, self._facts = leaves, read_group(group, wanted)
        self._checked = [tuple(_Gap(leaf, name) for name in _CHECKED_FIELDS.values()) for leaf in range(len(leaves))]
        self._blooms: list[int] = []
        self._patterns: list[re.Pattern[bytes]] = []
        self._gaps: list[_Gap | None] = []
        pattern = b""
        for part in _parts(group, _group_rule(leaves, frozenset(wanted))):
            pattern += part.pattern
            if part.gap is not None or part.is_binary:
                self._gaps.append(part.gap)
            if part.gap is not None and part.gap.leaf is not None and part.gap.name == "bloom_size":
                self._blooms.append(part.gap.leaf)
            if part.is_binary:
                self._patterns.append(re.compile(pattern, re.DOTALL))
                pattern = b""
        self._patterns.append(re.compile(pattern, re.DOTALL))

    @classmethod
    def of(cls, group: Struct, leaves: Sequence[Leaf], wanted: Sequence[int]) -> RowGroupTemplate | None:
        """Return a template, or None if the row group has unknown fields."""
        try:
            return cls(group, leaves, wanted)
        except _UnknownFieldError:
            return None

    def match(self, data: bytes, at: int, data_end: int) -> tuple[RowGroupFacts, int] | None:
        """Return the facts of the row group at a position, and the position after it, or None if the layout differs.

        Inconsistent numbers raise `pa.ArrowInvalid`, as they do when a footer is parsed field by field.
        """
        raw: list[bytes] = []
        for pattern in self._patterns[:-1]:
            match = pattern.match(data, at)
            if match is None:
                return None
            at = match.end()
            raw += match.groups()
            size = raw[-1][0] if len(raw[-1]) == 1 else read_varint(raw[-1], 0)[0]
            raw[-1] = data[at : at + size]
            at += size
        match = self._patterns[-1].match(data, at)
        if match is None:
            return None
        raw += match.groups()
        return self._read(dict(zip(self._gaps, raw, strict=True)), data_end), match.end()

    def _read(self, raw: dict[_Gap | None, bytes], data_end: int) -> RowGroupFacts:
        rows, uncompressed = check_count(_number(raw[_ROWS])), check_count(_number(raw[_BYTES]))
        for leaf, (values, data, dictionary, before, after) in zip(self._leaves, self._checked, strict=True):
            if raw[values] != raw[_ROWS]:
                check_values(_number(raw[values]), rows, leaf.is_repeated)
            dictionary_offset = _number(raw[dictionary]) if dictionary in raw else 0
            sizes = _number(raw[before]), _number(raw[after])
            check_offsets(rows, _number(raw[data]), dictionary_offset, *sizes, data_end)
        for number in self._blooms:
            check_bloom(_bloom(number, raw), data_end)
        stats = {leaf: _stats_from(leaf, like, raw) for leaf, like in self._facts.stats.items()}
        return RowGroupFacts(rows, uncompressed, self._facts.codec, stats)


_ROWS, _BYTES = _Gap(None, "rows"), _Gap(None, "bytes")


def _number(raw: bytes) -> int:
    return read_signed(raw, 0)[0]


def _stats_from(leaf: int, like: RawStats, raw: dict[_Gap | None, bytes]) -> RawStats:
    """Return the statistics of a leaf from the gaps, with the flags of the template's row group."""
    nulls = raw.get(_Gap(leaf, "nulls"))
    count = None if nulls is None else _number(nulls)
    lower, upper, *old = (raw.get(_Gap(leaf, name)) for name in ("lower", "upper", "lower_old", "upper_old"))
    return replace(
        like,
        nulls=count if count is not None and 0 <= count <= _number(raw[_Gap(leaf, "values")]) else None,
        lower=lower,
        upper=upper,
        differ=bounds_differ((lower, upper), old),
        bloom=_bloom(leaf, raw),
    )


def _bloom(leaf: int, raw: dict[_Gap | None, bytes]) -> tuple[int, int] | None:
    offset, size = raw.get(_Gap(leaf, "bloom_offset")), raw.get(_Gap(leaf, "bloom_size"))
    return None if offset is None or size is None else (_number(offset), _number(size))


def _parts(fields: Struct, rule: Rule) -> Iterator[_Part]:
    """Yield the parts of a struct. The rule returns the parts of a field's value."""
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        yield _Part(re.escape(field_header(number, last, kind)))
        if kind not in (TRUE, FALSE):
            yield from rule(number, kind, value)
        last = number
    yield _Part(rb"\x00")


def _list_parts(value: tuple[int, list[Any]], each: Callable[[int, Any], Iterator[_Part]]) -> Iterator[_Part]:
    kind, items = value
    yield _Part(re.escape(list_header(len(items), kind)))
    for number, item in enumerate(items):
        yield from each(number, item)


def _any_number(kind: int, gap: _Gap | None = None) -> Iterator[_Part]:
    if kind not in _NUMBERS:
        raise _UnknownFieldError
    yield _Part(_NUMBER) if gap is None else _Part(b"(" + _NUMBER + b")", gap)


def _same_value(kind: int, value: Any) -> Iterator[_Part]:
    yield _Part(re.escape(write_value(kind, value)))


def _group_rule(leaves: Sequence[Leaf], wanted: frozenset[int]) -> Rule:
    gaps = {GroupField.rows: _ROWS, GroupField.uncompressed_size: _BYTES}

    def chunk_parts(number: int, chunk: Struct) -> Iterator[_Part]:
        return _parts(chunk, _chunk_rule(number, leaves[number], number in wanted))

    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        if field == GroupField.columns:
            return _list_parts(value, chunk_parts)
        if field == GroupField.sorting:
            return _same_value(kind, value)
        return _any_number(kind, gaps.get(field))

    return rule


def _chunk_rule(number: int, leaf: Leaf, is_wanted: bool) -> Rule:
    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        if field == ChunkField.meta:
            return _parts(value, _meta_rule(number, leaf, is_wanted))
        return _any_number(kind)

    return rule


def _meta_rule(number: int, leaf: Leaf, is_wanted: bool) -> Rule:
    names = _CHECKED_FIELDS | {MetaField.bloom_offset: "bloom_offset", MetaField.bloom_size: "bloom_size"}
    gaps = {field: _Gap(number, name) for field, name in names.items()}

    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        if field in _CONSTANT_FIELDS:
            return _same_value(kind, value)
        if field == MetaField.statistics and kind == STRUCT:
            return _parts(value, _statistics_rule(number, leaf, value if is_wanted else {}))
        if field == MetaField.encoding_stats and kind == LIST and value[0] == STRUCT:
            return _list_parts(value, lambda _, count: _parts(count, _page_count_rule))
        if field == MetaField.size_statistics and kind == STRUCT:
            return _parts(value, _sizes_rule)
        return _any_number(kind, gaps.get(field))

    return rule


def _statistics_rule(number: int, leaf: Leaf, wanted: Struct) -> Rule:
    """Use the bounds of the newer fields if both exist, else those of the deprecated fields."""
    new = {StatisticsField.min, StatisticsField.max} <= wanted.keys()
    old = "_old" if new else ""
    names = {
        StatisticsField.min_old: "lower" + old,
        StatisticsField.max_old: "upper" + old,
        StatisticsField.nulls: "nulls",
    }
    if new:
        names |= {StatisticsField.min: "lower", StatisticsField.max: "upper"}

    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        gap = _Gap(number, names[field]) if field in names and field in wanted else None
        if kind != BINARY:
            yield from _any_number(kind, gap)
        elif PHYSICAL[leaf.physical] == "BYTE_ARRAY" or len(value) > 127:
            yield _Part(b"(" + _NUMBER + b")", gap, is_binary=True)
        else:
            inner = b".{%d}" % len(value)
            yield _Part(re.escape(bytes((len(value),))))
            yield _Part(inner) if gap is None else _Part(b"(" + inner + b")", gap)

    return rule


def _page_count_rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
    return _any_number(kind) if field == _COUNT else _same_value(kind, value)


def _sizes_rule(field: int, kind: int, value: Any) -> Iterator[_Part]:  # noqa: ARG001 - the signature of a rule
    if kind != LIST:
        return _any_number(kind)
    return _list_parts(value, lambda _, __: _any_number(value[0]))

"""Row groups of footers that are laid out alike, read by matching bytes: far faster than field by field.

The files of a dataset mostly come from one writer and have one schema, so their row groups differ in numbers and bounds
only. A template is made from a row group that was read field by field. It has the bytes that must be the same (which
fields there are, names, types, codecs, encodings) and gaps for what may differ. Texts have their length before them
and are skipped by it, so a match is an exact reading of the bytes. What does not match is read field by field.
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
from fsspeckit.core.parquet.column_stats import RawStats, raw_stats
from fsspeckit.core.parquet.footer import CODECS, PHYSICAL, Leaf, check_count, check_place, check_values

_NUMBER = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_NUMBERS = (I16, I32, I64)
_SAME = (MetaField.kind, MetaField.encodings, MetaField.path, MetaField.codec)
_CHECKED = {
    MetaField.values: "values",
    MetaField.data_at: "data_at",
    MetaField.dictionary_at: "dictionary_at",
    MetaField.plain_size: "plain_size",
    MetaField.size: "size",
}
_COUNT = 3  # field of an entry of page counts; the others say what is counted


class RowGroupFacts(NamedTuple):
    """What planning takes from a row group: rows, bytes before compression, and statistics of some leaves."""

    rows: int
    uncompressed: int
    codec: str
    stats: dict[int, RawStats]


def read_group(group: Struct, wanted: Sequence[int]) -> RowGroupFacts:
    """The facts of a row group that was read field by field."""
    chunks = [chunk[ChunkField.meta][1] for chunk in chunks_of(group)]
    codec = CODECS[chunks[0][MetaField.codec][1]] if chunks else ""
    stats = {leaf: raw_stats(chunks[leaf]) for leaf in wanted}
    return RowGroupFacts(group[GroupField.rows][1], group[GroupField.plain_size][1], codec, stats)


class _Gap(NamedTuple):
    """The name of what a gap holds: a field of a leaf, or of the group itself where there is no leaf."""

    leaf: int | None
    name: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a pattern. One that holds something has one pair of parentheses; a text follows its length."""

    pattern: bytes
    holds: _Gap | None = None
    is_text: bool = False


class _UnknownFieldError(Exception):
    """A field for which there is no rule here."""


Rule = Callable[[int, int, Any], Iterator[_Part]]


class RowGroupTemplate:
    """A row group with gaps, of which those of some leaves are wanted."""

    def __init__(self, group: Struct, leaves: Sequence[Leaf], wanted: Sequence[int]) -> None:
        self._leaves, self._facts = leaves, read_group(group, wanted)
        self._checked = [tuple(_Gap(leaf, name) for name in _CHECKED.values()) for leaf in range(len(leaves))]
        self._patterns: list[re.Pattern[bytes]] = []
        self._gaps: list[_Gap | None] = []
        pattern = b""
        for part in _parts(group, _group_rule(leaves, frozenset(wanted))):
            pattern += part.pattern
            if part.holds is not None or part.is_text:
                self._gaps.append(part.holds)
            if part.is_text:
                self._patterns.append(re.compile(pattern, re.DOTALL))
                pattern = b""
        self._patterns.append(re.compile(pattern, re.DOTALL))

    @classmethod
    def of(cls, group: Struct, leaves: Sequence[Leaf], wanted: Sequence[int]) -> RowGroupTemplate | None:
        """A template, unless the row group has fields that are not known here."""
        try:
            return cls(group, leaves, wanted)
        except _UnknownFieldError:
            return None

    def match(self, data: bytes, at: int, data_end: int) -> tuple[RowGroupFacts, int] | None:
        """The facts of the row group at a position, and the position after it, if it is laid out like this one.

        Numbers that do not fit together raise `pa.ArrowInvalid`, as they do where a footer is read field by field.
        """
        found: list[bytes] = []
        for pattern in self._patterns[:-1]:
            matched = pattern.match(data, at)
            if matched is None:
                return None
            at = matched.end()
            found += matched.groups()
            size = found[-1][0] if len(found[-1]) == 1 else read_varint(found[-1], 0)[0]
            found[-1] = data[at : at + size]
            at += size
        matched = self._patterns[-1].match(data, at)
        if matched is None:
            return None
        found += matched.groups()
        return self._read(dict(zip(self._gaps, found, strict=True)), data_end), matched.end()

    def _read(self, found: dict[_Gap | None, bytes], data_end: int) -> RowGroupFacts:
        rows, uncompressed = check_count(_number(found[_ROWS])), check_count(_number(found[_BYTES]))
        for leaf, (values, data_at, dictionary_at, plain_size, size) in zip(self._leaves, self._checked, strict=True):
            if found[values] != found[_ROWS]:
                check_values(_number(found[values]), rows, leaf.is_repeated)
            before = _number(found[dictionary_at]) if dictionary_at in found else 0
            sizes = _number(found[plain_size]), _number(found[size])
            check_place(rows, _number(found[data_at]), before, *sizes, data_end)
        stats = {leaf: _filled(leaf, raw, found) for leaf, raw in self._facts.stats.items()}
        return RowGroupFacts(rows, uncompressed, self._facts.codec, stats)


_ROWS, _BYTES = _Gap(None, "rows"), _Gap(None, "bytes")


def _number(raw: bytes) -> int:
    return read_signed(raw, 0)[0]


def _filled(leaf: int, like: RawStats, found: dict[_Gap | None, bytes]) -> RawStats:
    """Statistics that have what others have, from the gaps of another row group."""
    nulls = found.get(_Gap(leaf, "nulls"))
    count = None if nulls is None else _number(nulls)
    at, size = found.get(_Gap(leaf, "bloom_at")), found.get(_Gap(leaf, "bloom_size"))
    return replace(
        like,
        nulls=count if count is not None and 0 <= count <= _number(found[_Gap(leaf, "values")]) else None,
        lower=found.get(_Gap(leaf, "lower")),
        upper=found.get(_Gap(leaf, "upper")),
        bloom=None if at is None or size is None else (_number(at), _number(size)),
    )


def _parts(fields: Struct, rule: Rule) -> Iterator[_Part]:
    """The parts of a struct, field by field; the rule says what a field's value may be."""
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


def _the_same(kind: int, value: Any) -> Iterator[_Part]:
    yield _Part(re.escape(write_value(kind, value)))


def _group_rule(leaves: Sequence[Leaf], wanted: frozenset[int]) -> Rule:
    gaps = {GroupField.rows: _ROWS, GroupField.plain_size: _BYTES}

    def chunk_parts(number: int, chunk: Struct) -> Iterator[_Part]:
        return _parts(chunk, _chunk_rule(number, leaves[number], number in wanted))

    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        if field == GroupField.columns:
            return _list_parts(value, chunk_parts)
        if field == GroupField.sorting:
            return _the_same(kind, value)
        return _any_number(kind, gaps.get(field))

    return rule


def _chunk_rule(number: int, leaf: Leaf, is_wanted: bool) -> Rule:
    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        if field == ChunkField.meta:
            return _parts(value, _meta_rule(number, leaf, is_wanted))
        return _any_number(kind)

    return rule


def _meta_rule(number: int, leaf: Leaf, is_wanted: bool) -> Rule:
    gaps = {field: _Gap(number, name) for field, name in _CHECKED.items()}
    if is_wanted:
        gaps |= {MetaField.bloom_at: _Gap(number, "bloom_at"), MetaField.bloom_size: _Gap(number, "bloom_size")}

    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        if field in _SAME:
            return _the_same(kind, value)
        if field == MetaField.statistics and kind == STRUCT:
            return _parts(value, _statistics_rule(number, leaf, value if is_wanted else {}))
        if field == MetaField.page_counts and kind == LIST and value[0] == STRUCT:
            return _list_parts(value, lambda _, count: _parts(count, _page_count_rule))
        if field == MetaField.sizes and kind == STRUCT:
            return _parts(value, _sizes_rule)
        return _any_number(kind, gaps.get(field))

    return rule


def _statistics_rule(number: int, leaf: Leaf, wanted: Struct) -> Rule:
    """Bounds are those of the newer fields where both are there."""
    new = {StatisticsField.min, StatisticsField.max} <= wanted.keys()
    low, high = (
        (StatisticsField.min, StatisticsField.max) if new else (StatisticsField.min_old, StatisticsField.max_old)
    )
    names = {low: "lower", high: "upper", StatisticsField.nulls: "nulls"}

    def rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
        gap = _Gap(number, names[field]) if field in names and field in wanted else None
        if kind != BINARY:
            yield from _any_number(kind, gap)
        elif PHYSICAL[leaf.physical] == "BYTE_ARRAY" or len(value) > 127:
            yield _Part(b"(" + _NUMBER + b")", gap, is_text=True)
        else:
            inner = b".{%d}" % len(value)
            yield _Part(re.escape(bytes((len(value),))))
            yield _Part(inner) if gap is None else _Part(b"(" + inner + b")", gap)

    return rule


def _page_count_rule(field: int, kind: int, value: Any) -> Iterator[_Part]:
    return _any_number(kind) if field == _COUNT else _the_same(kind, value)


def _sizes_rule(field: int, kind: int, value: Any) -> Iterator[_Part]:  # noqa: ARG001 - as rules are called
    if kind != LIST:
        return _any_number(kind)
    return _list_parts(value, lambda _, __: _any_number(value[0]))

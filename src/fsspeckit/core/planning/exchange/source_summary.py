"""Summarize a source that is too large for one process, and find the row groups of files that may have its keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.categories import has_categories
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import check_sequence_values, null_key_error
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.exchange.summarize_source import SourceSummary, SummarizeSource, raise_first_failure
from fsspeckit.core.planning.exchange.key_intervals import KeyIntervals
from fsspeckit.core.planning.merge_request import MergeSchemas
from fsspeckit.core.progress import Reporter
from fsspeckit.core.values.take import with_wide_codes

_RANGES = 100_000
_MOST_RANGES, _FEWEST_RANGES = 4_000, 16
_PART_ROWS = 1_500_000
_SCAN_ROWS = 2_000_000
_FEWEST_PARTS, _MOST_PARTS = 4, 8_192


def summarize(engine: Engine, source: Source, how: SummarizeSource, reporter: Reporter) -> list[SourceSummary]:
    """Return the summaries of all parts of a source; the number of ranges is chosen here.

    Raises:
        ExpressionError: ``delete_when`` cannot be computed.
        SchemaMismatchError: A value does not fit its type.
    """
    pieces = source.pieces(how.columns)
    ranges = min(_MOST_RANGES, max(_FEWEST_RANGES, _RANGES // len(pieces)))
    found = engine.map(replace(how, ranges=ranges), pieces, reporter.stage("summarize source", len(pieces)))
    raise_first_failure(summary.failure for summary in found)
    return found


def check_nulls(summaries: Sequence[SourceSummary], schemas: MergeSchemas, operation: str) -> None:
    """Raise if a key column of the source has nulls."""
    for number, key in enumerate(schemas.keys):
        count = sum(summary.keys[number].nulls for summary in summaries)
        if count:
            raise null_key_error(key.name, "source", count, operation)


def check_sequences(summaries: Sequence[SourceSummary], name: str) -> None:
    """Raise if changes have no sequence."""
    nulls, has_nan = sum(each.no_sequence[0] for each in summaries), any(each.no_sequence[1] for each in summaries)
    check_sequence_values(name, nulls, has_nan)


def cast_fields(source: pa.Schema, body: pa.Schema) -> pa.Schema:
    """Return the columns whose values may not fit their type after the merge."""
    known = [field for field in body if field.name in source.names]
    return pa.schema([field for field in known if _may_not_fit(source.field(field.name), field)])


def _may_not_fit(own: pa.Field, wanted: pa.Field) -> bool:
    return own.type != wanted.type or not wanted.nullable or has_categories(wanted)


def coded_columns(body: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of dictionaries that may need wider codes; ``names`` are the columns that get values."""
    wide = with_wide_codes(body)
    return tuple(new.name for old, new in zip(body, wide, strict=True) if new.type != old.type and new.name in names)


def with_codes_for(body: pa.Schema, coded: Sequence[str], distinct: Iterable[Sequence[pa.Array]]) -> pa.Schema:
    """Return a schema with wider codes where they are needed; ``distinct`` has the values of these columns by part."""
    wide, fields = with_wide_codes(body), list(body)
    for name, found in zip(coded, zip(*distinct, strict=True), strict=False):
        at = body.get_field_index(name)
        if len(pc.unique(pa.concat_arrays(found))) >= 2 ** (fields[at].type.index_type.bit_width - 1):
            fields[at] = wide.field(at)
    return pa.schema(fields, body.metadata)


def key_intervals(summaries: Sequence[SourceSummary], schemas: MergeSchemas) -> dict[str, KeyIntervals]:
    """Return ranges that cover the values of the key columns that are in files."""
    return {
        key.name: KeyIntervals.union([summary.keys[at] for summary in summaries], key.type)
        for at, key in enumerate(schemas.keys)
        if key in schemas.file_keys
    }


def in_scans(rows: Sequence[int], row_groups: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """Split row groups into scans of a limited number of rows; ``rows`` are those of each row group."""
    scan: list[int] = []
    for number in row_groups:
        if scan and sum(rows[i] for i in scan) + rows[number] > _SCAN_ROWS:
            yield tuple(scan)
            scan = []
        scan.append(number)
    yield tuple(scan)


def part_count(rows: int) -> int:
    """Return the number of parts of an exchange of the keys of so many rows."""
    return min(_MOST_PARTS, max(_FEWEST_PARTS, rows // _PART_ROWS + 1))

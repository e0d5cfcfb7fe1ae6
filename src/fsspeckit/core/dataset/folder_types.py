"""Decide the types of partition columns before a change: those in the journal, or those that the first change sets.

The types of a dataset that the journal has do not change. A dataset without them gets those that its folders look like,
or those of the source if its values do not fit. The source is converted exactly. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.partitions import (
    as_partition_values,
    distinct_values,
    has_own_texts,
    plain_partition_type,
    reads_all,
)
from fsspeckit.common.types import is_text
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.dataset.indexed_files import partition_values
from fsspeckit.core.dataset.snapshot import Snapshot, folder_schema, partition_schema
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.model import PartitionValues


def settled(
    source: Source,
    snapshot: Snapshot,
    values: Sequence[PartitionValues] | None = None,
    written: pa.Schema | None = None,
) -> tuple[Source, Snapshot]:
    """Return a source in the types of the partition columns of a dataset, and a snapshot with these types.

    Args:
        source: The rows.
        snapshot: The dataset.
        values: The values of all folders, if the snapshot does not have all files.
        written: The columns that are written, if they are others than those of the source.

    Raises:
        SchemaMismatchError: A value of the source does not fit.
    """
    columns = snapshot.partition_columns
    if snapshot.schema is None or not columns:
        return source, snapshot
    inside, known = snapshot.schema.names, snapshot.view.partition_types
    if values is None:
        values = [each for each in partition_values(snapshot.files) if each is not None]
    folders = partition_schema(snapshot) if not values else folder_schema(snapshot.view, columns, values, inside)
    recorded = dict(zip(columns, [None] * len(columns) if known is None else known.of_columns(columns), strict=True))
    fields, convert = [], []
    for at, name in enumerate(columns):
        field = pa.field(name, pa.null()) if name in inside else folders.field(name)
        own = (written or source.schema).field(name) if name in (written or source.schema).names else None
        if own is not None and name not in inside:
            if recorded[name] != field.type:
                texts = list(dict.fromkeys(each[at] for each in values))
                field = field.with_type(_chosen(field.type, texts, own, source))
            if not is_text(field.type) and field.type != own.type and name in source.schema.names:
                as_partition_values(_distinct(source, name), field.type, name)
                convert.append(field)
        fields.append(field)
    types = PartitionTypes.of(pa.schema(fields), inside)
    snapshot = replace(snapshot, view=replace(snapshot.view, partition_types=types))
    return (source.with_partition_types(pa.schema(convert)) if convert else source), snapshot


def types_written(
    snapshot: Snapshot, partitions: Sequence[str], source: Source, written: pa.Schema | None = None
) -> PartitionTypes | None:
    """Return the types of the partition columns after a change of a settled snapshot with a source."""
    if snapshot.schema is None:
        fields = [(written or source.schema).field(name) for name in partitions]
        return PartitionTypes.of(pa.schema([_without_nanoseconds(field, source) for field in fields]))
    return snapshot.view.partition_types if snapshot.partition_columns else None


def _without_nanoseconds(field: pa.Field, source: Source) -> pa.Field:
    """Return a column of a new dataset with microseconds if its values have no more: few readers know nanoseconds."""
    type_ = plain_partition_type(field.type)
    if not pa.types.is_timestamp(type_) or type_.unit != "ns":
        return field
    shorter = pa.timestamp("us", type_.tz)
    return field.with_type(shorter) if _fits(source, field.name, shorter) else field


def _chosen(inferred: pa.DataType, texts: Sequence[str | None], field: pa.Field, source: Source) -> pa.DataType:
    """Return the type of a column without a recorded one, by its folders and the column of the source."""
    own = plain_partition_type(field.type)
    if pa.types.is_null(field.type) or own == inferred:
        return inferred
    if is_text(inferred):
        return own if has_own_texts(texts, own) else inferred
    if (not is_text(own) or has_own_texts(texts, inferred)) and _fits(source, field.name, inferred):
        return inferred
    return own if reads_all(texts, own) else inferred


def _fits(source: Source, name: str, type_: pa.DataType) -> bool:
    if name not in source.schema.names:
        return False
    try:
        as_partition_values(_distinct(source, name), type_, name)
    except SchemaMismatchError:
        return False
    return True


def _distinct(source: Source, name: str) -> pa.Array:
    """Return the distinct values of a column. One piece of the source is in memory at a time."""
    found = [distinct_values(piece.read()[name]) for piece in source.pieces([name])]
    return distinct_values(pa.chunked_array(found, found[0].type)) if found else pa.nulls(0)

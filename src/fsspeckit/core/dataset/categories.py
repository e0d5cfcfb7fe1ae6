"""Read the categories of ordered columns of a dataset: the dictionaries of its files. Nothing here writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.categories import (
    categories_of,
    enum_values,
    has_categories,
    has_fixed_values,
    is_ordered,
    with_categories,
)
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, partition_schema
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.model import ViewFile
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.reader import open_parquet
from fsspeckit.core.storage import Storage, for_each

Categories = dict[str, pa.Array]


def categories_for(source: Source, snapshot: Snapshot, place: Place, operation: str) -> Snapshot:
    """Return a snapshot whose schema carries the categories of ordered columns that a source writes to.

    Raises:
        SchemaMismatchError: The dataset has no values that tell an order, and the source does not have one either.
    """
    local = source if source.exchange_folder is None else None
    with vanished_file_is_conflict(place, operation):
        found = read_categories(place.storage, snapshot, source.schema.names, local)
    if found.schema is None or not source.rows:
        return found
    for field in found.schema:
        if field.name in source.schema.names and has_fixed_values(field) and not has_categories(field):
            own = source.schema.field(field.name).type
            if not is_ordered(own) and not pa.types.is_null(own):
                raise SchemaMismatchError(
                    f"{operation} of {place.path}: column {field.name!r} has ordered categories, and no file has their "
                    "order. Pass ordered categories (pandas.Categorical with ordered=True) once."
                )
    return replace(found, schema=own_categories(found.schema, source))


def own_categories(schema: pa.Schema, source: Source) -> pa.Schema:
    """Return a schema in which ordered columns without known categories carry those of the source."""
    return pa.schema([_with_own(field, source) for field in schema], schema.metadata)


def _with_own(field: pa.Field, source: Source) -> pa.Field:
    if has_categories(field) or not has_fixed_values(field) or field.name not in source.schema.names:
        return field
    if not is_ordered(source.schema.field(field.name).type):
        return field
    found: Categories = {}
    for chunk in source.columns([field.name])[field.name].chunks:
        _add(found, {field.name: chunk.dictionary})
    return with_categories(field, found[field.name]) if found else field


def columns_left(storage: Storage, snapshot: Snapshot) -> Emptied | None:
    """Return what the journal keeps of a dataset when its last file is removed."""
    if snapshot.schema is None:
        return None
    found = read_categories(storage, snapshot, snapshot.schema.names)
    return Emptied.of(found.schema, partition_schema(snapshot))


def read_categories(
    storage: Storage, snapshot: Snapshot, columns: Collection[str], source: Source | None = None
) -> Snapshot:
    """Return a snapshot whose schema carries the categories of ordered columns that get values.

    The order is that of readers, which join the dictionaries of all files. If the first file has all values of a
    source, no other file is read.

    Args:
        storage: The storage of the files.
        snapshot: The snapshot. Its view has all files of the dataset.
        columns: The columns that get values.
        source: The values, if they are in this process.
    """
    fields = [] if snapshot.schema is None else list(snapshot.schema)
    names = [field.name for field in fields if field.name in columns and has_fixed_values(field)]
    if snapshot.schema is None or not names:
        return snapshot
    values = {} if source is None else {name: source.columns([name])[name].unique() for name in names}
    files = sorted(snapshot.view.files, key=lambda file: file.path)
    kept = () if snapshot.view.emptied is None else snapshot.view.emptied.stored
    found: Categories = {field.name: categories_of(field) for field in kept if has_categories(field)}
    fixed = [field for field in fields if field.name in names]
    enums: Categories = {field.name: known for field in fixed if (known := enum_values(field)) is not None}
    found |= enums
    names = [name for name in names if name not in enums]
    for some in (files[:1], files[1:]):
        if names and not _has_all(found, names, values):
            for part in for_each(storage, lambda file: _categories_of(storage, file, names), some):
                _add(found, part)
    fields = [
        with_categories(field, found[field.name]) if len(found.get(field.name, ())) else field for field in fields
    ]
    return replace(snapshot, schema=pa.schema(fields, snapshot.schema.metadata))


def _has_all(found: Categories, names: Sequence[str], values: Mapping[str, pa.Array]) -> bool:
    """Return whether all values are known to be categories."""
    if not all(name in found and name in values for name in names):
        return False
    return all(pc.all(pc.is_in(_plain(values[name], found[name].type), found[name])).as_py() for name in names)


def _plain(values: pa.Array, type_: pa.DataType) -> pa.Array:
    plain = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
    return plain.cast(type_).drop_null()


def _categories_of(storage: Storage, file: ViewFile, names: Sequence[str]) -> Categories:
    """Return the dictionaries of a file. Only the first row of each row group is decoded."""
    found: Categories = {}
    with report_damage("reading", file.path), open_parquet(storage, file, partial=True) as reader:
        known = [name for name in names if name in reader.schema_arrow.names]
        exact = None if any("." in name for name in known) else known
        for group in range(reader.num_row_groups if known else 0):
            batch = next(reader.iter_batches(1, row_groups=[group], columns=exact), None)
            if batch is not None:
                _add(found, {name: _dictionary(batch[name]) for name in known})
    return found


def _dictionary(column: pa.Array) -> pa.Array:
    return column.dictionary if pa.types.is_dictionary(column.type) else column


def _add(found: Categories, more: Categories) -> None:
    """Add the categories that are not known yet, in their order."""
    for name, values in more.items():
        known = found.get(name)
        found[name] = values.drop_null() if known is None else pc.unique(pa.concat_arrays([known, values.drop_null()]))

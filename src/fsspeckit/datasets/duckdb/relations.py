"""DuckDB relations as Arrow data, with the types that DuckDB would otherwise hand over as something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.datasets.duckdb.filters import quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

_EXACT = {"uuid": "BLOB", "hugeint": "DECIMAL(38, 0)", "uhugeint": "DECIMAL(38, 0)"}
_LOSSY = ("TIME WITH TIME ZONE", "BIT", "BIGNUM", "VARINT")


def is_relation(data: Any) -> bool:
    """Whether data is a DuckDB relation; asked of the class's name, so that DuckDB need not be imported."""
    return any(base.__name__ == "DuckDBPyRelation" for base in type(data).__mro__)


def relation_reader(relation: DuckDBPyRelation) -> pa.RecordBatchReader:
    """The rows of a relation as a stream: UUID and JSON columns as such, numbers of 128 bits checked to fit."""
    columns = list(zip(relation.columns, relation.types, strict=True))
    for name, type_ in columns:
        _refuse(name, type_)
    casts = {name: exact for name, type_ in columns if (exact := _sql_type(type_)) != str(type_)}
    if casts:
        replaced = ", ".join(f"CAST({quote(name)} AS {exact}) AS {quote(name)}" for name, exact in casts.items())
        relation = relation.project(f"* REPLACE ({replaced})")
    reader = pa.RecordBatchReader.from_stream(relation)
    fields = [_arrow_field(type_, field) for field, (_, type_) in zip(reader.schema, columns, strict=True)]
    schema = pa.schema(fields, reader.schema.metadata)
    if schema.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(schema, _cast(reader, schema))


def _cast(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _refuse(name: str, type_: DuckDBPyType) -> None:
    if str(type_) in _LOSSY:
        raise UnsupportedDataError(
            f"column {name!r} of the relation has the type {type_}, which no Parquet file holds; "
            "cast it in the query, for example to VARCHAR"
        )
    for child, inner in _children(type_):
        _refuse(f"{name}.{child}", inner)


def _children(type_: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    if type_.id not in ("list", "array", "struct", "map"):
        return []
    # The last child of an array is its size.
    inner: Any = type_.children[:1] if type_.id == "array" else type_.children
    return list(inner)


def _sql_type(type_: DuckDBPyType) -> str:
    """The SQL type that DuckDB hands over without loss; the type itself for most."""
    if type_.id in _EXACT:
        return _EXACT[type_.id]
    children = [(name, child, _sql_type(child)) for name, child in _children(type_)]
    if all(exact == str(child) for _, child, exact in children):
        return str(type_)
    match type_.id:
        case "list":
            return f"{children[0][2]}[]"
        case "array":
            return f"{children[0][2]}[{type_.children[1][1]}]"
        case "map":
            return f"MAP({children[0][2]}, {children[1][2]})"
    return f"STRUCT({', '.join(f'{quote(name)} {exact}' for name, _, exact in children)})"


def _arrow_type(type_: DuckDBPyType, handed: pa.DataType) -> pa.DataType:
    """The Arrow type that says what the DuckDB type means, where the one handed over does not."""
    if type_.id == "uuid":
        return pa.uuid()
    if str(type_) == "JSON":
        return pa.json_(pa.string())
    inner = [child for _, child in _children(type_)]
    match type_.id:
        case "list":
            return pa.list_(_arrow_field(inner[0], handed.value_field))
        case "array":
            return pa.list_(_arrow_field(inner[0], handed.value_field), handed.list_size)
        case "struct":
            return pa.struct([_arrow_field(child, field) for child, field in zip(inner, handed, strict=True)])
        case "map":
            return pa.map_(_arrow_field(inner[0], handed.key_field), _arrow_field(inner[1], handed.item_field))
    return handed


def _arrow_field(type_: DuckDBPyType, handed: pa.Field) -> pa.Field:
    return handed.with_type(_arrow_type(type_, handed.type))

"""DuckDB relations as Arrow data, with the types that DuckDB would otherwise hand over as something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError
from fsspeckit.datasets.duckdb.failures import naming_trouble
from fsspeckit.datasets.duckdb.filters import quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

_EXACT = {"uuid": "BLOB", "hugeint": "DECIMAL(38, 0)", "uhugeint": "DECIMAL(38, 0)"}
_CAST_FAILED = "to DECIMAL(38,0)"
_LOSSY = ("TIME WITH TIME ZONE", "BIT", "BIGNUM", "VARINT")


def is_relation(data: Any) -> bool:
    """Whether data is a DuckDB relation; asked of the class's name, so that DuckDB need not be imported."""
    return any(base.__name__ == "DuckDBPyRelation" for base in type(data).__mro__)


def relation_reader(relation: DuckDBPyRelation) -> pa.RecordBatchReader:
    """The rows of a relation as a stream: UUID and JSON columns as such, numbers of 128 bits checked to fit."""
    with naming_trouble("reading the relation"):
        columns = list(zip(relation.columns, relation.types, strict=True))
    for name, type_ in columns:
        _refuse(name, type_)
    with _naming_trouble(columns):
        reader = pa.RecordBatchReader.from_stream(_exact(relation, [_sql_type(type_) for _, type_ in columns]))
    handed = [field.with_name(name) for field, (name, _) in zip(reader.schema, columns, strict=True)]
    fields = [_arrow_field(type_, field) for field, (_, type_) in zip(handed, columns, strict=True)]
    schema = pa.schema(fields, reader.schema.metadata)
    return pa.RecordBatchReader.from_batches(schema, _batches(reader, schema, columns))


def _exact(relation: DuckDBPyRelation, types: list[str]) -> DuckDBPyRelation:
    """The relation with its columns cast to these types; by number, since names may stand twice but for their case."""
    if types == [str(type_) for type_ in relation.types]:
        return relation
    casts = (f"CAST(#{number} AS {type_}) AS c{number}" for number, type_ in enumerate(types, 1))
    return relation.project(", ".join(casts))


def _batches(
    reader: pa.RecordBatchReader, schema: pa.Schema, columns: list[tuple[str, DuckDBPyType]]
) -> Iterator[pa.RecordBatch]:
    with _naming_trouble(columns):
        for batch in reader:
            arrays = [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _naming_trouble(columns: list[tuple[str, DuckDBPyType]]) -> AbstractContextManager[None]:
    """What DuckDB has to say while it runs a relation, as our own error."""

    def blame(reason: str) -> Exception:
        if _CAST_FAILED in reason:
            wide = [name for name, type_ in columns if "HUGEINT" in str(type_)]
            return SchemaMismatchError(
                f"column(s) {wide} of the relation hold numbers that no Parquet file holds ({reason}); "
                "cast them in the query, for example to DOUBLE or VARCHAR"
            )
        return UnsupportedDataError(
            f"the relation cannot be read ({reason}); run its query by itself and correct it, then pass it again"
        )

    return naming_trouble("reading the relation", blame)


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

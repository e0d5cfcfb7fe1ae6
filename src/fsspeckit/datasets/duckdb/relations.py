"""DuckDB relations as Arrow data, with the types that DuckDB would otherwise hand over as something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError
from fsspeckit.common.types import is_any_list, list_like
from fsspeckit.datasets.duckdb.failures import report_duckdb_errors

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from duckdb.sqltypes import DuckDBPyType

_EXACT = {"uuid": "BLOB", "hugeint": "DECIMAL(38, 0)", "uhugeint": "DECIMAL(38, 0)"}
_CAST_FAILED = "to DECIMAL(38,0)"
_LOSSY = ("TIME WITH TIME ZONE", "BIT", "BIGNUM", "VARINT", "VARIANT", "GEOMETRY")


def is_relation(data: Any) -> bool:
    """Whether data is a DuckDB relation; asked of the class's name, so that DuckDB need not be imported."""
    return any(base.__name__ == "DuckDBPyRelation" for base in type(data).__mro__)


def relation_reader(relation: DuckDBPyRelation) -> pa.RecordBatchReader:
    """The rows of a relation as a stream: UUID and JSON columns as such, numbers of 128 bits checked to fit."""
    with report_duckdb_errors("reading the relation"):
        columns = list(zip(relation.columns, relation.types, strict=True))
    for name, type_ in columns:
        _refuse(name, type_)
    with _naming_trouble(columns):
        reader = pa.RecordBatchReader.from_stream(_exact(relation, [_sql_type(type_) for _, type_ in columns]))
    plain = pa.schema(_plain(reader.schema))
    handed = [field.with_name(name) for field, (name, _) in zip(plain, columns, strict=True)]
    fields = [_arrow_field(type_, field) for field, (_, type_) in zip(handed, columns, strict=True)]
    schema = pa.schema(fields, reader.schema.metadata)
    return pa.RecordBatchReader.from_batches(schema, _batches(reader, plain, schema, columns))


def _exact(relation: DuckDBPyRelation, types: list[str]) -> DuckDBPyRelation:
    """The relation with its columns cast to these types; by number, since names may stand twice but for their case."""
    if types == [str(type_) for type_ in relation.types]:
        return relation
    casts = (f"CAST(#{number} AS {type_}) AS c{number}" for number, type_ in enumerate(types, 1))
    return relation.project(", ".join(casts))


def _batches(
    reader: pa.RecordBatchReader, plain: pa.Schema, schema: pa.Schema, columns: list[tuple[str, DuckDBPyType]]
) -> Iterator[pa.RecordBatch]:
    while (batch := _next_batch(reader, columns)) is not None:
        handed = [exact_cast(column, field.type) for column, field in zip(batch.columns, plain, strict=True)]
        arrays = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(handed, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _next_batch(reader: pa.RecordBatchReader, columns: list[tuple[str, DuckDBPyType]]) -> pa.RecordBatch | None:
    with _naming_trouble(columns):
        return next(reader, None)


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

    return report_duckdb_errors("reading the relation", blame, stream=True)


def _refuse(name: str, type_: DuckDBPyType) -> None:
    if str(type_).partition("(")[0] in _LOSSY:
        raise UnsupportedDataError(
            f"column {name!r} of the relation has the type {type_}, which files would hold as something else; "
            "cast it in the query, for example to VARCHAR"
        )
    for child, inner in _children(type_):
        _refuse(f"{name}.{child}", inner)


def _children(type_: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    if type_.id not in ("list", "array", "struct", "tuple", "map"):
        return []
    # The last child of an array is its size.
    inner: Any = type_.children[:1] if type_.id == "array" else type_.children
    return [(name or f"element{number}", child) for number, (name, child) in enumerate(inner, 1)]


def _has_names(type_: DuckDBPyType) -> bool:
    """False for what ``row(...)`` makes: a tuple, which is a struct without names before DuckDB 2."""
    return type_.id not in ("struct", "tuple") or all(name for name, _ in type_.children)


def _sql_type(type_: DuckDBPyType) -> str:
    """The SQL type that DuckDB hands over without loss; the type itself for most."""
    if type_.id in _EXACT:
        return _EXACT[type_.id]
    if str(type_) == "JSON":
        # Some settings hand JSON over as an extension type, which pyarrow casts to no other one.
        return "VARCHAR"
    children = [(name, child, _sql_type(child)) for name, child in _children(type_)]
    if _has_names(type_) and all(exact == str(child) for _, child, exact in children):
        return str(type_)
    match type_.id:
        case "list":
            return f"{children[0][2]}[]"
        case "array":
            return f"{children[0][2]}[{type_.children[1][1]}]"
        case "map":
            return f"MAP({children[0][2]}, {children[1][2]})"
    return f"STRUCT({', '.join(f'{_quoted(name)} {exact}' for name, _, exact in children)})"


def _quoted(name: str) -> str:
    """A name as an SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def _arrow_type(type_: DuckDBPyType, handed: pa.DataType) -> pa.DataType:
    """The Arrow type that says what the DuckDB type means, where the one handed over does not."""
    if type_.id == "uuid":
        return pa.uuid()
    if str(type_) == "JSON":
        return pa.json_(pa.string())
    if type_.id == "boolean":
        return pa.bool_()
    inner = [child for _, child in _children(type_)]
    match type_.id:
        case "list" | "array":
            return list_like(handed, _arrow_field(inner[0], handed.value_field))
        case "struct" | "tuple":
            return pa.struct([_arrow_field(child, field) for child, field in zip(inner, handed, strict=True)])
        case "map":
            return pa.map_(_arrow_field(inner[0], handed.key_field), _arrow_field(inner[1], handed.item_field))
    return handed


def _arrow_field(type_: DuckDBPyType, handed: pa.Field) -> pa.Field:
    return handed.with_type(_arrow_type(type_, handed.type))


def _plain(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields with lists for list views, at any depth: pyarrow's cast breaks list views, or cannot do them."""
    return [field.with_type(_plain_type(field.type)) for field in fields]


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if pat.is_struct(type_):
        return pa.struct(_plain(type_))
    if pat.is_map(type_):
        return pa.map_(*_plain([type_.key_field, type_.item_field]))
    if not is_any_list(type_):
        return type_
    (value,) = _plain([type_.value_field])
    if pat.is_list_view(type_):
        return pa.list_(value)
    return pa.large_list(value) if pat.is_large_list_view(type_) else list_like(type_, value)

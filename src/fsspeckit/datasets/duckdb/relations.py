"""Read DuckDB relations as Arrow data without a change of types or values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import require_extensions
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
    """Return whether data is a DuckDB relation, by the name of its class, so that DuckDB is not imported."""
    return any(base.__name__ == "DuckDBPyRelation" for base in type(data).__mro__)


def relation_reader(relation: DuckDBPyRelation) -> pa.RecordBatchReader:
    """Return the rows of a relation as a stream. UUID and JSON keep their types; 128-bit integers are decimals."""
    with report_duckdb_errors("reading the relation"):
        columns = list(zip(relation.columns, relation.types, strict=True))
    for name, type_ in columns:
        _check_type(name, type_)
    with _report_relation_errors(columns):
        reader = pa.RecordBatchReader.from_stream(_exact(relation, [_sql_type(type_) for _, type_ in columns]))
    plain = pa.schema(_plain(reader.schema))
    received = [field.with_name(name) for field, (name, _) in zip(plain, columns, strict=True)]
    fields = [_arrow_field(type_, field) for field, (_, type_) in zip(received, columns, strict=True)]
    schema = pa.schema(fields, reader.schema.metadata)
    return pa.RecordBatchReader.from_batches(schema, _batches(reader, plain, schema, columns))


def _exact(relation: DuckDBPyRelation, types: list[str]) -> DuckDBPyRelation:
    """Return the relation with columns cast to these types, by number, because names may differ only in case."""
    if types == [str(type_) for type_ in relation.types]:
        return relation
    casts = (f"CAST(#{number} AS {type_}) AS c{number}" for number, type_ in enumerate(types, 1))
    return relation.project(", ".join(casts))


def _batches(
    reader: pa.RecordBatchReader, plain: pa.Schema, schema: pa.Schema, columns: list[tuple[str, DuckDBPyType]]
) -> Iterator[pa.RecordBatch]:
    while (batch := _next_batch(reader, columns)) is not None:
        received = [exact_cast(column, field.type) for column, field in zip(batch.columns, plain, strict=True)]
        arrays = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(received, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _next_batch(reader: pa.RecordBatchReader, columns: list[tuple[str, DuckDBPyType]]) -> pa.RecordBatch | None:
    with _report_relation_errors(columns):
        return next(reader, None)


def _report_relation_errors(columns: list[tuple[str, DuckDBPyType]]) -> AbstractContextManager[None]:
    """Convert DuckDB's errors about a relation to errors of fsspeckit."""

    def relation_error(reason: str) -> Exception:
        if _CAST_FAILED in reason:
            wide = [name for name, type_ in columns if "HUGEINT" in str(type_)]
            return SchemaMismatchError(
                f"column(s) {wide} of the relation have numbers that do not fit a Parquet file ({reason}). "
                "Cast them in the query to VARCHAR."
            )
        return UnsupportedDataError(f"the relation cannot be read ({reason}). Correct its query and pass it again.")

    return report_duckdb_errors("reading the relation", relation_error, stream=True)


def _check_type(name: str, type_: DuckDBPyType) -> None:
    if str(type_).partition("(")[0] in _LOSSY:
        raise UnsupportedDataError(
            f"column {name!r} of the relation has the type {type_}, which a Parquet file stores as another type. "
            "Cast it in the query, for example to VARCHAR."
        )
    for child, inner in _children(type_):
        _check_type(f"{name}.{child}", inner)


def _children(type_: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    if type_.id not in ("list", "array", "struct", "tuple", "map"):
        return []
    # The second child of an array is its size.
    inner: Any = type_.children[:1] if type_.id == "array" else type_.children
    return [(name or f"element{number}", child) for number, (name, child) in enumerate(inner, 1)]


def _has_names(type_: DuckDBPyType) -> bool:
    """Return whether fields have names. ``row(...)`` has none: it is a tuple, or a struct before DuckDB 2."""
    return type_.id not in ("struct", "tuple") or all(name for name, _ in type_.children)


def _sql_type(type_: DuckDBPyType) -> str:
    """Return the SQL type that DuckDB exports without loss. For most types it is the type itself."""
    if type_.id in _EXACT:
        return _EXACT[type_.id]
    if str(type_) == "JSON":
        # With some settings DuckDB exports JSON as an extension type, which pyarrow cannot cast.
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


def _arrow_type(type_: DuckDBPyType, received: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a DuckDB type: the received type, or UUID, JSON and boolean inside it."""
    if type_.id == "uuid":
        require_extensions(["uuid"], "reading a relation")
        return pa.uuid()
    if str(type_) == "JSON":
        require_extensions(["json"], "reading a relation")
        return pa.json_(pa.string())
    if type_.id == "boolean":
        return pa.bool_()
    inner = [child for _, child in _children(type_)]
    match type_.id:
        case "list" | "array":
            return list_like(received, _arrow_field(inner[0], received.value_field))
        case "struct" | "tuple":
            return pa.struct([_arrow_field(child, field) for child, field in zip(inner, received, strict=True)])
        case "map":
            return pa.map_(_arrow_field(inner[0], received.key_field), _arrow_field(inner[1], received.item_field))
    return received


def _arrow_field(type_: DuckDBPyType, received: pa.Field) -> pa.Field:
    return received.with_type(_arrow_type(type_, received.type))


def _plain(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return fields with lists instead of list views, at any depth: pyarrow cannot cast list views correctly."""
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

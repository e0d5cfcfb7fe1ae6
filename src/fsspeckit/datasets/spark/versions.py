"""What differs between the supported versions of PySpark, 3.5 to 4.3."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def to_arrow_table(frame: DataFrame) -> pa.Table:
    """Return all rows of a DataFrame. `DataFrame.toArrow` exists since PySpark 4.0."""
    untyped: Any = frame
    if hasattr(untyped, "toArrow"):
        table: pa.Table = untyped.toArrow()
        return table
    if is_remote(frame.sparkSession):
        session = untyped._session
        return session.client.to_table(untyped._plan.to_proto(session.client))[0]
    return pa.Table.from_batches(untyped._collect_as_arrow(), arrow_schema(frame.schema))


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema in which Spark sends rows; timestamps with a time zone are in UTC.

    PySpark 4.2 and later require the time zone as an argument; earlier versions always use UTC and have no such
    argument.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def parse_schema(text: str) -> Any:
    """Return the Spark type of a text such as ``"id bigint, day date"``. `StructType.fromDDL` exists since 4.0."""
    from pyspark.sql import types

    parse = getattr(types.StructType, "fromDDL", None) or types._parse_datatype_string
    return parse(text)

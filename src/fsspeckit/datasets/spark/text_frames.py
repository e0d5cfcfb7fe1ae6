"""Text columns of a DataFrame as other types, parsed in executors by the rules for csv and json sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.errors import SchemaMismatchError, SourceFileError
from fsspeckit.common.text_values import blank_to_null, first_failure, not_a_value, parse_text
from fsspeckit.common.types import is_text, unwrapped
from fsspeckit.datasets.spark.executor_check import portable
from fsspeckit.datasets.spark.frames import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parsed_frame(frame: DataFrame, types: pa.Schema) -> DataFrame:
    """The same rows, with text columns parsed as the types that a schema names for them.

    A text that cannot be parsed fails the job that reads the rows, with column and value in the message.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    given = to_arrow_schema(frame.schema, timezone="UTC")
    wanted = [_wanted(field, types) for field in given]
    if [field.type for field in wanted] == given.types:
        return frame
    plain = frame.toDF(*(f"c{number}" for number in range(len(wanted))))  # names with dots cannot be resolved
    schema = from_arrow_schema(pa.schema(wanted))
    return plain.mapInArrow(portable(frame.sparkSession, _ParseText(pa.schema(wanted))), schema)


def _wanted(field: pa.Field, types: pa.Schema) -> pa.Field:
    if not is_text(field.type) or field.name not in types.names:
        return field
    type_ = unwrapped(types.field(field.name).type)
    if is_text(type_) or pat.is_null(type_):
        return field
    try:
        return field.with_type(spark_type(type_))
    except SchemaMismatchError:  # Spark lacks the type, and the merge will say so
        return field


@dataclass(frozen=True, slots=True)
class _ParseText:
    """What an executor does with the rows of a text file."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            pairs = zip(batch.columns, self.schema, strict=True)
            columns = [_parsed(column, field) for column, field in pairs]
            yield pa.RecordBatch.from_arrays(columns, self.schema.names)


def _parsed(column: pa.Array, field: pa.Field) -> pa.Array:
    if not is_text(column.type) or is_text(field.type):
        return column
    texts = blank_to_null(column)
    try:
        return parse_text(texts, field.type)
    except pa.ArrowException as error:
        value = texts[first_failure(texts, lambda part: parse_text(part, field.type))].as_py()
        raise SourceFileError(f"column {field.name!r}: {not_a_value(value, field.type)}. Correct the value.") from error

"""Bring an expression to the type of the column that gets its value."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.bridge import scalar
from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.types import is_number, is_text
from fsspeckit.core.expressions.constants import sql_name
from fsspeckit.core.expressions.tree import Call, Expression, Literal, null_of
from fsspeckit.core.expressions.types import cast_to, common_type, is_datetime, kind_of, parse_text, plain_type


def assigned(expression: Expression, field: pa.Field, text: str) -> Expression:
    """Return an expression in the type of the column that gets its value.

    Raises:
        ExpressionError: The column cannot hold such values.
    """
    target = plain_type(field.type)
    if isinstance(expression, Literal) and not expression.value.is_valid:
        if not field.nullable:
            raise ExpressionError(f"the column {field.name!r} cannot be NULL; pass a value")
        return null_of(target)
    if isinstance(expression, Literal) and is_text(expression.type) and (is_datetime(target) or pat.is_time(target)):
        found = parse_text(expression.value.as_py(), target)
        if found is not None:
            return found
    if not _can_assign(expression.type, target):
        raise ExpressionError(
            f"{text!r} has the type {expression.type}, but the column {field.name!r} has the type {field.type}; "
            f"{_remedy(expression, target, text)}"
        )
    if pat.is_decimal(target) and pat.is_decimal(expression.type) and expression.type.scale > target.scale:
        digits = Literal(scalar(target.scale))
        expression = Call("round", (expression, digits), expression.type)
    try:
        return cast_to(expression, target)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            f"{text!r} is not a value of the column {field.name!r}, which has the type {field.type}; "
            "pass a value that the type can represent exactly"
        ) from error


def _remedy(expression: Expression, target: pa.DataType, text: str) -> str:
    kind = kind_of(target)
    if isinstance(expression, Literal):
        return f"pass a {kind} that the type can represent"
    if is_number(expression.type) and pat.is_integer(target):
        return f"if whole numbers are wanted, round it, as in CAST(ROUND({text}) AS BIGINT)"
    if pat.is_date(target) and pat.is_timestamp(expression.type):
        return f"if the day is wanted, cut off the time of day, as in CAST({text} AS DATE)"
    try:
        pa.nulls(0, expression.type).cast(target)
    except pa.ArrowNotImplementedError:
        return f"pass a {kind}"
    return f"cast it, as in CAST({text} AS {sql_name(target)})"


def _can_assign(given: pa.DataType, target: pa.DataType) -> bool:
    if pat.is_integer(target):
        return bool(pat.is_integer(given))
    if (pat.is_date(target) and pat.is_timestamp(given)) or (pat.is_decimal(target) and pat.is_floating(given)):
        return False
    return common_type(given, target) is not None or given.equals(target)

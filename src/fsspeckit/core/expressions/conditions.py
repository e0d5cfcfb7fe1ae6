"""Conditions as callers pass them: SQL text, tuples as pyarrow takes them, or an expression of pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.assignment import assigned
from fsspeckit.core.expressions.grammar import Parsed, exp, near_names, parse_one
from fsspeckit.core.expressions.tree import ArrowCondition, Call, Column, Expression, Literal
from fsspeckit.core.expressions.types import kind_of, membership, plain_type, same_type

_OPERATORS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError)
_BY_NUMBER = "FieldPath("
_ADVICE = "pass SQL text such as \"day = '2026-11-02' AND amount > 10\", or tuples such as [('id', '>', 3)]"


@contextmanager
def errors_name(argument: str) -> Iterator[None]:
    """Begin the message of every expression error with the argument that the expression is from."""
    try:
        yield
    except ExpressionError as error:
        named = ExpressionError(f"{argument}: {error}")
        named.wrong_call = error.wrong_call
        raise named from error


def compile_condition(given: Any, schema: pa.Schema, *, tables: Sequence[str] = ()) -> Expression:
    """Return a condition as an expression over the columns of a schema.

    ``tables`` are prefixes that column names must have, such as ``source``.

    Raises:
        ExpressionError: It is not one condition over these columns.
    """
    if isinstance(given, str | Parsed):
        from fsspeckit.core.expressions.parse import parse_condition

        return parse_condition(given, schema, tables=tables)
    if isinstance(given, pc.Expression):
        return _arrow_condition(given, schema)
    if isinstance(given, Sequence) and given and not isinstance(given, bytes | bytearray):
        return _any_of(given, schema)
    raise ExpressionError(f"{given!r} is not a condition; {_ADVICE}")


def parse_once(given: Any) -> Any:
    """Return a condition as text in parsed form, so that it is parsed only once; others as they are."""
    return Parsed(given, parse_one(given)) if isinstance(given, str) else given


def columns_named(given: Any, schema: pa.Schema | None = None) -> list[str]:
    """Return the columns that a condition may read, before it is compiled; nested fields by their column.

    Those of an expression of pyarrow are known only with a schema.
    """
    given = parse_once(given)
    if isinstance(given, Parsed):
        return sorted({column.parts[0].name for column in given.node.find_all(exp().Column)})
    if isinstance(given, pc.Expression) and schema is not None:
        return sorted(_columns_read(given, schema))
    if isinstance(given, pc.Expression) or not isinstance(given, Sequence):
        return []
    parts = [part for group in given for part in (group if isinstance(group, list) else [group])]
    return sorted({str(part[0]) for part in parts if isinstance(part, Sequence) and len(part) == 3})


def _arrow_condition(given: pc.Expression, schema: pa.Schema) -> Expression:
    if _BY_NUMBER in str(given):
        raise ExpressionError(f"{given} names a column by its number; use the names of columns")
    try:
        _filter_nothing(given, schema)
    except _ARROW_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise ExpressionError(
            f"{given} cannot be applied to the columns {schema.names} ({reason}); {_ADVICE}"
        ) from error
    return ArrowCondition(given, _columns_read(given, schema))


def _columns_read(given: pc.Expression, schema: pa.Schema) -> frozenset[str]:
    return frozenset(name for name in schema.names if _reads(given, schema, name))


def _filter_nothing(given: pc.Expression, schema: pa.Schema) -> None:
    pa.Table.from_batches([], schema).filter(given)


def _reads(given: pc.Expression, schema: pa.Schema, name: str) -> bool:
    """Return whether an expression of pyarrow reads a column: without the column it cannot be applied."""
    try:
        _filter_nothing(given, schema.remove(schema.get_field_index(name)))
    except _ARROW_ERRORS:
        return True
    return False


def _any_of(given: Sequence[Any], schema: pa.Schema) -> Expression:
    """Tuples are joined by AND, lists of them by OR."""
    if all(isinstance(part, list) for part in given):
        return _joined("or", [_all_of(part, schema) for part in given])
    return _all_of(given, schema)


def _all_of(given: Sequence[Any], schema: pa.Schema) -> Expression:
    return _joined("and", [_comparison(part, schema) for part in given])


def _joined(operator: str, parts: Sequence[Expression]) -> Expression:
    if not parts:
        raise ExpressionError(f"a list of conditions is empty; {_ADVICE}")
    return parts[0] if len(parts) == 1 else Call(operator, tuple(parts), pa.bool_())


def _comparison(part: Any, schema: pa.Schema) -> Expression:
    if not isinstance(part, tuple) or len(part) != 3 or not isinstance(part[0], str):
        raise ExpressionError(f"{part!r} is not a comparison; {_ADVICE}")
    name, operator, value = part
    if name not in schema.names:
        raise ExpressionError(f"unknown column {name!r}; {near_names([name], schema.names)}")
    column = Column(name, plain_type(schema.field(name).type))
    if operator in ("in", "not in"):
        found = _membership(column, value)
        return found if operator == "in" else Call("not", (found,), pa.bool_())
    if operator not in _OPERATORS:
        raise ExpressionError(f"unknown operator {operator!r}; use one of {', '.join(_OPERATORS)}, in, not in")
    return Call(_OPERATORS[operator], _compared(column, value), pa.bool_())


def _compared(column: Expression, value: Any) -> tuple[Expression, Expression]:
    try:
        constant = Literal(value if isinstance(value, pa.Scalar) else pa.scalar(value))
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise ExpressionError(f"{value!r} is not a value to compare with; {_ADVICE}") from error
    found = same_type(column, constant, compared=True)
    if found is None:
        kinds = f"a {kind_of(column.type)} with a {kind_of(constant.type)}"
        raise ExpressionError(f"cannot compare {kinds} ({value!r}); pass a value of the type {column.type}")
    return found


def _membership(column: Expression, values: Any) -> Expression:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ExpressionError(f"{values!r} is not a list of values; {_ADVICE}")
    listed = list(values)
    pairs = [_compared(column, value) for value in listed if value is not None]
    return membership(column, pairs, has_null=len(pairs) < len(listed))


def compile_values(given: Any, schema: pa.Schema) -> dict[str, Expression]:
    """Return the computed values of columns, in the types of the columns.

    Raises:
        ExpressionError: A column is unknown, or a value is not an expression that the column can hold.
    """
    from fsspeckit.core.expressions.parse import parse_expression

    if not isinstance(given, Mapping) or not given:
        raise ExpressionError(f'{given!r} names no columns; pass a mapping such as {{"price": "price * 1.1"}}')
    unknown = [name for name in given if name not in schema.names]
    if unknown:
        raise ExpressionError(f"unknown column(s) {unknown}; {near_names(unknown, schema.names)}")
    found = {}
    for name, text in given.items():
        if not isinstance(text, str):
            raise ExpressionError(f'the value of {name!r} is {text!r}; pass SQL text, such as "\'open\'" or "1"')
        found[name] = assigned(parse_expression(text, schema), schema.field(name), text)
    return found

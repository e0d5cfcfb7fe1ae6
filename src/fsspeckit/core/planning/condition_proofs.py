"""What partitions and statistics prove about a condition: no row of a row group matches, or every row does.

The condition is evaluated over what is known of the columns: bounds and nulls. The result is the set of truth values
that a row can have. Missing, contradictory or unconvertible statistics allow every truth value. Nothing here reads
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.types import is_bytes, is_text
from fsspeckit.core.expressions import compute
from fsspeckit.core.expressions.evaluate import COMPARISONS, constant_value
from fsspeckit.core.expressions.tree import Call, Column, Expression, InList, Literal, columns_of
from fsspeckit.core.expressions.types import kind_of
from fsspeckit.core.model import DataFile
from fsspeckit.core.planning.statistics import native_array

Scalar = Any  # a pa.Scalar; pyarrow has no types


class Truth(Flag):
    """Truth values of a condition, and sets of them."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the values of an expression; a bound that is not known is None."""

    lower: Scalar | None = None
    upper: Scalar | None = None
    can_be_null: bool = True
    can_have_value: bool = True


_NOTHING = Known()
_ALWAYS_NULL = Known(can_have_value=False)


def possible_truths(condition: Expression, file: DataFile) -> list[Truth]:
    """Return for each row group of a file the truth values that the condition can have for its rows.

    Partition columns of the condition have been replaced by their constants.
    """
    known = {name: column_knowledge(file, name, type_) for name, type_ in _columns(condition).items()}
    found: dict[tuple[Known, ...], Truth] = {}
    result = []
    for group in range(len(file.row_groups)):
        key = tuple(groups[group] for groups in known.values())
        if key not in found:
            found[key] = truths(condition, dict(zip(known, key, strict=True)))
        result.append(found[key])
    return result


def _columns(expression: Expression) -> dict[str, pa.DataType]:
    match expression:
        case Column() if not expression.path:
            return {expression.name: expression.type}
        case Call():
            return {name: type_ for part in expression.arguments for name, type_ in _columns(part).items()}
        case InList():
            return _columns(expression.value)
        case _:
            return {}


def column_knowledge(file: DataFile, name: str, type_: pa.DataType) -> list[Known]:
    """Return what is known of a column in each row group of a file."""
    groups = len(file.row_groups)
    if name not in file.schema.names:
        return [_ALWAYS_NULL] * groups
    stats = file.stats.get(name)
    if stats is None:
        return [_NOTHING] * groups
    found = []
    for group, rows in enumerate(file.row_groups):
        nulls, bounds = stats.nulls[group], (stats.lower[group], stats.upper[group])
        if nulls == rows and bounds != (None, None):  # a bound is a value, so the count is wrong
            nulls = None
        lower, upper = _bounds(*bounds, stats.native, type_)
        found.append(Known(lower, upper, nulls is None or nulls > 0, nulls is None or nulls < rows))
    return found


def _bounds(
    lower: Any, upper: Any, native: pa.DataType | None, type_: pa.DataType
) -> tuple[Scalar | None, Scalar | None]:
    """Bounds in the type of a column; statistics leave NaN out, which is above every other number."""
    if lower is None or upper is None or native is None or lower != lower or upper != upper:
        return None, None
    try:
        bounds = native_array([lower, upper], native).cast(type_)
        if not pc.less_equal(bounds[0], bounds[1]).as_py():
            return None, None
    except (pa.ArrowException, OverflowError, ValueError):
        return None, None
    return bounds[0], None if pat.is_floating(type_) else bounds[1]


def truths(condition: Expression, known: Mapping[str, Known]) -> Truth:
    """Return the truth values that a condition can have, given what is known of the columns."""
    if columns_of(condition) == frozenset():
        return _constant_truth(condition)
    match condition:
        case Call(function="and" | "or" as name):
            parts = [truths(part, known) for part in condition.arguments]
            return reduce(lambda left, right: _combined(_AND if name == "and" else _OR, left, right), parts)
        case Call(function="not"):
            return _negated(truths(condition.arguments[0], known))
        case Call(function="is_null"):
            found = _knowledge(condition.arguments[0], known)
            return (Truth.TRUE if found.can_be_null else Truth.NONE) | (
                Truth.FALSE if found.can_have_value else Truth.NONE
            )
        case Call(function=name) if name in _COMPARED:
            left, right = (_knowledge(argument, known) for argument in condition.arguments)
            return _with_nulls(_COMPARED[name](left, right), left, right)
        case Call(function="like" | "starts_with" as name):
            return _prefix_truth(condition, known, name)
        case InList():
            return _in_list_truth(condition, _knowledge(condition.value, known))
        case Column():
            return _column_truth(_knowledge(condition, known))
        case _:
            return Truth.ANY


def _constant_truth(condition: Expression) -> Truth:
    try:
        value = constant_value(condition).value.as_py()
    except ExpressionError:
        return Truth.ANY
    return Truth.NULL if value is None else Truth.TRUE if value else Truth.FALSE


def _knowledge(expression: Expression, known: Mapping[str, Known]) -> Known:
    """What is known of a value: a constant exactly, a column and a cast that keeps its order by bounds."""
    match expression:
        case Column() if not expression.path:
            return known.get(expression.name, _NOTHING)
        case Call(function="cast") if kind_of(expression.arguments[0].type) == kind_of(expression.type):
            return _cast_knowledge(_knowledge(expression.arguments[0], known), expression.type)
        case Literal(value=value):
            return Known(value, value, can_be_null=False) if value.is_valid else _ALWAYS_NULL
        case _ if columns_of(expression) == frozenset():
            try:
                return _knowledge(constant_value(expression), known)
            except ExpressionError:
                return _NOTHING
        case _:
            return _NOTHING


def _cast_knowledge(found: Known, type_: pa.DataType) -> Known:
    try:
        lower = None if found.lower is None else found.lower.cast(type_)
        upper = None if found.upper is None else found.upper.cast(type_)
    except pa.ArrowException:
        lower = upper = None
    return Known(lower, upper, found.can_be_null, found.can_have_value)


def _holds(operator: str, left: Scalar | None, right: Scalar | None) -> bool:
    """Whether a comparison of two bounds holds, or may hold since one is not known."""
    if left is None or right is None:
        return True
    return bool(compute.compare(COMPARISONS[operator], left, right).as_py())


def _less(left: Known, right: Known) -> Truth:
    can = Truth.TRUE if _holds("<", left.lower, right.upper) else Truth.NONE
    return can | (Truth.FALSE if _holds(">=", left.upper, right.lower) else Truth.NONE)


def _less_equal(left: Known, right: Known) -> Truth:
    can = Truth.TRUE if _holds("<=", left.lower, right.upper) else Truth.NONE
    return can | (Truth.FALSE if _holds(">", left.upper, right.lower) else Truth.NONE)


def _equal(left: Known, right: Known) -> Truth:
    overlap = _holds("<=", left.lower, right.upper) and _holds("<=", right.lower, left.upper)
    bounds = (left.lower, left.upper, right.lower, right.upper)
    same = None not in bounds and all(_holds("=", bounds[0], bound) for bound in bounds)
    return (Truth.TRUE if overlap else Truth.NONE) | (Truth.NONE if same else Truth.FALSE)


_COMPARED: Mapping[str, Callable[[Known, Known], Truth]] = {
    "=": _equal,
    "<>": lambda left, right: _negated(_equal(left, right)),
    "<": _less,
    "<=": _less_equal,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less_equal(right, left),
}


def _may_be_null(*values: Known) -> bool:
    return any(value.can_be_null for value in values)


def _with_nulls(found: Truth, *values: Known) -> Truth:
    """The truth values of a comparison, of which NULL is one where a side can be NULL."""
    if not all(value.can_have_value for value in values):
        return Truth.NULL
    return found | Truth.NULL if _may_be_null(*values) else found


def _in_list_truth(condition: InList, value: Known) -> Truth:
    inside = condition.options
    if value.lower is not None:
        inside = inside.filter(compute.compare("greater_equal", inside, value.lower))
    if value.upper is not None:
        inside = inside.filter(compute.compare("less_equal", inside, value.upper))
    can = Truth.TRUE if len(inside) else Truth.NONE
    exact = value.lower is not None and value.upper is not None and value.lower.equals(value.upper)
    if not (exact and len(inside)):
        can |= Truth.NULL if condition.has_null else Truth.FALSE
    return _with_nulls(can, value)


def _column_truth(value: Known) -> Truth:
    can = Truth.NONE
    if value.upper is None or value.upper.as_py():
        can |= Truth.TRUE
    if value.lower is None or not value.lower.as_py():
        can |= Truth.FALSE
    return _with_nulls(can, value)


def _prefix_truth(condition: Call, known: Mapping[str, Known], name: str) -> Truth:
    """A pattern that begins with constant text holds only where bounds allow values with that beginning."""
    value, pattern = _knowledge(condition.arguments[0], known), condition.arguments[1]
    if not isinstance(pattern, Literal) or not is_text(condition.arguments[0].type):
        return Truth.ANY
    text = pattern.value.as_py()
    prefix = text if name == "starts_with" else _constant_start(text)
    start = prefix.encode()
    lower, upper = (None if bound is None else _as_bytes(bound) for bound in (value.lower, value.upper))
    can = Truth.FALSE
    if (lower is None or lower[: len(start)] <= start) and (upper is None or upper >= start):
        can |= Truth.TRUE
    return _with_nulls(can, value)


def _constant_start(pattern: str) -> str:
    return next((pattern[:at] for at, char in enumerate(pattern) if char in "%_\\"), pattern)


def _as_bytes(bound: Scalar) -> bytes:
    value = bound.as_py()
    return bytes(value) if is_bytes(bound.type) else str(value).encode()


def _negated(found: Truth) -> Truth:
    swapped = found & Truth.NULL
    if Truth.TRUE in found:
        swapped |= Truth.FALSE
    return swapped | Truth.TRUE if Truth.FALSE in found else swapped


_SINGLE = (Truth.TRUE, Truth.FALSE, Truth.NULL)


def _and(left: Truth, right: Truth) -> Truth:
    if Truth.FALSE in (left, right):
        return Truth.FALSE
    return Truth.NULL if Truth.NULL in (left, right) else Truth.TRUE


_AND = {(left, right): _and(left, right) for left in _SINGLE for right in _SINGLE}
_OR = {(left, right): _negated(_and(_negated(left), _negated(right))) for left in _SINGLE for right in _SINGLE}


def _combined(table: Mapping[tuple[Truth, Truth], Truth], left: Truth, right: Truth) -> Truth:
    pairs: Sequence[tuple[Truth, Truth]] = [(a, b) for a in _SINGLE if a in left for b in _SINGLE if b in right]
    return reduce(lambda found, pair: found | table[pair], pairs, Truth.NONE)

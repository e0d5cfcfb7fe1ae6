"""Evaluate expressions over tables with Arrow compute: the same code on every engine.

SQL's three-valued logic holds: a comparison with NULL is NULL, and NULL does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.bridge import null_scalar, scalar, to_numpy
from fsspeckit.common.causes import memory_error
from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.types import without_view
from fsspeckit.core.expressions import compute, numbers
from fsspeckit.core.expressions.functions import CONSTANT, COUNT, FUNCTIONS, UNIT
from fsspeckit.core.expressions.guards import GUARDED
from fsspeckit.core.expressions.tree import ArrowCondition, Call, Column, Expression, InList, Literal, sql_of
from fsspeckit.core.expressions.types import plain_type

Values = Any  # a pa.Array or a pa.Scalar; pyarrow has no types
_CONSTANTS = (CONSTANT, COUNT, UNIT)
_FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError, OverflowError, MemoryError)
_MOST_SHOWN = 100
COMPARISONS = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def evaluate(expression: Expression, table: pa.Table) -> pa.Array:
    """Return the value of an expression for each row of a table.

    Raises:
        ExpressionError: A value cannot be computed, as in a division by zero or an overflow. The message is that of the
            first such row, so it does not depend on how rows are divided into tables.
    """
    with _reported():
        try:
            return _for_each_row(_value(expression, table), table)
        except _FAILURES:
            final = (ExpressionError, *_FAILURES)
            try:
                return _with_guards(expression, table)
            except final as error:
                found = first_failure(
                    table.num_rows, lambda first, rows: _with_guards(expression, table.slice(first, rows)), final
                )
                if found is None and isinstance(error, MemoryError):  # no row alone needs too much
                    raise memory_error("an expression cannot be computed", error) from error
                raise error if found is None else found[1] from None


def first_failure(
    count: int, check: Callable[[int, int], object], errors: tuple[type[Exception], ...]
) -> tuple[int, Exception] | None:
    """Return the first row for which a check of some rows fails, and its error; None if only rows together fail.

    ``check`` takes the number of the first row and the number of rows.
    """
    first = 0
    while count:
        some = max(1, count // 2)
        try:
            check(first, some)
            first, count = first + some, count - some
        except errors as error:
            if count == 1:
                return first, error
            count = some
    return None


def _with_guards(expression: Expression, table: pa.Table) -> pa.Array:
    return _for_each_row(_value(expression, _without_views(table), guards=True), table)


def _without_views(table: pa.Table) -> pa.Table:
    """Return a table that Arrow can filter: it has no such function for views."""
    fields = [field.with_type(without_view(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)) if fields != list(table.schema) else table


def _for_each_row(found: Values, table: pa.Table) -> pa.Array:
    if isinstance(found, pa.Scalar):
        return pa.repeat(found, table.num_rows)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def matching_rows(condition: Expression, table: pa.Table) -> npt.NDArray[np.bool_]:
    """Return for each row of a table whether a condition is true."""
    return to_numpy(pc.fill_null(evaluate(condition, table).cast(pa.bool_()), scalar(False)))


def constant_value(expression: Expression) -> Literal:
    """Return the value of an expression without columns."""
    return Literal(evaluate(expression, pa.table({"": pa.nulls(1)}))[0])


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise _failure("", error) from error


def _failure(what: str, error: Exception) -> ExpressionError:
    reason = str(error).rstrip(".")
    advice = "guard it with NULLIF(divisor, 0)" if "divide by zero" in reason else "correct the values or the type"
    failure = ExpressionError(f"an expression cannot be computed{what} ({reason}); {advice}")
    failure.wrong_call = False  # it can be computed for other rows
    return failure


def _value(expression: Expression, table: pa.Table, *, guards: bool = False) -> Values:
    """The value of an expression; with ``guards``, of its parts only for the rows that need them."""
    match expression:
        case Column():
            return _column(expression, table)
        case Literal():
            return expression.value
        case InList():
            return _in_list(expression, _value(expression.value, table, guards=guards))
        case ArrowCondition():
            return _arrow_condition(expression, table)
        case Call():
            if guards and expression.function in GUARDED:
                return GUARDED[expression.function](expression, table, _with_guards)
            values = [_value(argument, table, guards=guards) for argument in expression.arguments]
            try:
                return _call(expression, values)
            except _FAILURES as error:
                if guards and not isinstance(error, MemoryError):  # so the failure is final
                    raise _failure(_where(expression, values), error) from error
                raise


def _arrow_condition(expression: ArrowCondition, table: pa.Table) -> Values:
    import pyarrow.dataset as pads  # it loads pandas where that is installed

    for name, constant in expression.constants.items():
        field = table.schema.field(name)
        values = pa.repeat(constant.value, table.num_rows).cast(field.type)
        table = table.set_column(table.column_names.index(name), field, values)
    return pads.dataset(table).scanner(columns={"found": expression.condition}).to_table()["found"]


def _column(column: Column, table: pa.Table) -> Values:
    values = table.column(column.name)
    values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    for name in column.path:
        values = pc.struct_field(values, name)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type.equals(column.type) else values.cast(column.type)


def _in_list(expression: InList, value: Values) -> Values:
    values = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value
    found = pc.is_in(numbers.one_zero(values), value_set=numbers.one_zero(expression.options))
    if pat.is_floating(values.type) and _any_nan(expression.options):
        found = pc.or_(found, pc.fill_null(pc.is_nan(values), scalar(False)))
    unknown = pc.or_(pc.is_null(values), pc.and_not(scalar(expression.has_null), found))
    result = pc.if_else(unknown, null_scalar(pa.bool_()), found)
    return result[0] if isinstance(value, pa.Scalar) else result


def _any_nan(options: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(options)).as_py())


def _call(call: Call, values: list[Values]) -> Values:
    if not all(isinstance(value, pa.Scalar) for value in values):
        return _run(call, values)
    first = _first_value(call.function)
    values[first] = pa.repeat(values[first], 1)
    return _run(call, values)[0]


def _where(call: Call, values: list[Values]) -> str:
    """The part of an expression that fails, and the values for which it does if they are those of one row."""
    shown = [
        _shown(value if isinstance(value, pa.Scalar) else value[0])
        for argument, value in zip(call.arguments, values, strict=True)
        if not isinstance(argument, Literal)
    ]
    is_one = all(isinstance(value, pa.Scalar) or len(value) == 1 for value in values)
    return f": {_short(sql_of(call))}" + (f" of {', '.join(shown)}" if shown and is_one else "")


def _shown(value: pa.Scalar) -> str:
    try:
        return _short(str(value.as_py()))
    except (OverflowError, ValueError):  # a date or timestamp beyond the years of Python
        return f"{value.value} ({value.type})"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _first_value(function: str) -> int:
    """The first argument of a function that is not a constant."""
    kinds = FUNCTIONS[function].takes if function in FUNCTIONS else ()
    return next((number for number, kind in enumerate(kinds) if kind not in _CONSTANTS), 0)


def _run(call: Call, values: list[Values]) -> Values:
    if call.function in COMPARISONS:
        return compute.compare(COMPARISONS[call.function], *values)
    if call.function == "cast":
        return compute.cast_values(values[0], call.type)
    if call.function in _OPERATORS:
        return _OPERATORS[call.function](*values)
    function = FUNCTIONS[call.function]
    kinds = function.takes
    given = [value.as_py() if kind in _CONSTANTS else value for value, kind in zip(values, kinds, strict=False)]
    result = function.run(*given)
    return result if result.type.equals(call.type) else result.cast(call.type)


def _case(*values: Values) -> Values:
    *branches, result = values
    for condition, value in reversed(list(zip(branches[::2], branches[1::2], strict=True))):
        result = pc.if_else(pc.fill_null(condition, scalar(False)), value, result)
    return result


def _is_distinct(left: Values, right: Values) -> Values:
    different = compute.compare("not_equal", left, right)
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.if_else(pc.is_valid(different), different, one_null)


def _like(ignore_case: bool) -> Callable[[Values, Values], Values]:
    def run(values: Values, pattern: Values) -> Values:
        return pc.match_like(values, pattern=pattern.as_py(), ignore_case=ignore_case)

    return run


def _concat(*values: Values) -> Values:
    return pc.binary_join_element_wise(*values, pa.scalar("", values[0].type), null_handling="emit_null")


_OPERATORS: Mapping[str, Callable[..., Values]] = {
    "and": lambda *values: reduce(pc.and_kleene, values),
    "or": lambda *values: reduce(pc.or_kleene, values),
    "not": pc.invert,
    "is_null": pc.is_null,
    "is_distinct": _is_distinct,
    "like": _like(False),
    "ilike": _like(True),
    "+": numbers.checked(pc.add_checked),
    "-": numbers.checked(pc.subtract_checked),
    "*": numbers.checked(pc.multiply_checked),
    "/": numbers.checked(pc.divide_checked),
    "%": numbers.remainder,
    "negate": pc.negate_checked,
    "||": _concat,
    "case": _case,
    "coalesce": pc.coalesce,
    "greatest": lambda *values: compute.extreme("greatest", values),
    "least": lambda *values: compute.extreme("least", values),
    "add_months": lambda values, months: compute.add_months(values, months.as_py()),
    "add_duration": compute.add_duration,
    "to_microseconds": lambda values: values.cast(pa.timestamp("us", values.type.tz), safe=False),
}


def result_type(function: str, types: list[pa.DataType]) -> pa.DataType:
    """Return the type of an operator's result, by applying it to no rows."""
    found = _OPERATORS[function](*(pa.nulls(0, type_) for type_ in types))
    return plain_type(found.type)

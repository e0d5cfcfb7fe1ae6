"""Parse SQL text into an expression tree whose types are resolved against a schema.

Only what `docs/expressions.md` lists is accepted. sqlglot parses; every node that is not known here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.bridge import scalar
from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.types import is_number, is_text
from fsspeckit.core.expressions.column_types import cast_type
from fsspeckit.core.expressions.constants import TYPE_NAMES, cast_constant, number_of
from fsspeckit.core.expressions.evaluate import result_type
from fsspeckit.core.expressions.functions import (
    CONSTANT,
    COUNT,
    DATETIME,
    FLOAT,
    FUNCTIONS,
    NULL_TYPES,
    UNIT,
    UNITS,
    Function,
    fits,
)
from fsspeckit.core.expressions.grammar import (
    BINARY,
    PARTS,
    REFUSED,
    Parsed,
    exp,
    near_names,
    nested_too_deeply,
    parse_one,
    position_of,
    shown,
)
from fsspeckit.core.expressions.tree import Call, Column, Expression, Literal, depth_of, null_of
from fsspeckit.core.expressions.types import (
    cast_to,
    is_comparable,
    is_datetime,
    kind_of,
    membership,
    parse_text,
    plain_type,
    same_type,
)

SHARED_TYPE = ("coalesce", "ifnull", "nullif", "greatest", "least", "if")
AGGREGATES = ("sum", "count", "min", "max", "avg", "mean", "median", "any_value", "first", "last")
_SYNONYMS = {"ifnull": "coalesce", "ceiling": "ceil", "substr": "substring", "pow": "power", "char_length": "length"}
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_TABLES = ("source", "target")
_FEWER_DIGITS = "cast one side to fewer digits, as in CAST(price AS DECIMAL(18, 2)), which keeps the value or fails"
_MOST_LEVELS = 200  # pickle needs four frames of Python's stack for each
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}
_LONGEST = {
    **{unit: 2**31 // months for unit, months in _MONTHS.items()},
    **{unit: 2**63 // 1_000_000 // seconds for unit, seconds in _SECONDS.items()},
}


def parse_condition(text: str | Parsed, schema: pa.Schema, *, tables: Sequence[str] = ()) -> Expression:
    """Parse a condition.

    Args:
        text: The condition, such as ``"day = '2026-11-02' AND amount > 10"``.
        schema: The columns that it can use.
        tables: Prefixes of column names in the schema, such as ``source`` for the column ``source.id``.

    Raises:
        ExpressionError: The text is not one condition over these columns.
    """
    found = parse_expression(text, schema, tables=tables)
    if pat.is_null(found.type):
        return null_of(pa.bool_())
    if not pat.is_boolean(found.type):
        given = shown(text.text if isinstance(text, Parsed) else text)
        raise ExpressionError(f'{given} is a {kind_of(found.type)}, not a condition; compare it, as in "amount > 10"')
    return found


def parse_expression(text: str | Parsed, schema: pa.Schema, *, tables: Sequence[str] = ()) -> Expression:
    """Parse an expression that computes a value; see `parse_condition`."""
    if isinstance(text, str) and not text.strip():
        raise ExpressionError(f'{text!r} is not an expression; pass text such as "price * 1.1"')
    try:
        given = text if isinstance(text, Parsed) else Parsed(text, parse_one(text))
        found = _Parser(given.text, schema, tables).expression(given.node)
        if depth_of(found) <= _MOST_LEVELS:
            return found
    except RecursionError as error:
        raise nested_too_deeply() from error
    raise nested_too_deeply()


class _Parser:
    def __init__(self, text: str, schema: pa.Schema, tables: Sequence[str]) -> None:
        self._text, self._schema, self._tables = text, schema, tables

    def expression(self, node: Any) -> Expression:
        name = type(node).__name__
        others = [key for key, value in node.args.items() if value and key not in PARTS.get(name, BINARY)]
        if others and (name in _COMPARISONS or name in _ARITHMETIC or name in _NODES):
            raise self._refused(node, f"{node.sql()!r}")
        if name in _COMPARISONS:
            return self._comparison(_COMPARISONS[name], node)
        if name in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[name], node)
        if name in _NODES:
            return _NODES[name](self, node)
        raise self._refused(node, REFUSED.get(name, f"{node.sql()!r}"))

    def _refused(self, node: Any, what: str) -> ExpressionError:
        return self._error(f"{what} is not part of the expression language", node, "see docs/expressions.md")

    def _error(self, problem: str, node: Any, advice: str) -> ExpressionError:
        position = position_of(node)
        where = "in" if position is None else f"at character {position + 1} of"
        return ExpressionError(f"{problem} {where} {shown(self._text)}; {advice}")

    def _operands(self, node: Any) -> tuple[Expression, Expression]:
        return self.expression(node.this), self.expression(node.expression)

    def _column(self, node: Any) -> Expression:
        parts = [part.name for part in node.parts]
        if self._tables:
            return self._table_column(parts, node)
        return self._field(parts[0], parts[1:], node)

    def _table_column(self, parts: Sequence[str], node: Any) -> Expression:
        table = parts[0].lower()
        if table in self._tables and len(parts) > 1:
            return self._field(f"{table}.{parts[1]}", parts[2:], node)
        if table in _TABLES and len(parts) > 1:
            known = " and ".join(self._tables)
            raise self._error(f"{parts[0]}.{parts[1]} cannot be read here", node, f"use only columns of the {known}")
        prefixes = " or ".join(f"{table}.{parts[0]}" for table in self._tables)
        raise self._error(f"the column {parts[0]!r} has no prefix", node, f"write {prefixes}")

    def _field(self, name: str, path: Sequence[str], node: Any) -> Expression:
        if name not in self._schema.names:
            raise self._unknown("column", name, self._schema.names, node)
        type_ = self._schema.field(name).type
        for step in path:
            names = [type_.field(i).name for i in range(type_.num_fields)] if pat.is_struct(type_) else []
            if step not in names:
                raise self._unknown(f"field of {name!r}", step, names, node)
            type_ = type_.field(step).type
        return Column(name, plain_type(type_), tuple(path))

    def _unknown(self, what: str, name: str, known: Sequence[str], node: Any) -> ExpressionError:
        return self._error(f"unknown {what} {name!r}", node, near_names([name], known))

    def _literal(self, node: Any) -> Expression:
        if node.is_string:
            return Literal(scalar(node.this))
        return self._numeral(node.this, node)

    def _numeral(self, text: str, node: Any) -> Expression:
        try:
            return Literal(number_of(text))
        except (pa.ArrowInvalid, ValueError):
            advice = "write at most 76 digits, or an approximate number such as 1.5e100"
            raise self._error("a number has too many digits or is too large", node, advice) from None

    def _negated(self, node: Any) -> Expression:
        if type(node.this).__name__ == "Literal" and not node.this.is_string:
            return self._numeral(f"-{node.this.this}", node)
        value = self._number(self.expression(node.this), node)
        return Call("negate", (value,), value.type)

    def _number(self, value: Expression, node: Any) -> Expression:
        if not is_number(value.type) and not pat.is_null(value.type):
            raise self._error(f"a {kind_of(value.type)} cannot be used in arithmetic", node, "cast it to a number")
        return cast_to(value, pa.int64()) if pat.is_integer(value.type) or pat.is_null(value.type) else value

    def _arithmetic(self, operator: str, node: Any) -> Expression:
        if type(node.expression).__name__ == "Interval" and operator in "+-":
            return self._moved(self.expression(node.this), node.expression, -1 if operator == "-" else 1)
        left, right = self._operands(node)
        left, right = self._number(left, node), self._number(right, node)
        if operator == "/" or (operator == "%" and (pat.is_floating(left.type) or pat.is_floating(right.type))):
            left, right = cast_to(left, pa.float64()), cast_to(right, pa.float64())
        elif operator == "%" or not (pat.is_decimal(left.type) and pat.is_decimal(right.type)):
            pair = same_type(left, right)
            if pair is None:
                raise self._error("the result has too many digits", node, _FEWER_DIGITS)
            left, right = pair
        try:
            return Call(operator, (left, right), result_type(operator, [left.type, right.type]))
        except pa.ArrowInvalid:
            return self._wide_arithmetic(operator, left, right, node)

    def _wide_arithmetic(self, operator: str, left: Expression, right: Expression, node: Any) -> Expression:
        wide = [pa.decimal256(side.type.precision, side.type.scale) for side in (left, right)]
        try:
            type_ = result_type(operator, wide)
        except pa.ArrowInvalid as error:
            raise self._error("the result has too many digits", node, _FEWER_DIGITS) from error
        return Call(operator, (cast_to(left, wide[0]), cast_to(right, wide[1])), type_)

    def _moved(self, value: Expression, interval: Any, sign: int) -> Expression:
        if not is_datetime(value.type):
            raise self._error("INTERVAL needs a date or a timestamp", interval, 'as in "day - INTERVAL 7 DAY"')
        unit = interval.unit.name.upper().removesuffix("S") if interval.unit is not None else ""
        try:
            count = sign * int(interval.this.name)
        except (ValueError, AttributeError):
            raise self._error("INTERVAL needs a whole number", interval, 'as in "day - INTERVAL 7 DAY"') from None
        if unit in (*_MONTHS, *_SECONDS) and abs(count) > _LONGEST[unit]:
            raise self._error("an interval is too long", interval, f"use at most {_LONGEST[unit]} {unit}")
        if unit in _MONTHS:
            return Call("add_months", (value, Literal(scalar(count * _MONTHS[unit]))), value.type)
        if unit not in _SECONDS:
            raise self._error(f"unknown interval unit {unit!r}", interval, "use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH")
        if pat.is_date(value.type) and unit not in ("DAY", "WEEK"):
            value = cast_to(value, pa.timestamp("us"))
        duration = pa.scalar(count * _SECONDS[unit] * 1_000_000, pa.duration("us"))
        return Call("add_duration", (value, Literal(duration)), value.type)

    def _comparison(self, operator: str, node: Any) -> Expression:
        return Call(operator, self._compared(*self._operands(node), node), pa.bool_())

    def _compared(self, left: Expression, right: Expression, node: Any) -> tuple[Expression, Expression]:
        for side in (left, right):
            if not is_comparable(side.type):
                raise self._error(f"a {side.type} cannot be compared", node, "compare its fields")
        found = same_type(left, right, compared=True)
        if found is None:
            kinds = f"a {kind_of(left.type)} with a {kind_of(right.type)}"
            is_binary = "binary" in (kind_of(left.type), kind_of(right.type))
            advice = "write the bytes, as in X'00FF'" if is_binary else "cast one of them, as in CAST(id AS VARCHAR)"
            raise self._error(f"cannot compare {kinds}", node, advice)
        return found

    def _null_safe(self, node: Any) -> Expression:
        distinct = Call("is_distinct", self._compared(*self._operands(node), node), pa.bool_())
        return Call("not", (distinct,), pa.bool_()) if type(node).__name__ == "NullSafeEQ" else distinct

    def _is(self, node: Any) -> Expression:
        value, kind = self.expression(node.this), type(node.expression).__name__
        if kind == "Null":
            return Call("is_null", (value,), pa.bool_())
        if kind != "Boolean":
            raise self._refused(node, f"{node.sql()!r}")
        distinct = Call("is_distinct", (self._condition(value, node), self._boolean(node.expression)), pa.bool_())
        return Call("not", (distinct,), pa.bool_())

    def _boolean(self, node: Any) -> Expression:
        return Literal(scalar(bool(node.this)))

    def _null(self, _node: Any) -> Expression:
        return null_of(pa.null())

    def _condition(self, value: Expression, node: Any) -> Expression:
        if pat.is_null(value.type):
            return null_of(pa.bool_())
        if not pat.is_boolean(value.type):
            raise self._error(f"a {kind_of(value.type)} is not a condition", node, 'compare it, as in "amount > 10"')
        return value

    def _connected(self, node: Any) -> Expression:
        parts = [self._condition(self.expression(part), part) for part in node.flatten()]
        return Call(type(node).__name__.lower(), tuple(parts), pa.bool_())

    def _not(self, node: Any) -> Expression:
        return Call("not", (self._condition(self.expression(node.this), node),), pa.bool_())

    def _between(self, node: Any) -> Expression:
        value = self.expression(node.this)
        low = self._compared(value, self.expression(node.args["low"]), node)
        high = self._compared(value, self.expression(node.args["high"]), node)
        return Call("and", (Call(">=", low, pa.bool_()), Call("<=", high, pa.bool_())), pa.bool_())

    def _in(self, node: Any) -> Expression:
        if node.args.get("query") is not None or not node.expressions:
            raise self._refused(node, "a subquery" if node.args.get("query") is not None else "IN without values")
        value = self.expression(node.this)
        options = [self.expression(option) for option in node.expressions]
        if not all(isinstance(option, Literal) for option in options):
            pairs = [Call("=", self._compared(value, option, node), pa.bool_()) for option in options]
            return Call("or", tuple(pairs), pa.bool_())
        return self._in_constants(value, [option for option in options if isinstance(option, Literal)], node)

    def _in_constants(self, value: Expression, options: Sequence[Literal], node: Any) -> Expression:
        valid = [option for option in options if option.value.is_valid]
        pairs = [self._compared(value, option, node) for option in valid]
        return membership(value, pairs, has_null=len(valid) < len(options))

    def _like(self, node: Any) -> Expression:
        value, pattern = self._operands(node)
        if not is_text(value.type) or not isinstance(pattern, Literal) or not is_text(pattern.type):
            example = "CAST(day AS VARCHAR) LIKE '2026-11%'" if pat.is_temporal(value.type) else "name LIKE 'A%'"
            raise self._error("LIKE needs a text and a constant pattern", node, f'as in "{example}"')
        found = Call(type(node).__name__.lower(), (value, pattern), pa.bool_())
        return Call("not", (found,), pa.bool_()) if node.args.get("negate") else found

    def _concat(self, node: Any) -> Expression:
        sides = self._operands(node)
        for side in sides:
            if not is_text(side.type) and not pat.is_null(side.type):
                raise self._error(f"|| joins texts, not a {kind_of(side.type)}", node, "cast it to VARCHAR")
        type_ = pa.large_string() if any(pat.is_large_string(side.type) for side in sides) else pa.string()
        return Call("||", tuple(cast_to(side, type_) for side in sides), type_)

    def _case(self, node: Any) -> Expression:
        subject = None if node.this is None else self.expression(node.this)
        conditions = [self._when(subject, branch.this) for branch in node.args["ifs"]]
        default = node.args.get("default")
        values = [self.expression(branch.args["true"]) for branch in node.args["ifs"]]
        values.append(null_of(pa.null()) if default is None else self.expression(default))
        *values, last = self._one_type(values, node)
        pairs = [part for pair in zip(conditions, values, strict=True) for part in pair]
        return Call("case", (*pairs, last), last.type)

    def _when(self, subject: Expression | None, node: Any) -> Expression:
        value = self.expression(node)
        if subject is None:
            return self._condition(value, node)
        return Call("=", self._compared(subject, value, node), pa.bool_())

    def _one_type(self, values: Sequence[Expression], node: Any) -> list[Expression]:
        """Bring values to one type; constants follow the type of columns."""
        type_ = pa.null()
        for value in sorted(values, key=lambda value: isinstance(value, Literal)):
            pair = same_type(null_of(type_), value) if pat.is_null(type_) else same_type(_typed(type_), value)
            if pair is None:
                kinds = f"a {kind_of(type_)} and a {kind_of(value.type)}"
                raise self._error(f"{kinds} have no common type", node, "cast one of them")
            type_ = pair[1].type
        return [self._as(value, type_) for value in values]

    @staticmethod
    def _as(value: Expression, type_: pa.DataType) -> Expression:
        if isinstance(value, Literal) and is_text(value.type) and not is_text(type_) and value.value.is_valid:
            return parse_text(value.value.as_py(), type_) or value
        return cast_to(value, type_)

    def _cast(self, node: Any) -> Expression:
        value, target = self.expression(node.this), self._cast_type(node)
        if not isinstance(value, Literal):
            return value if value.type.equals(target) else Call("cast", (value,), target)
        constant = cast_constant(value, target)
        if constant is None:
            raise self._error(f"{value.value.as_py()!r} is not a {node.to.sql()}", node, "correct the constant")
        return constant

    def _cast_type(self, node: Any) -> pa.DataType:
        found = cast_type(node)
        if found is None:
            raise self._error(f"unknown type {node.to.sql()}", node, f"use one of {', '.join(TYPE_NAMES)}")
        return found

    def _hex(self, node: Any) -> Expression:
        try:
            return Literal(scalar(bytes.fromhex(node.this)))
        except ValueError:
            raise self._error(f"{node.this!r} is not hexadecimal", node, "as in X'00FF'") from None

    def _extract(self, node: Any) -> Expression:
        name = node.this.name.lower()
        if name not in UNITS[:8]:
            raise self._unknown("unit", name, UNITS[:8], node)
        return self._function(name, [self.expression(node.expression)], node)

    def _call(self, node: Any) -> Expression:
        name = str(node.this).lower()
        name = name if name in FUNCTIONS else _SYNONYMS.get(name, name)
        if name in AGGREGATES:
            raise self._refused(node, f"the aggregate {name}")
        arguments = [self.expression(argument) for argument in node.expressions]
        if name in SHARED_TYPE:
            return self._shared(name, arguments, node)
        if name == "mod" and len(arguments) == 2:
            return self._arithmetic("%", exp().Mod(this=node.expressions[0], expression=node.expressions[1]))
        if name not in FUNCTIONS:
            raise self._unknown("function", name, [*FUNCTIONS, *SHARED_TYPE, *_SYNONYMS, "mod"], node)
        return self._function(name, arguments, node)

    def _shared(self, name: str, arguments: list[Expression], node: Any) -> Expression:
        if name == "if":
            if len(arguments) != 3:
                raise self._error("if needs three arguments", node, 'as in "if(a > 0, a, 0)"')
            condition, *values = arguments
            first, second = self._one_type(values, node)
            return Call("case", (self._condition(condition, node), first, second), first.type)
        if len(arguments) < 2 or (name == "nullif" and len(arguments) != 2):
            raise self._error(f"{name} needs two arguments", node, f'as in "{name}(a, b)"')
        values = self._one_type(arguments, node)
        if name in ("nullif", "greatest", "least"):
            compared = self._compared(arguments[0], arguments[1], node)
            if name == "nullif":
                equal = Call("=", compared, pa.bool_())
                return Call("case", (equal, null_of(values[0].type), values[0]), values[0].type)
        return Call(name, tuple(values), values[0].type)

    def _function(self, name: str, arguments: list[Expression], node: Any) -> Expression:
        function = FUNCTIONS[name]
        if not function.fewest <= len(arguments) <= len(function.takes):
            takes = ", ".join(function.takes)
            raise self._error(f"{name} got {len(arguments)} arguments", node, f"write {name}({takes})")
        pairs = zip(arguments, function.takes, strict=False)
        values = tuple(self._argument(name, value, kind, node) for value, kind in pairs)
        return Call(name, values, self._result(function, values))

    @staticmethod
    def _result(function: Function, values: Sequence[Expression]) -> pa.DataType:
        return function.result([value.type for value in values])

    def _argument(self, name: str, value: Expression, kind: str, node: Any) -> Expression:
        if kind in (CONSTANT, COUNT, UNIT):
            return self._constant(name, value, kind, node)
        if kind == DATETIME and isinstance(value, Literal) and is_text(value.type) and value.value.is_valid:
            value = parse_text(value.value.as_py(), pa.timestamp("us")) or value
        if not fits(kind, value.type):
            raise self._error(f"{name} needs a {kind}, not a {kind_of(value.type)}", node, "cast the argument")
        if pat.is_null(value.type):
            return null_of(NULL_TYPES[kind])
        return cast_to(value, pa.float64()) if kind == FLOAT else value

    def _constant(self, name: str, value: Expression, kind: str, node: Any) -> Expression:
        python = value.value.as_py() if isinstance(value, Literal) else None
        if kind == UNIT and isinstance(python, str) and python.lower() in UNITS:
            return Literal(scalar(python.lower()))
        if (kind == CONSTANT and isinstance(python, str)) or (kind == COUNT and type(python) is int):
            return value
        expected = f"one of {', '.join(UNITS)}" if kind == UNIT else f"a {kind}"
        raise self._error(f"{name} needs {expected} here", node, "write it as a constant")


def _typed(type_: pa.DataType) -> Expression:
    """Stands for any value of a type."""
    return Column("", type_)


_NODES: Mapping[str, Callable[[_Parser, Any], Expression]] = {
    "Paren": lambda parser, node: parser.expression(node.this),
    "Column": _Parser._column,
    "Dot": _Parser._column,
    "Literal": _Parser._literal,
    "HexString": _Parser._hex,
    "Boolean": _Parser._boolean,
    "Null": _Parser._null,
    "Neg": _Parser._negated,
    "NullSafeEQ": _Parser._null_safe,
    "NullSafeNEQ": _Parser._null_safe,
    "Is": _Parser._is,
    "And": _Parser._connected,
    "Or": _Parser._connected,
    "Not": _Parser._not,
    "Between": _Parser._between,
    "In": _Parser._in,
    "Like": _Parser._like,
    "ILike": _Parser._like,
    "DPipe": _Parser._concat,
    "Case": _Parser._case,
    "Cast": _Parser._cast,
    "Extract": _Parser._extract,
    "Anonymous": _Parser._call,
}

"""The expression tree: frozen, picklable, with the type of every node resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import null_scalar


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field inside a struct column."""

    name: str
    type: pa.DataType
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        """The type of the constant."""
        return self.value.type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator; `evaluate.py` has the implementation by name."""

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class InList:
    """Whether a value is in a list of constants; ``has_null`` says that the list also contained NULL."""

    value: Expression
    options: pa.Array
    has_null: bool

    @property
    def type(self) -> pa.DataType:
        """The type of the result."""
        return pa.bool_()


@dataclass(frozen=True, slots=True, eq=False)
class ArrowCondition:
    """A condition that the caller passed as an expression of pyarrow.

    Attributes:
        columns: The columns that it reads.
        constants: Values of columns that are constant, such as the partition values of a file.
    """

    condition: pc.Expression
    columns: frozenset[str]
    constants: Mapping[str, Literal] = field(default_factory=dict)

    @property
    def type(self) -> pa.DataType:
        """The type of the result."""
        return pa.bool_()


Expression: TypeAlias = Column | Literal | Call | InList | ArrowCondition


def null_of(type_: pa.DataType) -> Literal:
    """NULL of a type."""
    return Literal(null_scalar(type_))


def columns_of(expression: Expression) -> frozenset[str]:
    """Return the columns that an expression reads."""
    match expression:
        case Column():
            return frozenset((expression.name,))
        case Call():
            return frozenset[str]().union(*map(columns_of, expression.arguments))
        case InList():
            return columns_of(expression.value)
        case ArrowCondition():
            return expression.columns
        case _:
            return frozenset()


def depth_of(expression: Expression) -> int:
    """Return the number of levels of an expression."""
    match expression:
        case Call():
            return 1 + max(map(depth_of, expression.arguments), default=0)
        case InList():
            return 1 + depth_of(expression.value)
        case _:
            return 1


def text_of(expression: Expression) -> str:
    """Return a text that is equal only for equal expressions; the `repr` of a long list leaves constants out."""
    match expression:
        case Call():
            return f"{expression.function}({', '.join(map(text_of, expression.arguments))}): {expression.type}"
        case InList():
            return f"{text_of(expression.value)} in {expression.options.to_pylist()!r} {expression.has_null}"
        case Literal():
            return f"{expression.value.as_py()!r}: {expression.type}"
        case _:
            return repr(expression)


def sql_of(expression: Expression) -> str:
    """Return an expression as its reader would write it, for messages."""
    match expression:
        case Column():
            return ".".join((expression.name, *expression.path))
        case Literal():
            return repr(expression.value.as_py()) if pa.types.is_string(expression.type) else str(expression.value)
        case Call(function="cast"):
            return f"CAST({sql_of(expression.arguments[0])} AS {expression.type})"
        case Call():
            parts = list(map(sql_of, expression.arguments))
            is_name = expression.function.isidentifier() or len(parts) != 2
            call = f"{expression.function}({', '.join(parts)})"
            return call if is_name else f"({parts[0]} {expression.function} {parts[1]})"
        case InList():
            return f"({sql_of(expression.value)} IN ...)"
        case _:
            return str(expression.condition)


def with_constants(expression: Expression, values: Mapping[str, Literal]) -> Expression:
    """Return an expression in which some columns are constants, such as the partition values of a file."""
    match expression:
        case Column() if expression.name in values and not expression.path:
            return values[expression.name]
        case Call():
            return replace(expression, arguments=tuple(with_constants(each, values) for each in expression.arguments))
        case InList():
            return replace(expression, value=with_constants(expression.value, values))
        case ArrowCondition():
            return replace(expression, constants={name: values[name] for name in expression.columns if name in values})
        case _:
            return expression

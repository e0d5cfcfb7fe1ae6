"""Random expressions: their SQL text, and what they mean as a function of a row, in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("j", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
    ]
)
TEXTS = ["", "a", "A", "ab", "a%", "_b", "it's", "ä", "zz"]
DAYS = [dt.date(2024, 2, 29), dt.date(2026, 1, 1), dt.date(1969, 12, 31)]


class Generated(NamedTuple):
    """An expression and its meaning; ``None`` is NULL."""

    sql: str
    of: Callable[[Row], Any]


def rows() -> st.SearchStrategy[list[Row]]:
    """Rows of the schema with nulls, NaN and both zeros."""
    row = st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-4, 4),
            "j": st.none() | st.integers(-4, 4) | st.just(2**40),
            "f": st.none() | st.sampled_from([0.0, -0.0, 1.5, -3.0, math.nan, math.inf, 2.0]),
            "s": st.none() | st.sampled_from(TEXTS),
            "d": st.none() | st.sampled_from(DAYS),
            "b": st.none() | st.booleans(),
        }
    )
    return st.lists(row, min_size=0, max_size=12)


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: None if any(value is None for value in values) else function(*values)


def _rank(value: Any) -> Any:
    """NaN is above every other number and equal to itself."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


COMPARED = {
    "=": lambda a, b: _rank(a) == _rank(b),
    "<>": lambda a, b: _rank(a) != _rank(b),
    "<": lambda a, b: _rank(a) < _rank(b),
    "<=": lambda a, b: _rank(a) <= _rank(b),
    ">": lambda a, b: _rank(a) > _rank(b),
    ">=": lambda a, b: _rank(a) >= _rank(b),
}


def column(name: str) -> Generated:
    return Generated(name, lambda row: row[name])


def constant(sql: str, value: Any) -> Generated:
    return Generated(sql, lambda _row: value)


def _text(value: str) -> Generated:
    return constant("'" + value.replace("'", "''") + "'", value)


def numbers() -> st.SearchStrategy[Generated]:
    """Whole numbers."""
    leaf = st.sampled_from([column("i"), column("j")]) | st.integers(-3, 3).map(lambda n: constant(f"({n})", n))

    def grow(inner: st.SearchStrategy[Generated]) -> st.SearchStrategy[Generated]:
        arithmetic = {"+": lambda a, b: a + b, "-": lambda a, b: a - b}
        return st.one_of(
            st.builds(
                lambda op, a, b: Generated(
                    f"({a.sql} {op} {b.sql})", lambda row: _strict(arithmetic[op])(a.of(row), b.of(row))
                ),
                st.sampled_from(list(arithmetic)),
                inner,
                inner,
            ),
            inner.map(lambda a: Generated(f"abs({a.sql})", lambda row: _strict(abs)(a.of(row)))),
            inner.map(lambda a: Generated(f"(- {a.sql})", lambda row: _strict(lambda x: -x)(a.of(row)))),
            st.builds(
                lambda a, b: Generated(
                    f"coalesce({a.sql}, {b.sql})",
                    lambda row: b.of(row) if a.of(row) is None else a.of(row),
                ),
                inner,
                inner,
            ),
            st.builds(
                lambda a, b: Generated(
                    f"nullif({a.sql}, {b.sql})",
                    lambda row: None if a.of(row) is not None and a.of(row) == b.of(row) else a.of(row),
                ),
                inner,
                inner,
            ),
        )

    return st.recursive(leaf, grow, max_leaves=3)


def texts() -> st.SearchStrategy[Generated]:
    """Texts."""
    leaf = st.just(column("s")) | st.sampled_from(TEXTS).map(_text)
    return st.one_of(
        leaf,
        leaf.map(lambda a: Generated(f"upper({a.sql})", lambda row: _strict(str.upper)(a.of(row)))),
        st.builds(
            lambda a, b: Generated(
                f"({a.sql} || {b.sql})", lambda row: _strict(lambda x, y: x + y)(a.of(row), b.of(row))
            ),
            leaf,
            leaf,
        ),
        leaf.map(lambda a: Generated(f"substring({a.sql}, 2, 1)", lambda row: _strict(lambda x: x[1:2])(a.of(row)))),
    )


def _compared(sides: st.SearchStrategy[Generated]) -> st.SearchStrategy[Generated]:
    def build(op: str, a: Generated, b: Generated) -> Generated:
        return Generated(f"({a.sql} {op} {b.sql})", lambda row: _strict(COMPARED[op])(a.of(row), b.of(row)))

    return st.builds(build, st.sampled_from(list(COMPARED)), sides, sides)


def _distinct(sides: st.SearchStrategy[Generated]) -> st.SearchStrategy[Generated]:
    def build(a: Generated, b: Generated) -> Generated:
        return Generated(
            f"({a.sql} IS DISTINCT FROM {b.sql})",
            lambda row: (
                (a.of(row) is None) != (b.of(row) is None)
                if None in (a.of(row), b.of(row))
                else _rank(a.of(row)) != _rank(b.of(row))
            ),
        )

    return st.builds(build, sides, sides)


def _in(value: Generated, options: list[float | None], negated: bool) -> Generated:
    listed = ", ".join("NULL" if option is None else str(option) for option in options)

    def of(row: Row) -> bool | None:
        found = value.of(row)
        if found is None:
            return None
        if found in options:
            return not negated
        return None if None in options else negated

    return Generated(f"({value.sql} {'NOT ' if negated else ''}IN ({listed}))", of)


def _like(value: Generated, start: str, negated: bool) -> Generated:
    word = "NOT LIKE" if negated else "LIKE"
    return Generated(
        f"({value.sql} {word} '{start}%')", lambda row: _strict(lambda x: x.startswith(start) != negated)(value.of(row))
    )


def _and(a: Any, b: Any) -> Any:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Any, b: Any) -> Any:
    return True if a is True or b is True else None if a is None or b is None else False


def conditions() -> st.SearchStrategy[Generated]:
    """Conditions."""
    floats = st.just(column("f")) | st.sampled_from([0.0, -0.0, 1.5, -3.0]).map(lambda x: constant(f"({x})", x))
    days = st.just(column("d")) | st.sampled_from(DAYS).map(lambda day: constant(f"DATE '{day}'", day))
    leaf = st.one_of(
        _compared(numbers()),
        _compared(texts()),
        _compared(floats),
        _compared(days),
        _distinct(numbers()),
        _distinct(floats),
        st.just(column("b")),
        st.sampled_from(list(SCHEMA.names)).map(
            lambda name: Generated(f"({name} IS NULL)", lambda row: row[name] is None)
        ),
        st.builds(_in, numbers(), st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=4), st.booleans()),
        st.builds(_in, floats, st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.5]), min_size=1), st.booleans()),
        st.builds(_like, texts(), st.sampled_from(["", "a", "A", "z"]), st.booleans()),
    )

    def grow(inner: st.SearchStrategy[Generated]) -> st.SearchStrategy[Generated]:
        return st.one_of(
            inner.map(lambda a: Generated(f"(NOT {a.sql})", lambda row: _strict(lambda x: not x)(a.of(row)))),
            st.builds(
                lambda a, b: Generated(f"({a.sql} AND {b.sql})", lambda row: _and(a.of(row), b.of(row))), inner, inner
            ),
            st.builds(
                lambda a, b: Generated(f"({a.sql} OR {b.sql})", lambda row: _or(a.of(row), b.of(row))), inner, inner
            ),
        )

    return st.recursive(leaf, grow, max_leaves=5)

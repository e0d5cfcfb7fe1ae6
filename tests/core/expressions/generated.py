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
    {"i": pa.int32(), "j": pa.int64(), "f": pa.float64(), "s": pa.string(), "d": pa.date32(), "b": pa.bool_()}
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


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
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


Many = st.SearchStrategy[Generated]


def combine(template: str, function: Callable[..., Any], *parts: Many) -> Many:
    """An expression of other expressions."""

    def build(*chosen: Generated) -> Generated:
        text = template.format(*(part.sql for part in chosen))
        return Generated(f"({text})", lambda row: function(*(part.of(row) for part in chosen)))

    return st.builds(build, *parts)


def numbers() -> Many:
    """Whole numbers."""
    leaf = st.sampled_from([column("i"), column("j")]) | st.integers(-3, 3).map(lambda n: constant(f"({n})", n))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            combine("{} + {}", strict(lambda a, b: a + b), inner, inner),
            combine("{} - {}", strict(lambda a, b: a - b), inner, inner),
            combine("abs({})", strict(abs), inner),
            combine("- {}", strict(lambda x: -x), inner),
            combine("coalesce({}, {})", lambda a, b: b if a is None else a, inner, inner),
            combine("nullif({}, {})", lambda a, b: None if a is not None and a == b else a, inner, inner),
        ),
        max_leaves=3,
    )


def texts() -> Many:
    """Texts."""
    quoted = [constant("'" + text.replace("'", "''") + "'", text) for text in TEXTS]
    leaf = st.just(column("s")) | st.sampled_from(quoted)
    return st.one_of(
        leaf,
        combine("upper({})", strict(str.upper), leaf),
        combine("{} || {}", strict(lambda x, y: x + y), leaf, leaf),
        combine("substring({}, 2, 1)", strict(lambda x: x[1:2]), leaf),
    )


def _compared(sides: Many) -> Many:
    return st.one_of(*(combine(f"{{}} {op} {{}}", strict(function), sides, sides) for op, function in COMPARED.items()))


def _is_distinct(a: Any, b: Any) -> bool:
    return (a is None) != (b is None) if None in (a, b) else _rank(a) != _rank(b)


def _in(values: Many, options: st.SearchStrategy[list[Any]]) -> Many:
    def build(value: Generated, listed: list[Any], negated: bool) -> Generated:
        def of(row: Row) -> bool | None:
            found = value.of(row)
            if found is not None and found in listed:
                return not negated
            return None if found is None or None in listed else negated

        text = ", ".join("NULL" if option is None else str(option) for option in listed)
        return Generated(f"({value.sql} {'NOT ' if negated else ''}IN ({text}))", of)

    return st.builds(build, values, options, st.booleans())


def both(a: Any, b: Any) -> Any:
    return False if a is False or b is False else None if a is None or b is None else True


def either(a: Any, b: Any) -> Any:
    return True if a is True or b is True else None if a is None or b is None else False


def conditions() -> Many:
    """Conditions."""
    floats = st.just(column("f")) | st.sampled_from([0.0, -0.0, 1.5, -3.0]).map(lambda x: constant(f"({x})", x))
    days = st.just(column("d")) | st.sampled_from(DAYS).map(lambda day: constant(f"DATE '{day}'", day))
    starts = [
        combine(f"{{}} {word} '{start}%'", strict(lambda x, s=start, w=word: x.startswith(s) == (w == "LIKE")), texts())
        for start in ("", "a", "A", "z")
        for word in ("LIKE", "NOT LIKE")
    ]
    leaf = st.one_of(
        *map(_compared, (numbers(), texts(), floats, days)),
        *(combine("{} IS DISTINCT FROM {}", _is_distinct, sides, sides) for sides in (numbers(), floats)),
        st.just(column("b")),
        combine("{} IS NULL", lambda x: x is None, st.sampled_from([column(name) for name in SCHEMA.names])),
        _in(numbers(), st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=4)),
        _in(floats, st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.5]), min_size=1)),
        st.one_of(*starts),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            combine("NOT {}", strict(lambda x: not x), inner),
            combine("{} AND {}", both, inner, inner),
            combine("{} OR {}", either, inner, inner),
        ),
        max_leaves=5,
    )

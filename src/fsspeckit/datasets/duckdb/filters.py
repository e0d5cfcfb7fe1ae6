"""Filters as SQL text: one predicate over the columns of the dataset, and nothing else.

The text is parsed by DuckDB, never searched for words. Apart from its condition, the parsed statement must be the one
that a plain ``TRUE`` gives; the condition may hold columns, values, operators and DuckDB's own scalar functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import FilterError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ALLOWED = {
    "BETWEEN",
    "CASE",
    "CAST",
    "COLLATE",
    "COLUMN_REF",
    "COMPARISON",
    "CONJUNCTION",
    "CONSTANT",
    "FUNCTION",
    "LAMBDA",
    "OPERATOR",
    "TYPE",
}
_FUNCTIONS = """
    SELECT bool_or(function_type IN ('scalar', 'macro')), bool_or(has_side_effects)
    FROM duckdb_functions() WHERE function_name = ? AND internal"""
_ADVICE = "pass one condition over columns, such as \"day >= '2025-01-01' AND amount > 0\""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that has been checked, and the names in it that may be columns, in lower case."""

    sql: str
    names: frozenset[str]

    def columns_of(self, columns: list[str]) -> list[str]:
        """The columns that the condition may speak of; DuckDB takes no notice of case."""
        chosen = [name for name in columns if name.lower() in self.names]
        if len({name.lower() for name in chosen}) < len(chosen):
            raise FilterError(f"the columns {chosen} differ only in case, which SQL cannot tell; use tuples as filters")
        return chosen


def parse_predicate(cursor: DuckDBPyConnection, text: str) -> Predicate:
    """Check that a text is one predicate.

    Raises:
        FilterError: It is no SQL condition, or more than that.
    """
    if not text.strip():
        raise FilterError(f"the filter is empty; leave it out, or {_ADVICE}")
    condition = _where(_parse(cursor, text), text)
    if _rest(_parse(cursor, text)) != _rest(_parse(cursor, "TRUE")):
        raise FilterError(f"the filter {text!r} is more than one condition; {_ADVICE}")
    names: set[str] = set()
    for node in _nodes(condition):
        _check(cursor, node, text)
        names.update(str(part).lower() for part in node.get("column_names", ()))
    return Predicate(f"(\n{text}\n)", frozenset(names))


def _parse(cursor: DuckDBPyConnection, text: str) -> dict[str, Any]:
    # On lines of its own, since the text may end in a comment.
    query = f"SELECT 1 FROM rows WHERE (\n{text}\n)"  # noqa: S608
    with as_filter_error(text):
        (answer,) = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0]
    found: dict[str, Any] = json.loads(answer)
    if found["error"]:
        raise FilterError(f"the filter {text!r} is not one SQL condition ({found.get('error_message')}); {_ADVICE}")
    return found


def _where(parsed: dict[str, Any], text: str) -> Any:
    condition = parsed["statements"][0]["node"].get("where_clause")
    if condition is None:
        raise FilterError(f"the filter {text!r} is more than one condition; {_ADVICE}")
    return condition


def _rest(parsed: dict[str, Any]) -> Any:
    """The statement without its condition and without the places where its parts stood in the text."""
    parsed["statements"][0]["node"]["where_clause"] = None
    return _without_places(parsed)


def _without_places(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: _without_places(value) for name, value in node.items() if not name.startswith("query_location")}
    return [_without_places(item) for item in node] if isinstance(node, list) else node


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _nodes(value)
    elif isinstance(node, list):
        for item in node:
            yield from _nodes(item)


def _check(cursor: DuckDBPyConnection, node: dict[str, Any], text: str) -> None:
    kind = node.get("class")
    if kind is not None and kind not in _ALLOWED:
        raise FilterError(f"the filter {text!r} holds a {kind.lower()}, which no filter may; {_ADVICE}")
    if kind == "FUNCTION":
        name = str(node["function_name"]).lower()
        scalar, side_effects = cursor.execute(_FUNCTIONS, [name]).fetchall()[0]
        if not scalar or side_effects or node.get("schema") or node.get("catalog"):
            raise FilterError(
                f"the filter {text!r} calls {name}, which is not one of DuckDB's scalar functions without side "
                f"effects; {_ADVICE}"
            )


@contextmanager
def as_filter_error(text: str) -> Iterator[None]:
    """What DuckDB has to say of a filter, as our own error."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise FilterError(f"the filter {text!r} cannot be applied ({reason}); {_ADVICE}") from error


def quote(name: str) -> str:
    """A name as an SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'

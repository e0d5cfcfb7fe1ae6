"""Filters as SQL text: one predicate over the columns of the dataset, and nothing else.

The text is parsed by DuckDB, never searched for words. It must be a condition with and without brackets around it, and
apart from that condition the statement must be the one that a plain ``TRUE`` gives. The condition may hold columns,
values, operators and those scalar functions that the catalogue knows to depend on their arguments alone; macros are
looked into. Parser and catalogue are those of a database of our own, where all that they name is DuckDB's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import FilterError
from fsspeckit.datasets.duckdb.failures import report_duckdb_errors

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
_CLOCK = ("current_date", "get_current_time", "get_current_timestamp", "now", "today", "transaction_timestamp")
# Functions of their arguments to the catalogue of one version or another, but they look into tables, files, settings or
# the build, or are no functions for users.
_LOOKING = {"current_setting", "getvariable", "index_key", "json_serialize_plan", "version"}
_HIDDEN = "__"
_NOT_IN_CONDITIONS = ("pragma", "table", "table_macro")
# Calls that say something of the database; DuckDB takes the bare names for them too, where no column has them.
_ABOUT_DATABASE = {"current_catalog", "current_role", "current_schema", "current_user", "session_user", "user"}
_CATALOGUE = """
    SELECT lower(function_name), function_type, stability, macro_definition
    FROM duckdb_functions() WHERE lower(function_name) IN ({names})"""
_PARSE = "SELECT json_serialize_sql(?::VARCHAR)"
_ADVICE = "pass one condition over columns, such as \"day >= '2025-01-01' AND amount > 0\""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that has been checked, and the names in it, in lower case: all, and those that stand alone."""

    text: str
    names: frozenset[str]
    alone: frozenset[str]

    @property
    def sql(self) -> str:
        """The condition within brackets, on lines of their own, since the text may end in a comment."""
        return f"(\n{self.text}\n)"

    @property
    def unused_name(self) -> str:
        """A name that the condition cannot mean."""
        return next(name for i in range(len(self.names) + 1) if (name := f"fsspeckit {i}") not in self.names)

    def columns_of(self, columns: list[str]) -> list[str]:
        """The columns that the condition may speak of; DuckDB takes no notice of case."""
        chosen = [name for name in columns if name.lower() in self.names]
        if len({name.lower() for name in chosen}) < len(chosen):
            raise FilterError(f"the columns {chosen} differ only in case, which SQL cannot tell; use tuples as filters")
        about = (self.alone & _ABOUT_DATABASE) - {name.lower() for name in chosen}
        if about:
            raise FilterError(f"the filter asks for {', '.join(sorted(about))}, which is no column; {_ADVICE}")
        return chosen


def parse_predicate(cursor: DuckDBPyConnection, text: str) -> Predicate:
    """Check that a text is one predicate; the cursor is one of the database for conditions.

    Raises:
        FilterError: It is no SQL condition, or more than that.
    """
    if not text.strip():
        raise FilterError(f"the filter is empty; leave it out, or {_ADVICE}")
    try:
        nodes = list(_nodes(_Checker(cursor, text).condition(text)))
    except RecursionError as error:
        raise FilterError(f"the filter is nested too deeply; {_ADVICE}, or IN with a list of values") from error
    columns = [[str(part).lower() for part in node.get("column_names", ())] for node in nodes]
    names = frozenset(name for parts in columns for name in parts)
    return Predicate(text, names, frozenset(parts[0] for parts in columns if len(parts) == 1))


class _Checker:
    """Parses conditions and refuses what is more than that."""

    def __init__(self, cursor: DuckDBPyConnection, text: str) -> None:
        self._cursor, self._text = cursor, text
        self._known: set[str] = set()

    def condition(self, text: str) -> Any:
        """The parsed condition, of which every part may stand in a filter."""
        # On lines of its own, since the text may end in a comment.
        parsed = self._parse(f"(\n{text}\n)")
        if parsed != self._parse(f"\n{text}\n"):
            raise self._more()
        condition = parsed["statements"][0]["node"].get("where_clause")
        if condition is None or _rest(parsed) != _rest(self._parse("TRUE")):
            raise self._more()
        self._check(list(_nodes(condition)))
        return condition

    def _parse(self, condition: str) -> Any:
        query = f"SELECT 1 FROM rows WHERE {condition}"  # noqa: S608
        with as_filter_error(self._text):
            (answer,) = self._cursor.execute(_PARSE, [query]).fetchall()[0]
        found: dict[str, Any] = json.loads(answer)
        if found["error"]:
            reason = found.get("error_message")
            raise FilterError(f"the filter {self._text!r} is not one SQL condition ({reason}); {_ADVICE}")
        return _without_places(found)

    def _more(self) -> FilterError:
        return FilterError(f"the filter {self._text!r} is more than one condition; {_ADVICE}")

    def _check(self, nodes: Iterable[dict[str, Any]]) -> None:
        calls = set()
        for node in nodes:
            kind = node.get("class")
            if kind is not None and kind not in _ALLOWED:
                raise FilterError(f"the filter {self._text!r} holds a {kind.lower()}, which no filter may; {_ADVICE}")
            if kind == "FUNCTION":
                name = str(node["function_name"]).lower()
                if node.get("schema") or node.get("catalog"):
                    raise self._no_function(name)
                calls.add(name)
        self._check_calls(calls - self._known)

    def _check_calls(self, names: set[str]) -> None:
        """Every meaning of a name must be harmless, since the types of the arguments choose among them."""
        if not names:
            return
        self._known |= names
        query = _CATALOGUE.format(names=", ".join("?" * len(names)))
        with as_filter_error(self._text):
            found = self._cursor.execute(query, sorted(names)).fetchall()
        for name in sorted(names):
            meanings = [row[1:] for row in found if row[0] == name and row[1] not in _NOT_IN_CONDITIONS]
            if not meanings or name in _LOOKING | _ABOUT_DATABASE or name.startswith(_HIDDEN):
                raise self._no_function(name)
            for kind, stability, definition in meanings:
                if kind == "macro":
                    self._look_into(name, definition)
                elif kind != "scalar" or (stability != "CONSISTENT" and name not in _CLOCK):
                    raise self._no_function(name)

    def _look_into(self, name: str, definition: str) -> None:
        try:
            self.condition(definition)
        except FilterError as error:
            raise self._no_function(name) from error

    def _no_function(self, name: str) -> FilterError:
        return FilterError(
            f"the filter {self._text!r} calls {name}, which is not one of DuckDB's scalar functions without side "
            f"effects that depend on their arguments alone; {_ADVICE}"
        )


def _rest(parsed: Any) -> Any:
    """The statement without its condition."""
    (statement, *more) = parsed["statements"]
    return [statement | {"node": statement["node"] | {"where_clause": None}}, *more]


def _without_places(node: Any) -> Any:
    """Parsed SQL without the places where its parts stood in the text."""
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


def as_filter_error(text: str) -> AbstractContextManager[None]:
    """What DuckDB has to say of a filter, as our own error."""

    def blame(reason: str) -> FilterError:
        return FilterError(f"the filter {text!r} cannot be applied ({reason}); {_ADVICE}")

    return report_duckdb_errors("applying the filter", blame)


def quote(name: str) -> str:
    """A name as an SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'

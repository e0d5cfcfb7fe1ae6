"""Check filters as SQL text: a filter is one predicate over the columns of the dataset, and nothing else.

DuckDB parses the text. It must be the same condition with and without brackets around it, and the rest of the statement
must equal that of the condition ``TRUE``. A condition may contain columns, values, operators and scalar functions that
depend only on their arguments, according to DuckDB's catalogue; definitions of macros are checked too. Parser and
catalogue are those of a new database, so that all functions are DuckDB's own.
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
# Some versions list these as functions that depend only on their arguments, but they read tables, files, settings or
# the build, or are internal.
_NOT_PURE = {"current_setting", "getvariable", "index_key", "json_serialize_plan", "version"}
_INTERNAL_PREFIX = "__"
_NOT_IN_CONDITIONS = ("pragma", "table", "table_macro")
# Functions that return properties of the database. DuckDB also calls them for a bare name that is not a column.
_ABOUT_DATABASE = {"current_catalog", "current_role", "current_schema", "current_user", "session_user", "user"}
_CATALOGUE = """
    SELECT lower(function_name), function_type, stability, macro_definition
    FROM duckdb_functions() WHERE lower(function_name) IN ({names})"""
_PARSE = "SELECT json_serialize_sql(?::VARCHAR)"
_ADVICE = "Pass one condition over columns, such as \"day >= '2025-01-01' AND amount > 0\""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A checked condition, and the names in it in lower case: all, and those without a qualifier."""

    text: str
    names: frozenset[str]
    unqualified: frozenset[str]

    @property
    def sql(self) -> str:
        """The condition in brackets, which are on separate lines because the text may end with a comment."""
        return f"(\n{self.text}\n)"

    @property
    def unused_name(self) -> str:
        """A name that does not occur in the condition."""
        return next(name for i in range(len(self.names) + 1) if (name := f"fsspeckit {i}") not in self.names)

    def columns_of(self, columns: list[str]) -> list[str]:
        """Return the columns that the condition may refer to. DuckDB ignores case."""
        chosen = [name for name in columns if name.lower() in self.names]
        if len({name.lower() for name in chosen}) < len(chosen):
            raise FilterError(f"the columns {chosen} differ only in case, which SQL ignores. Use tuples as filters.")
        properties = (self.unqualified & _ABOUT_DATABASE) - {name.lower() for name in chosen}
        if properties:
            raise FilterError(f"the filter uses {', '.join(sorted(properties))}, which is not a column. {_ADVICE}")
        return chosen


def parse_predicate(cursor: DuckDBPyConnection, text: str) -> Predicate:
    """Check that a text is one predicate. The cursor belongs to the database for conditions.

    Raises:
        FilterError: The text is not an SQL condition, or is more than one.
    """
    if not text.strip():
        raise FilterError(f"the filter is empty. {_ADVICE}, or omit it")
    try:
        nodes = list(_nodes(_Checker(cursor, text).condition(text)))
    except RecursionError as error:
        raise FilterError(f"the filter is nested too deeply. {_ADVICE}, or IN with a list of values") from error
    columns = [[str(part).lower() for part in node.get("column_names", ())] for node in nodes]
    names = frozenset(name for parts in columns for name in parts)
    return Predicate(text, names, frozenset(parts[0] for parts in columns if len(parts) == 1))


class _Checker:
    """Parses conditions and raises for everything else."""

    def __init__(self, cursor: DuckDBPyConnection, text: str) -> None:
        self._cursor, self._text = cursor, text
        self._known: set[str] = set()

    def condition(self, text: str) -> Any:
        """Parse a condition and check every part of it."""
        # On separate lines, because the text may end with a comment.
        parsed = self._parse(f"(\n{text}\n)")
        if parsed != self._parse(f"\n{text}\n"):
            raise self._not_one_condition()
        condition = parsed["statements"][0]["node"].get("where_clause")
        if condition is None or _without_condition(parsed) != _without_condition(self._parse("TRUE")):
            raise self._not_one_condition()
        self._check(list(_nodes(condition)))
        return condition

    def _parse(self, condition: str) -> Any:
        query = f"SELECT 1 FROM rows WHERE {condition}"  # noqa: S608
        with as_filter_error(self._text):
            (document,) = self._cursor.execute(_PARSE, [query]).fetchall()[0]
        parsed: dict[str, Any] = json.loads(document)
        if parsed["error"]:
            reason = parsed.get("error_message")
            raise FilterError(f"the filter {self._text!r} is not one SQL condition ({reason}). {_ADVICE}")
        return _without_locations(parsed)

    def _not_one_condition(self) -> FilterError:
        return FilterError(f"the filter {self._text!r} is more than one condition. {_ADVICE}")

    def _check(self, nodes: Iterable[dict[str, Any]]) -> None:
        calls = set()
        for node in nodes:
            kind = node.get("class")
            if kind is not None and kind not in _ALLOWED:
                raise FilterError(
                    f"the filter {self._text!r} contains a {kind.lower()}, which is not allowed in a filter. {_ADVICE}"
                )
            if kind == "FUNCTION":
                name = str(node["function_name"]).lower()
                if node.get("schema") or node.get("catalog"):
                    raise self._not_allowed(name)
                calls.add(name)
        self._check_calls(calls - self._known)

    def _check_calls(self, names: set[str]) -> None:
        """Check every overload of each function, because argument types determine which one is called."""
        if not names:
            return
        self._known |= names
        query = _CATALOGUE.format(names=", ".join("?" * len(names)))
        with as_filter_error(self._text):
            functions = self._cursor.execute(query, sorted(names)).fetchall()
        for name in sorted(names):
            overloads = [row[1:] for row in functions if row[0] == name and row[1] not in _NOT_IN_CONDITIONS]
            if not overloads or name in _NOT_PURE | _ABOUT_DATABASE or name.startswith(_INTERNAL_PREFIX):
                raise self._not_allowed(name)
            for kind, stability, definition in overloads:
                if kind == "macro":
                    self._check_macro(name, definition)
                elif kind != "scalar" or (stability != "CONSISTENT" and name not in _CLOCK):
                    raise self._not_allowed(name)

    def _check_macro(self, name: str, definition: str) -> None:
        try:
            self.condition(definition)
        except FilterError as error:
            raise self._not_allowed(name) from error

    def _not_allowed(self, name: str) -> FilterError:
        return FilterError(
            f"the filter {self._text!r} calls {name}, which is not one of DuckDB's scalar functions without side "
            f"effects that depend only on their arguments. {_ADVICE}"
        )


def _without_condition(parsed: Any) -> Any:
    """Return the parsed statements without the condition."""
    (statement, *more) = parsed["statements"]
    return [statement | {"node": statement["node"] | {"where_clause": None}}, *more]


def _without_locations(node: Any) -> Any:
    """Return parsed SQL without the positions of its parts in the text."""
    if isinstance(node, dict):
        kept = {name: value for name, value in node.items() if not name.startswith("query_location")}
        return {name: _without_locations(value) for name, value in kept.items()}
    return [_without_locations(item) for item in node] if isinstance(node, list) else node


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _nodes(value)
    elif isinstance(node, list):
        for item in node:
            yield from _nodes(item)


def as_filter_error(text: str) -> AbstractContextManager[None]:
    """Convert DuckDB's errors about a filter to `FilterError`."""

    def filter_error(reason: str) -> FilterError:
        return FilterError(f"the filter {text!r} cannot be applied ({reason}). {_ADVICE}")

    return report_duckdb_errors("applying the filter", filter_error)


def quote(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'

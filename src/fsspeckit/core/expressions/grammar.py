"""The grammar of the expression language: sqlglot with both kinds of quoted names and no functions of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from fsspeckit.common.errors import ExpressionError

_MOST_SHOWN = 300
BINARY = {"this", "expression"}
PARTS = {
    "Column": {"this", "table", "db", "catalog"},
    "Literal": {"this", "is_string"},
    "Between": {"this", "low", "high"},
    "In": {"this", "expressions", "query"},
    "Like": BINARY | {"negate"},
    "ILike": BINARY | {"negate"},
    "DPipe": BINARY | {"safe"},
    "Case": {"this", "ifs", "default"},
    "Cast": {"this", "to", "_type"},
    "Anonymous": {"this", "expressions"},
    "Div": BINARY | {"typed", "safe"},
}
"""The parts of a parsed node that are understood; a node with any other part is refused."""
REFUSED = {
    "Select": "a subquery",
    "Subquery": "a subquery",
    "Exists": "a subquery",
    "Window": "a window function",
    "Alias": "an alias",
    "Star": "*",
}
"""Nodes that are no part of the language, in words."""


@cache
def _dialect() -> Any:
    from sqlglot import parser, tokens
    from sqlglot.dialects.dialect import Dialect

    class Expressions(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS = ['"', "`"]  # noqa: RUF012
            HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012

        class Parser(parser.Parser):
            FUNCTIONS = {}  # noqa: RUF012
            NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
            FUNCTION_PARSERS = {  # noqa: RUF012
                name: parser.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")
            }
            NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
                "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
            }

    return Expressions


def exp() -> Any:
    """The node classes of sqlglot."""
    from sqlglot import exp as nodes

    return nodes


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """A text and what sqlglot parsed."""

    text: str
    node: Any


def parse_one(text: str) -> Any:
    """Parse one expression.

    Raises:
        ExpressionError: The text is not one SQL expression.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        text.encode()
        found = [node for node in sqlglot.parse(text, dialect=_dialect()) if node is not None]
    except RecursionError as error:
        raise nested_too_deeply() from error
    except UnicodeEncodeError as error:
        character = f"character {error.start + 1} of {shown(text)}"
        raise ExpressionError(f"{character} is half of a character; pass text that can be encoded as UTF-8") from None
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        column = details[0].get("col")
        where = "" if column is None else f"at character {column} of "
        reason = _reason(details[0].get("description") or "a quotation mark may not be closed")
        raise ExpressionError(f"not an SQL expression {where}{shown(text)} ({reason}); correct the text") from error
    if len(found) != 1:
        raise ExpressionError(f"{shown(text)} is not one expression; pass one condition or value")
    return found[0]


def near_names(unknown: Sequence[str], known: Sequence[str]) -> str:
    """Advice for unknown names: the nearest of the known names, or some to choose among."""
    lower = {other.lower(): other for other in known}
    near = [match for name in unknown for match in get_close_matches(str(name).lower(), lower, n=1, cutoff=0.5)]
    if near:
        return f"did you mean {', '.join(repr(lower[match]) for match in near)}?"
    return f"choose among {list(known)[:20]}" if known else "it has no fields"


def shown(text: str) -> str:
    """The text of an expression in a message, in quotation marks; of a long one only the start."""
    return repr(text) if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]!r}..."


def _reason(description: str) -> str:
    """What sqlglot says, without names of its classes."""
    return "a value is missing" if "<class" in description else description


def nested_too_deeply() -> ExpressionError:
    """The error for expressions that exceed Python's stack."""
    return ExpressionError("an expression is nested too deeply; pass fewer levels, or use IN with a list of values")


def position_of(node: Any) -> int | None:
    """Return where in the text a node starts, as far as the parser knows."""
    starts = [part._meta["start"] for part in node.walk() if part._meta and "start" in part._meta]
    return min(starts, default=None)

"""Find invalid quotation marks in CSV that Arrow's parser accepts without an error."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

_QUOTED = rb'"(?:[^"]++|"")*+"'


@dataclass(frozen=True, slots=True)
class MisplacedQuote:
    """The line of a quotation mark, and what is wrong with it."""

    line: int
    what: str


def misplaced_quote(data: pa.Buffer, delimiter: str) -> MisplacedQuote | None:
    """Find a value in quotation marks that is never closed, or that goes on after the closing mark.

    Quotation marks inside a value that does not begin with one are text.
    """
    ends = rb"[\r\n" + re.escape(delimiter.encode()) + rb"]"
    others = ends.replace(b"[", b"[^", 1)
    at_start = rb"(?<!" + others + rb")"
    good = rb"(?:[^\"]++|" + at_start + _QUOTED + rb"(?=" + ends + rb"|\Z)|(?<=" + others + rb")\")*+"
    text = memoryview(data)
    found = re.compile(good).match(text)
    end = found.end() if found else 0
    if end == len(text):
        return None
    closed = re.compile(_QUOTED).match(text, end)
    what = "text follows a closing quotation mark" if closed else "a quotation mark is opened and not closed"
    before = bytes(text[: closed.end() if closed else end])
    return MisplacedQuote(len((before + b"x").splitlines()), what)

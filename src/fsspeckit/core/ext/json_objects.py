"""Split a JSON text into the texts of its objects: elements of an array, or one object after the other.

Arrow's parser crashes on values that are not objects and on deep nesting, so every record is checked first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

MAX_DEPTH = 100
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()
_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "text", list: "an array"}


class NotRecordsError(ValueError):
    """A text does not consist of JSON objects."""

    def __init__(self, text: str, at: int, what: str) -> None:
        """Store the message and the line of a position in the text."""
        super().__init__(what)
        self.line = text.count("\n", 0, at) + 1


def checked_records(data: pa.Buffer) -> pa.Buffer:
    """Return the objects of a JSON text, without the array around them.

    Raises:
        NotRecordsError: The text is not JSON, a record is not an object, or it is nested too deeply.
    """
    text = str(memoryview(data), "utf-8")
    if text.lstrip(_SPACE).startswith("["):
        return pa.py_buffer("\n".join(_elements(text)).encode())
    for _ in objects(text):
        pass
    return data


def objects(text: str) -> Iterator[str]:
    """Yield the texts of objects that follow each other."""
    at = _skip(text, 0)
    while at < len(text):
        end = _object_end(text, at)
        yield text[at:end]
        at = _skip(text, end)


def _elements(text: str) -> Iterator[str]:
    """Yield the texts of the elements of a JSON array, so that no digit is lost."""
    at = _skip(text, text.index("[") + 1)
    more = text[at : at + 1] != "]"
    while more:
        end = _object_end(text, at)
        yield text[at:end]
        at = _skip(text, end)
        more = text[at : at + 1] == ","
        if more:
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise NotRecordsError(text, at, "the array is not closed or lacks a comma")
    after = _skip(text, at + 1)
    if after < len(text):
        raise NotRecordsError(text, after, "something follows the array")


def _object_end(text: str, at: int) -> int:
    """Return the end of the object that begins at a position."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise NotRecordsError(text, error.pos, f"not valid JSON ({error.msg})") from error
    except RecursionError as error:
        raise _too_deep(text, at) from error
    except ValueError as error:  # Python limits the digits of an integer
        raise NotRecordsError(text, at, "a number has too many digits") from error
    if type(value) is not dict:
        raise NotRecordsError(text, at, f"the record is {_KINDS[type(value)]} and not an object")
    brackets = text.count("{", at, end) + text.count("[", at, end)
    if brackets > MAX_DEPTH and _is_too_deep(value):
        raise _too_deep(text, at)
    return end


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nested = [one for one in level if isinstance(one, (dict, list))]
        level = [item for one in nested for item in (one.values() if isinstance(one, dict) else one)]
        if not nested:
            return False
    return True


def _too_deep(text: str, at: int) -> NotRecordsError:
    return NotRecordsError(text, at, f"the record is nested more than {MAX_DEPTH} levels deep")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at

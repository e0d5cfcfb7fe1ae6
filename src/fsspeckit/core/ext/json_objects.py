"""The objects of a JSON text as they are written: elements of an array, or one object after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


def elements(text: str) -> Iterator[str]:
    """The elements of a JSON array as they are written, so that no digit is lost on the way."""
    at = _skip(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        value, end = _decoded(text, at)
        if not isinstance(value, dict):
            raise pa.ArrowInvalid(f"line {_line(text, at)}: the array holds something other than an object")
        yield text[at:end]
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise pa.ArrowInvalid(f"line {_line(text, at)}: the array is not closed or lacks a comma")
    if text[at + 1 :].strip(_SPACE):
        raise pa.ArrowInvalid(f"line {_line(text, at + 1)}: something follows the array")


def objects(text: str) -> Iterator[str]:
    """The values of a text that follow each other, as they are written.

    Raises:
        pa.ArrowInvalid: The text is not JSON; the message names the line.
    """
    at = _skip(text, 0)
    while at < len(text):
        _, end = _decoded(text, at)
        yield text[at:end]
        at = _skip(text, end)


def _decoded(text: str, at: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise pa.ArrowInvalid(f"line {error.lineno}: not valid JSON ({error.msg})") from error
    except RecursionError as error:
        raise pa.ArrowInvalid(f"line {_line(text, at)}: too deeply nested") from error


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at

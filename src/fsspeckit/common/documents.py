"""Read untrusted JSON documents: every value is validated before it is used.

An invalid value is a `DocumentError` that names its position in the document and the action to take.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from fsspeckit.common.errors import DocumentError

_LARGEST = 2**63 - 1
_SHOWN = 60
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_T = TypeVar("_T")


class Node:
    """One value of a document.

    Args:
        value: The value as `json` returns it.
        place: Its position, such as ``plan.entries[3]``.
        remedy: The action to take if the document is invalid.

    Examples:
        >>> Node({"rows": [1, 2]}, "plan", "make a new plan")["rows"].each(Node.count)
        [1, 2]
    """

    def __init__(self, value: Any, place: str, remedy: str) -> None:
        self._value, self._place, self._remedy = value, place, remedy

    def __getitem__(self, key: str) -> Node:
        """Return the value of a required key."""
        if key not in self.keys():
            raise self._error(f"the key {key!r} is missing")
        return self._inner(self._value[key], key)

    def keys(self) -> Collection[str]:
        """Return the keys of an object."""
        if not isinstance(self._value, dict):
            raise self._invalid("an object")
        return self._value.keys()

    def only(self, known: Collection[str]) -> Node:
        """Return the object, and refuse keys other than the known ones."""
        for key in self.keys():
            if key not in known:
                raise self._error(f"the key {_shown(key)} is unknown")
        return self

    def object(self) -> dict[str, Any]:
        """Return an object as it is, unchecked; for values that are only compared."""
        self.keys()
        return dict(self._value)

    def pair(self) -> tuple[Node, Node]:
        """Return the two items of a list."""
        items = self.each(lambda item: item)
        if len(items) != 2:
            raise self._invalid("a list of two items")
        return items[0], items[1]

    def each(self, read: Callable[[Node], _T]) -> list[_T]:
        """Return the result of a reader function for each item of a list."""
        if not isinstance(self._value, list):
            raise self._invalid("a list")
        return [read(Node(item, f"{self._place}[{number}]", self._remedy)) for number, item in enumerate(self._value)]

    def values(self, read: Callable[[Node], _T]) -> dict[str, _T]:
        """Return the result of a reader function for each value of an object, by key."""
        return {self._inner(key, key).text(): read(self[key]) for key in self.keys()}

    def optional(self, read: Callable[[Node], _T]) -> _T | None:
        """Return the result of a reader function, or None for null."""
        return None if self._value is None else read(self)

    def text(self) -> str:
        """Return a text that is valid UTF-8 without NUL, so that it can be part of a path."""
        if not isinstance(self._value, str):
            raise self._invalid("text")
        if "\0" in self._value or any("\ud800" <= char <= "\udfff" for char in self._value):
            raise self._error("the text has characters that are not allowed")
        return self._value

    def choice(self, known: Collection[str]) -> str:
        """Return a text that is one of the known texts."""
        text = self.text()
        if text not in known:
            raise self._invalid(f"one of {', '.join(known)}")
        return text

    def count(self) -> int:
        """Return an integer of 0 or more, of at most 64 bits."""
        if type(self._value) is not int or not 0 <= self._value <= _LARGEST:
            raise self._invalid("a whole number of 0 or more")
        return self._value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self._value, bool):
            raise self._invalid("true or false")
        return self._value

    def number(self) -> float:
        """Return a finite number."""
        if type(self._value) is int and abs(self._value) <= _LARGEST:
            return self._value
        if type(self._value) is not float or not math.isfinite(self._value):
            raise self._invalid("a number")
        return self._value

    def refuse(self, what: str) -> DocumentError:
        """Return the error for a value that is invalid for the reason ``what``."""
        return self._error(f"{_shown(self._value)} {what}")

    def _inner(self, value: Any, key: str) -> Node:
        return Node(value, f"{self._place}.{key[:_SHOWN]}" if self._place else key[:_SHOWN], self._remedy)

    def _invalid(self, expected: str) -> DocumentError:
        return self._error(f"{_shown(self._value)} is not {expected}")

    def _error(self, what: str) -> DocumentError:
        place = f"{self._place}: " if self._place else ""
        return DocumentError(f"{place}{what}; {self._remedy}".encode("utf-8", "replace").decode())


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: The data is not JSON, or has a text with a lone surrogate. No path has such a text, and no message
            with it can be printed.
        RecursionError: The data is nested too deeply.
    """
    text = data.decode()
    found = json.loads(text)
    if _SURROGATE.search(text):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def read_json(path: Path, remedy: str) -> Node:
    """Read the document in a file.

    Raises:
        DocumentError: The file is not a regular file, or not JSON.
        OSError: The file cannot be read.
    """
    if path.exists() and not path.is_file():
        raise DocumentError(f"{path} is not a regular file; {remedy}")
    try:
        return Node(json.loads(path.read_bytes()), "", remedy)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:_SHOWN]
        raise DocumentError(f"the file is not JSON ({reason}); {remedy}") from error


def _shown(value: Any) -> str:
    """Return a value as text for a message, shortened; lists and objects only by their type."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if type(value) is int and abs(value) > _LARGEST:
        return "a number of more than 64 bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

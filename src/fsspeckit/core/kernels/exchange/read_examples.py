"""Read a row of a source for a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReadExamples:
    """Reads one row of a piece."""

    def __call__(self, item: tuple[Any, int]) -> list[dict[str, Any]]:
        """Return the row."""
        piece, row = item
        found: list[dict[str, Any]] = piece.read().slice(row, 1).to_pylist()
        return found

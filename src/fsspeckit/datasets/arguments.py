"""Plain arguments of the methods: names of columns."""

from __future__ import annotations

from collections.abc import Sequence

Columns = str | Sequence[str]


def column_names(columns: Columns | None) -> tuple[str, ...] | None:
    """One or several column names as a tuple."""
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)

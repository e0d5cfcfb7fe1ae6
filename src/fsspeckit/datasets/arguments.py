"""Plain arguments of the methods: names of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Columns = str | Sequence[str]


def column_names(columns: Columns | None) -> tuple[str, ...] | None:
    """One or several column names as a tuple, where their order means something."""
    if isinstance(columns, set | frozenset):
        raise ValueError(f"{columns!r} is a set, which has no order; pass a list such as ['id', 'day']")
    return names_of(columns)


def names_of(columns: Columns | None) -> tuple[str, ...] | None:
    """One or several names as a tuple, where any order will do."""
    if columns is None:
        return None
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{columns!r} is neither a name nor a list of names; pass such as 'id' or ['id', 'day']")
    return names

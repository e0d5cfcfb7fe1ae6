"""Arguments that are names of columns or folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Columns = str | Sequence[str]


def column_names(columns: Columns | None) -> tuple[str, ...] | None:
    """Return one or several column names as a tuple. Raise for a set, because the order matters."""
    if isinstance(columns, set | frozenset):
        raise ValueError(f"{columns!r} is a set, which has no order. Pass a list such as ['id', 'day'].")
    return names_of(columns)


def names_of(columns: Columns | None) -> tuple[str, ...] | None:
    """Return one or several names as a tuple, in any order."""
    if columns is None:
        return None
    names = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{columns!r} is neither a name nor a list of names. Pass a value like 'id' or ['id', 'day'].")
    return names

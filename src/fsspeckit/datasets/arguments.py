"""Arguments of methods: names of columns or folders, and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Columns = str | Sequence[str]
MemoryLimit = int | str | None
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_UNITS = {"": 1, "B": 1} | {f"{k}B": 10 ** (3 * n) for k, n in _POWERS.items()}
_UNITS |= {f"{k}IB": 2 ** (10 * n) for k, n in _POWERS.items()}


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


def parse_bytes(limit: MemoryLimit) -> int | None:
    """Return a number of bytes from a number or a text such as ``"500MB"``."""
    if limit is None:
        return None
    parsed = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(limit).strip())
    is_fraction = parsed is not None and "." in parsed[1] and parsed[2].upper() in ("", "B")
    if parsed is None or is_fraction or parsed[2].upper() not in _UNITS or float(parsed[1]) <= 0:
        raise ValueError(f'memory_limit={limit!r} is not a size. Use bytes or a text such as "500MB" or "2GiB".')
    return int(float(parsed[1]) * _UNITS[parsed[2].upper()])

"""Arguments of methods: names of columns or folders, and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import KeyColumnError

if TYPE_CHECKING:
    from fsspeckit.core.dataset.place import Place

Columns = str | Sequence[str]
MemoryLimit = int | str | None
Duration = str | timedelta
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_UNITS = {"": 1, "B": 1} | {f"{k}{end}": 2 ** (10 * n) for k, n in _POWERS.items() for end in ("B", "IB")}

SHORT_NAMES = {
    "key": "key_columns",
    "order_by": "dedup_order_by",
    "by": "zorder_columns",
    "bloom": "bloom_filter_columns",
    "target_mb": "target_mb_per_file",
    "target_rows": "target_rows_per_file",
    "partitions": "partition_filter",
    "deduplicate_key": "deduplicate_key_columns",
}
"""Arguments of functions, commands and pipelines whose names in the specification are longer."""


def with_long_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of the specification, which the methods of `DatasetIO` have.

    Examples:
        >>> with_long_names({"key": "id", "dry_run": True})
        {'key_columns': 'id', 'dry_run': True}
    """
    for short, long in SHORT_NAMES.items():
        if short in options and long in options:
            raise ValueError(f"{short} and {long} are the same argument. Pass one of them.")
    return {SHORT_NAMES.get(name, name): value for name, value in options.items()}


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
    """Return a number of bytes from a number or a text such as ``"500MB"``; 1 MB is 1024 x 1024 bytes, as everywhere.

    Examples:
        >>> parse_bytes("2MB"), parse_bytes("2 MiB"), parse_bytes(10)
        (2097152, 2097152, 10)
    """
    if limit is None:
        return None
    parsed = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(limit).strip())
    is_fraction = parsed is not None and "." in parsed[1] and parsed[2].upper() in ("", "B")
    if parsed is None or is_fraction or parsed[2].upper() not in _UNITS or float(parsed[1]) <= 0:
        raise ValueError(f'memory_limit={limit!r} is not a size. Use bytes or a text such as "500MB" or "2GiB".')
    return int(float(parsed[1]) * _UNITS[parsed[2].upper()])


def parse_duration(name: str, duration: Duration | None) -> int | None:
    """Return the seconds of a duration such as ``"7d"``, ``"12h"`` or a `datetime.timedelta`.

    Examples:
        >>> parse_duration("retain", "7d"), parse_duration("retain", "90m"), parse_duration("retain", None)
        (604800, 5400, None)
    """
    if duration is None:
        return None
    if isinstance(duration, timedelta):
        duration = f"{int(duration.total_seconds())}s"
    parsed = re.fullmatch(r"(\d{1,9})\s*([smhdw])", duration.strip(), re.ASCII) if isinstance(duration, str) else None
    if parsed is None:
        raise ValueError(f'{name}={duration!r} is not a duration. Use a text such as "7d", "12h" or "30m".')
    return int(parsed[1]) * _SECONDS[parsed[2]]


def keys_for(place: Place, key_columns: Columns | None) -> tuple[str, ...]:
    """Return the columns that identify a row: those of the caller, or those that are recorded with the dataset.

    Raises:
        KeyColumnError: The caller names none, and none are recorded.
    """
    if key_columns is not None:
        from fsspeckit.core.planning.merge_request import normalize_keys  # the command line loads this module early

        return tuple(normalize_keys(key_columns))
    recorded = place.journal.key_columns()
    if recorded is None:
        error = KeyColumnError(
            f"{place.path}: no key is recorded. Pass key_columns, the columns that identify a row, or record them once "
            "with adopt."
        )
        error.wrong_call = True
        raise error
    return recorded

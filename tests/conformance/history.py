"""A model of a history of type 2 in dictionaries: for each key, the values at each sequence, None for a deletion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Points = dict[Any, dict[Any, tuple[Any, ...] | None]]
ABSENT = object()


def apply(points: Points, feed: Sequence[Row], tracked: Sequence[str], *, ignore_nulls: bool = False) -> int:
    """Apply a feed of rows with ``id``, ``lsn``, ``op`` and tracked columns. Return the number of stale changes."""
    effective = 0
    for key in {row["id"] for row in feed}:
        before = points.setdefault(key, {})
        new = {row["lsn"]: _value(row, tracked) for row in feed if row["id"] == key}
        after = _collapsed({**before, **new}, new if ignore_nulls else {})
        effective += sum(before.get(time, ABSENT) != after.get(time, ABSENT) for time in new)
        points[key] = after
    return len(feed) - effective


def _value(row: Row, tracked: Sequence[str]) -> tuple[Any, ...] | None:
    return None if row["op"] == "d" else tuple(row[name] for name in tracked)


def _collapsed(points: dict[Any, Any], filled: dict[Any, Any]) -> dict[Any, Any]:
    """Return the points that change something; nulls of the points in ``filled`` are those of the value before."""
    result: dict[Any, Any] = {}
    state: tuple[Any, ...] | None = None
    for time in sorted(points):
        value = points[time]
        if value is not None and state is not None and time in filled:
            value = tuple(old if new is None else new for new, old in zip(value, state, strict=True))
        if value != state:
            result[time] = state = value
    return result


def rows_of(points: Points) -> list[tuple[Any, ...]]:
    """Return the history rows: key, tracked values, start, end and whether the row is current."""
    rows = []
    for key, history in points.items():
        times = sorted(history)
        for time, end in pairwise([*times, None]):
            if (value := history[time]) is not None:
                rows.append((key, *value, time, end, end is None))
    return sorted(rows, key=lambda row: (row[0], row[-3]))


def differences(before: Sequence[tuple[Any, ...]], after: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Return the counts that a result must have; key and start identify a row."""
    old, new = ({(row[0], row[-3]): row for row in rows} for rows in (before, after))
    return {
        "inserted": len(new.keys() - old.keys()),
        "updated": sum(new[key] != old[key] for key in new.keys() & old.keys()),
        "deleted": len(old.keys() - new.keys()),
        "total": len(new),
    }

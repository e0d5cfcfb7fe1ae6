"""The oracle: a merge over lists of dicts, short enough to be checked by reading it.

It owns the meaning of the five strategies, of duplicate and null keys, and of partitions. Rows hold canonical values
(see rows.py: one spelling per value, NaN equal to NaN), so that plain ``==`` is the right comparison; in keys, -0.0 is
0.0 as well. It must not import fsspeckit.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
NEGATIVE_ZERO = ("-0.0",)
STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")


class Refused(Exception):
    """The merge must raise a ValueError and must not change the dataset; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The new value of each target row (None: deleted), the inserted rows, and the counts."""

    kept: list[Row | None]
    new: list[Row]
    updated: int
    deleted: int
    unchanged: int

    @property
    def rows(self) -> list[Row]:
        return [row for row in self.kept if row is not None] + self.new


def merge(
    target: Sequence[Row],
    source: Sequence[Row],
    strategy: str,
    keys: Sequence[str],
    *,
    partitions: Sequence[str] = (),
    on_duplicate: str = "error",
    order_by: Sequence[str] = (),
    null_keys: str = "error",
    partition_move: str = "check",
) -> Outcome:
    """Merge source into target with a simple, slow algorithm."""

    def key(row: Row) -> Hashable:
        return tuple(0.0 if row[name] == NEGATIVE_ZERO else row[name] for name in keys)

    def place(row: Row) -> Hashable:
        return tuple(row[name] for name in partitions), key(row)

    no_op = not source and strategy != "full_merge"
    if null_keys == "error" and not no_op and any(row[name] is None for row in (*source, *target) for name in keys):
        raise Refused("null key")
    picked = _one_per_key(source, key, strategy, on_duplicate, order_by)
    by_place = {place(row): row for row in picked}
    held, held_keys = {place(row) for row in target}, {key(row) for row in target}
    fresh = [row for row in picked if place(row) not in held]
    if partition_move == "check" and any(key(row) in held_keys for row in fresh):
        raise Refused("partition move")

    kept: list[Row | None] = []
    updated = deleted = unchanged = 0
    for row in target:
        match = by_place.get(place(row))
        if match is None:
            kept.append(None if strategy == "full_merge" else row)
            deleted += strategy == "full_merge"
        elif strategy == "insert":
            kept.append(row)
        else:
            kept.append(match)
            updated += 1
            unchanged += match == row
    return Outcome(kept, [] if strategy == "update" else fresh, updated, deleted, unchanged)


def _one_per_key(
    source: Sequence[Row], key: Any, strategy: str, on_duplicate: str, order_by: Sequence[str]
) -> list[Row]:
    rows = list(source)
    if strategy == "deduplicate":
        for name in reversed(
            order_by
        ):  # stable sorts from the last column to the first: the winner of a key comes last
            column = name.removeprefix("-")
            rows.sort(key=lambda row: (row[column] is not None, row[column]), reverse=name.startswith("-"))
    elif on_duplicate == "first":
        rows.reverse()
    elif on_duplicate == "error" and len({key(row) for row in rows}) < len(rows):
        raise Refused("duplicate key")
    return list({key(row): row for row in rows}.values())

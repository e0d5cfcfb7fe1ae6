"""The oracle: changes of rows as functions over lists of dicts, short enough to be checked by reading it.

It owns the meaning of the five strategies and their options, of duplicate and null keys, and of partitions. Conditions
are functions of a row, or of a source row and a target row. Rows hold canonical values
(see rows.py: one spelling per value, NaN equal to NaN, -0.0 equal to 0.0), so that plain ``==`` is the right
comparison. It must not import fsspeckit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Condition = Callable[[Row], bool]
STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")


class Refused(Exception):
    """The merge must raise a ValueError and must not change the dataset; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The new value of each target row (None: deleted or moved), the inserted and moved rows, and the counts."""

    kept: list[Row | None]
    new: list[Row]
    updated: int
    deleted: int
    unchanged: int
    stale: int = 0
    moved: int = 0
    tombstones: frozenset[tuple[Hashable, Any]] = frozenset()

    @property
    def rows(self) -> list[Row]:
        return [row for row in self.kept if row is not None] + self.new

    @property
    def inserted(self) -> int:
        return len(self.new) - self.moved


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
    columns: Sequence[str] | None = None,
    keep_nulls: bool = False,
    newer_by: str | None = None,
    delete_when: Condition | None = None,
    update_when: Callable[[Row, Row], bool] | None = None,
    insert_when: Condition | None = None,
    scope: Condition | None = None,
    tombstones: frozenset[tuple[Hashable, Any]] | None = None,
) -> Outcome:
    """Merge source into target with a simple, slow algorithm.

    ``columns`` are those that matched rows get. With ``keep_nulls``, NULL in the source keeps the value of the target.
    ``tombstones`` are the keys that change feeds have deleted, with their sequences.
    """

    def key(row: Row) -> Hashable:
        return key_of(row, keys)

    def place(row: Row) -> Hashable:
        return tuple(row[name] for name in partitions), key(row)

    def replaced(old: Row, new: Row) -> Row:
        names = new if columns is None else {*columns, *partitions}
        return old | {name: new[name] for name in names if not (keep_nulls and new[name] is None)}

    if (source or strategy == "full_merge") and null_keys == "error":
        _refuse_nulls((*source, *target), keys)
    deletes = delete_when or (lambda row: False)
    _refuse_others(scope, (row for row in source if not deletes(row)))
    picked = _one_per_key(source, key, strategy, on_duplicate, order_by)
    late = [
        row for row in picked for at, old in tombstones or () if at == key(row) and not is_newer(row[newer_by], old)
    ]
    picked = [row for row in picked if row not in late]
    deleting = {key(row): row for row in picked if deletes(row)}
    by_place = {place(row): row for row in picked if key(row) not in deleting}
    held, held_keys = {place(row) for row in target}, {key(row) for row in target}
    elsewhere = {key(row): row for at, row in by_place.items() if at not in held and key(row) in held_keys}
    if partition_move == "check" and elsewhere:
        raise Refused("partition move")

    kept: list[Row | None] = []
    moved: list[Row] = []
    updated = deleted = unchanged = 0
    stale, outlived = len({key(row) for row in late}), set[Hashable]()
    dropped = set[Hashable]()
    for row in target:
        match = by_place.get(place(row))
        moving = elsewhere.get(key(row)) if partition_move == "move" else None
        change = deleting.get(key(row), match or moving)
        if change is None:
            drop = strategy == "full_merge" and (scope is None or scope(row))
            kept.append(None if drop else row)
            deleted += drop
        elif newer_by is not None and not is_newer(change[newer_by], row[newer_by]):
            kept.append(row)
            stale += 1
            outlived |= {key(row)}
        elif key(row) in deleting:
            kept.append(None)
            deleted += 1
            dropped |= {key(row)}
        elif strategy == "insert" or (update_when is not None and not update_when(change, row)):
            kept.append(row)
        else:
            new = replaced(row, change)
            updated += 1
            unchanged += new == row
            kept.append(None if moving else new)
            moved += [new] if moving else []
    fresh = [row for at, row in by_place.items() if at not in held]
    if partition_move == "move":
        fresh = [row for row in fresh if key(row) not in elsewhere]
    inserted = [] if strategy == "update" else [row for row in fresh if insert_when is None or insert_when(row)]
    new = {(at, row[newer_by]) for at, row in deleting.items() if newer_by and at not in outlived - dropped}
    after = frozenset() if tombstones is None else tombstones | new
    return Outcome(kept, inserted + moved, updated, deleted, unchanged, stale, len(moved), after)


def _refuse_nulls(rows: Iterable[Row], keys: Sequence[str]) -> None:
    if any(row[name] is None for row in rows for name in keys):
        raise Refused("null key")


def _refuse_others(scope: Condition | None, rows: Iterable[Row]) -> None:
    if scope is not None and not all(map(scope, rows)):
        raise Refused("scope")


def key_of(row: Row, keys: Iterable[str]) -> Hashable:
    """The key of a row."""
    return tuple(row[name] for name in keys)


def is_newer(new: Any, old: Any) -> bool:
    """Whether a change with one sequence replaces a row with another."""
    return new is not None and (old is None or new > old)


def deduplicate(
    target: Sequence[Row], keys: Sequence[str], order_by: Sequence[str], *, null_keys: str = "error"
) -> list[Row]:
    """One row of each key, the one with the highest values; of equals, the last one."""
    if null_keys == "error":
        _refuse_nulls(target, keys)
    return _one_per_key(target, lambda row: key_of(row, keys), "deduplicate", "error", order_by)


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

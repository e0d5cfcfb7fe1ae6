"""Change feeds that keep the history of each key: examples on every engine, and random batches against a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conformance.effort import for_each
from fsspeckit import KeyColumnError, SchemaMismatchError
from kit import tree_of

Change = tuple[Any, ...]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("w", pa.int64()), ("lsn", pa.int64()), ("op", pa.string())]
)
OPTIONS: dict[str, Any] = {
    "key_columns": "id",
    "sequence_by": "lsn",
    "delete_when": "op = 'd'",
    "except_columns": ["op"],
    "scd_type": 2,
}
NAMES = ("id", "v", "w", "valid_from", "valid_to", "is_current")


def feed(*changes: Change) -> pa.Table:
    """Changes as (id, v, lsn), or (id, lsn) for a delete."""
    rows = [(c[0], c[1], 0, c[2], "u") if len(c) == 3 else (c[0], None, None, c[1], "d") for c in changes]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def rows(io: Any, path: Path | str, names: tuple[str, ...] = ("id", "v", "valid_from", "valid_to")) -> list[Any]:
    found = io.read_parquet(str(path)).sort_by([("id", "ascending"), ("valid_from", "ascending")])
    if found.schema.field("is_current").type == pa.string():  # the values of a partition column are text
        at = found.column_names.index("is_current")
        found = found.set_column(at, "is_current", found["is_current"].cast(pa.bool_()))
    return [tuple(row[name] for name in names) for row in found.to_pylist()]


def counts(result: Any) -> dict[str, int]:
    return {name: result[name] for name in ("inserted", "updated", "deleted", "total")}


def apply(io: Any, path: Path, *changes: Change, **options: Any) -> Any:
    return io.apply_changes(feed(*changes), str(path), **{**OPTIONS, **options})


def test_a_change_closes_the_open_row(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    first = apply(io, path, (1, "a", 10), (2, "b", 11))
    assert (counts(first), first.stale) == ({"inserted": 2, "updated": 0, "deleted": 0, "total": 2}, 0)
    found = io.read_parquet(str(path))
    assert set(found.column_names) == set(NAMES)
    assert [found.schema.field(name).type for name in NAMES[3:]] == [pa.int64(), pa.int64(), pa.bool_()]
    second = apply(io, path, (1, "A", 20), (2, "b", 21), (3, "c", 22))
    assert (counts(second), second.stale) == ({"inserted": 2, "updated": 1, "deleted": 0, "total": 4}, 1)
    assert second.strategy == "scd2"
    assert rows(io, path, NAMES) == [
        (1, "a", 0, 10, 20, False),
        (1, "A", 0, 20, None, True),
        (2, "b", 0, 11, None, True),
        (3, "c", 0, 22, None, True),
    ]


@for_each(
    "change, expected",
    [
        ((1, "x", 5), [("x", 5, 10), ("a", 10, 20), ("b", 20, None)]),
        ((1, "x", 15), [("a", 10, 15), ("x", 15, 20), ("b", 20, None)]),
        ((1, "x", 25), [("a", 10, 20), ("b", 20, 25), ("x", 25, None)]),
        ((1, "a", 15), [("a", 10, 20), ("b", 20, None)]),
        ((1, "b", 15), [("a", 10, 15), ("b", 15, None)]),
        ((1, "a", 5), [("a", 5, 20), ("b", 20, None)]),
        ((1, "a", 20), [("a", 10, None)]),
        ((1, "x", 10), [("x", 10, 20), ("b", 20, None)]),
        ((1, 20), [("a", 10, 20)]),
        ((1, 10), [("b", 20, None)]),
    ],
)
def test_a_change_is_put_at_its_place_in_the_history(
    io: Any, tmp_path: Path, change: Change, expected: list[tuple[Any, ...]]
) -> None:
    path = tmp_path / "d"
    apply(io, path, (1, "a", 10), (1, "b", 20), (2, "z", 1))
    apply(io, path, change)
    assert rows(io, path) == [*((1, *row) for row in expected), (2, "z", 1, None)]
    before = tree_of(path)
    again = apply(io, path, change)
    assert (again.stale, again.commit_seq, tree_of(path)) == (1, None, before)


def test_files_without_keys_of_the_feed_stay(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    for key in range(3):
        apply(io, path, (key, "a", 10))
    before = tree_of(path)
    plan = apply(io, path, (1, "b", 20), dry_run=True)
    assert tree_of(path) == before
    assert sorted(entry.action for entry in plan.entries) == ["insert", "keep", "keep", "rewrite"]
    result = apply(io, path, (1, "b", 20), plan=plan)
    assert counts(plan) == counts(result) == {"inserted": 1, "updated": 1, "deleted": 0, "total": 4}
    assert (len(result.rewritten_files), len(result.inserted_files), len(result.preserved_files)) == (1, 1, 2)


def test_the_sequence_is_a_column_only_if_it_is_listed(io: Any, tmp_path: Path) -> None:
    path, options = tmp_path / "d", {**OPTIONS, "except_columns": None}
    io.apply_changes(feed((1, "a", 10)), str(path), **options, columns=["v", "lsn"])
    io.apply_changes(feed((1, "a", 20), (2, "b", 20)), str(path), **options, columns=["v"])
    assert rows(io, path, ("id", "v", "lsn", "valid_from")) == [(1, "a", 10, 10), (2, "b", 20, 20)]
    assert "op" not in io.read_parquet(str(path)).column_names


def test_a_wider_sequence_widens_the_history_only_where_asked(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    narrow = feed((1, "a", 10), (1, "b", 20))
    narrow = narrow.set_column(3, "lsn", narrow["lsn"].cast(pa.int32()))
    io.apply_changes(narrow, str(path), **OPTIONS)
    assert io.read_parquet(str(path)).schema.field("valid_to").type == pa.int32()
    with pytest.raises(SchemaMismatchError, match=r"1099511627776 of column 'lsn' .* source row 1, .*widen"):
        apply(io, path, (1, "c", 30), (1, "c", 2**40))
    assert io.read_parquet(str(path)).schema.field("valid_to").type == pa.int32()
    apply(io, path, (1, "c", 2**40), schema_mode="widen")
    assert io.read_parquet(str(path)).schema.field("valid_to").type == pa.int64()
    assert rows(io, path) == [(1, "a", 10, 20), (1, "b", 20, 2**40), (1, "c", 2**40, None)]


HISTORY = pa.table(
    {"id": [1, 1], "v": ["a", "b"], "valid_from": [1, 5], "valid_to": pa.array([5, None]), "is_current": [False, True]}
)
BAD_HISTORIES = {
    "no valid_to": (HISTORY.drop_columns("valid_to"), SchemaMismatchError),
    "no history at all": (HISTORY.select(["id", "v"]), SchemaMismatchError),
    "starts of another type": (HISTORY.set_column(2, "valid_from", pa.array(["1", "5"])), SchemaMismatchError),
    "is_current is a number": (HISTORY.set_column(4, "is_current", pa.array([0, 1])), SchemaMismatchError),
    "two open rows": (
        HISTORY.set_column(3, "valid_to", pa.nulls(2, pa.int64())).set_column(4, "is_current", pa.array([True, True])),
        KeyColumnError,
    ),
    "overlapping rows": (HISTORY.set_column(3, "valid_to", pa.array([7, None])), KeyColumnError),
    "two rows with one start": (HISTORY.set_column(2, "valid_from", pa.array([1, 1])), KeyColumnError),
    "an end before its start": (HISTORY.set_column(3, "valid_to", pa.array([0, None])), KeyColumnError),
    "a null start": (HISTORY.set_column(2, "valid_from", pa.array([None, 5])), KeyColumnError),
    "closed and current": (HISTORY.set_column(4, "is_current", pa.array([True, True])), KeyColumnError),
    "null is_current": (HISTORY.set_column(4, "is_current", pa.array([False, None])), KeyColumnError),
}


@for_each("name", BAD_HISTORIES)
def test_a_dataset_that_is_not_a_history_stays(io: Any, tmp_path: Path, name: str) -> None:
    table, error = BAD_HISTORIES[name]
    io.write_dataset(table, str(tmp_path / "d"))
    before = tree_of(tmp_path)
    change = pa.table({"id": [1], "v": ["z"], "lsn": [9]})
    for dry_run in (True, False):
        with pytest.raises(error):
            io.apply_changes(
                change, str(tmp_path / "d"), key_columns="id", sequence_by="lsn", scd_type=2, dry_run=dry_run
            )
    assert tree_of(tmp_path) == before

"""Histories of many types: sequences, tracked values and keys; other sources than tables; other writers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit import CommitConflictError
from kit import tree_of

OPTIONS: dict[str, Any] = {"key_columns": "id", "sequence_by": "at", "scd_type": 2}
DAY = dt.datetime(2026, 11, 2)  # noqa: DTZ001 - Arrow's timestamps without a zone
SEQUENCES = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "uint64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "double": (pa.float64(), [float("-inf"), -1.5, 0.0]),
    "decimal": (pa.decimal128(30, 2), [Decimal("-1.50"), Decimal("0.25"), Decimal(10**20)]),
    "string": (pa.string(), ["", "10", "9"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "ä"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [DAY, DAY + dt.timedelta(microseconds=1), DAY + dt.timedelta(1)]),
    "timestamp with zone": (pa.timestamp("ms", "Europe/Berlin"), [DAY, DAY + dt.timedelta(1), DAY + dt.timedelta(2)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(1), dt.time(23, 59, 59, 999999)]),
}
NAN = float("nan")
VALUES = {
    "double": (pa.float64(), [NAN, 1.0]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", "y"]),
    "bool": (pa.bool_(), [True, None]),
    "list": (pa.list_(pa.int64()), [[1, None], [1]]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, {"a": 1, "b": "x"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
    "binary": (pa.binary(), [b"", None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-1.5")]),
}


def feed(ids: list[Any], values: pa.Array, at: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(ids), "v": values, "at": at})


def history(io: Any, path: Path) -> pa.Table:
    return io.read_parquet(str(path)).sort_by([("id", "ascending"), ("valid_from", "ascending")])


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_of_any_ordered_type(io: Any, tmp_path: Path, name: str) -> None:
    type_, values = SEQUENCES[name]
    low, middle, high = (pa.array([value], type_) for value in values)
    io.apply_changes(feed([1], pa.array(["c"]), high), str(tmp_path / "d"), **OPTIONS)
    both = pa.chunked_array([low, middle]).unify_dictionaries().combine_chunks()
    io.apply_changes(feed([1, 1], pa.array(["a", "b"]), both), str(tmp_path / "d"), **OPTIONS)
    found = history(io, tmp_path / "d")
    assert found["v"].to_pylist() == ["a", "b", "c"]
    assert found["valid_to"].to_pylist() == [*found["valid_from"].to_pylist()[1:], None]
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    assert [found.schema.field(n).type for n in ("valid_from", "valid_to")] == [plain, plain]
    before = tree_of(tmp_path)
    assert io.apply_changes(feed([1], pa.array(["b"]), middle), str(tmp_path / "d"), **OPTIONS).stale == 1
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("name", VALUES)
def test_tracked_values_of_any_type(io: Any, tmp_path: Path, name: str) -> None:
    type_, (one, other) = VALUES[name]
    for times in ([1, 2, 3], [4, 5, 6]):
        values = pa.array([one, one, other], type_)
        io.apply_changes(feed([1, 1, 1], values, pa.array(times)), str(tmp_path / "d"), **OPTIONS)
    found = history(io, tmp_path / "d")
    assert found["valid_from"].to_pylist() == [1, 3, 4, 6]
    assert found["v"].cast(pa.string() if name == "dictionary" else type_).to_pylist()[1::2] == [other, other]
    before = tree_of(tmp_path)
    again = io.apply_changes(
        feed([1, 1], pa.array([one, other], type_), pa.array([2, 3])), str(tmp_path / "d"), **OPTIONS
    )
    assert (again.stale, tree_of(tmp_path)) == (2, before)


def test_keys_of_several_columns(io: Any, tmp_path: Path) -> None:
    def changes(values: list[str], at: list[int]) -> pa.Table:
        return pa.table({"id": [1, 1], "sub": ["x", "y"], "v": values, "at": at})

    options = {**OPTIONS, "key_columns": ["id", "sub"], "partition_by": "sub"}
    io.apply_changes(changes(["a", "a"], [1, 1]), str(tmp_path / "d"), **options)
    result = io.apply_changes(changes(["b", "a"], [2, 2]), str(tmp_path / "d"), **options)
    assert (result.inserted, result.updated, result.stale) == (1, 1, 1)
    found = history(io, tmp_path / "d").select(["sub", "v", "valid_from", "valid_to"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found if row["sub"] == "x") == [("x", "a", 1, 2), ("x", "b", 2, None)]


def test_a_delete_needs_only_key_and_sequence(io: Any, tmp_path: Path) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
    first = pa.table({"id": [1], "v": ["a"]}, required).append_column("at", pa.array([1]))
    options = {**OPTIONS, "delete_when": "op = 'd'"}
    io.apply_changes(first, str(tmp_path / "d"), **OPTIONS, partition_by="v")
    second = pa.table({"id": [1], "v": pa.array([None], pa.string()), "at": [2], "op": ["d"]})
    assert io.apply_changes(second, str(tmp_path / "d"), **options).updated == 1
    assert history(io, tmp_path / "d")["valid_to"].to_pylist() == [2]


def test_a_source_path(io: Any, tmp_path: Path) -> None:
    table = feed([1, 1], pa.array(["a", "b"]), pa.array([1, 2]))
    io.write_dataset(table, str(tmp_path / "feed"))
    assert io.apply_changes(str(tmp_path / "feed"), str(tmp_path / "d"), **OPTIONS).inserted == 2


def test_the_sequence_of_a_text_file_has_the_type_of_the_history(io: Any, tmp_path: Path) -> None:
    """By itself, the column of the second file would be a date."""
    for number, texts in enumerate((["2026-11-02 10:00:00", "2026-11-03 10:00:00"], ["2026-11-04"])):
        lines = [f"1,v{number}{i},{text}" for i, text in enumerate(texts)]
        (tmp_path / "feed.csv").write_text("\n".join(["id,v,at", *lines, ""]))
        io.apply_changes(str(tmp_path / "feed.csv"), str(tmp_path / "d"), **OPTIONS)
    assert history(io, tmp_path / "d")["v"].to_pylist() == ["v00", "v01", "v10"]


def test_an_empty_feed_changes_nothing(io: Any, tmp_path: Path) -> None:
    table = feed([1], pa.array(["a"]), pa.array([1]))
    assert io.apply_changes(table.slice(1), str(tmp_path / "d"), **OPTIONS).total == 0
    io.apply_changes(table, str(tmp_path / "d"), **OPTIONS)
    before = tree_of(tmp_path)
    assert io.apply_changes(table.slice(1), str(tmp_path / "d"), **OPTIONS).commit_seq is None
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("stage", ["match", "write"])
def test_a_commit_of_another_writer_is_a_conflict(io: Any, tmp_path: Path, stage: str) -> None:
    """The history that was read is the history that the commit changes."""
    path = str(tmp_path / "d")
    io.apply_changes(feed([1], pa.array(["a"]), pa.array([1])), path, **OPTIONS)
    others = [feed([1], pa.array(["other"]), pa.array([5]))]

    def on_progress(event: Any) -> None:
        if event.stage == stage and others:
            io.apply_changes(others.pop(), path, **OPTIONS)

    with pytest.raises(CommitConflictError):
        io.apply_changes(feed([1], pa.array(["b"]), pa.array([9])), path, progress=on_progress, retries=0, **OPTIONS)
    assert history(io, tmp_path / "d")["v"].to_pylist() == ["a", "other"]


def test_a_plan_does_not_run_after_another_commit(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    io.apply_changes(feed([1], pa.array(["a"]), pa.array([1])), path, **OPTIONS)
    change = feed([1], pa.array(["b"]), pa.array([9]))
    plan = io.apply_changes(change, path, dry_run=True, **OPTIONS)
    io.apply_changes(feed([1], pa.array(["other"]), pa.array([5])), path, **OPTIONS)
    with pytest.raises(CommitConflictError):
        io.apply_changes(change, path, plan=plan, **OPTIONS)
    assert len(history(io, tmp_path / "d")) == 2

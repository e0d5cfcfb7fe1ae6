"""Histories of many types: sequences, tracked values and keys; other sources than tables; other writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit import CommitConflictError

OPTIONS: dict[str, Any] = {"key_columns": "id", "sequence_by": "at", "scd_type": 2}


def feed(ids: list[Any], values: pa.Array, at: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(ids), "v": values, "at": at})


def history(io: Any, path: Path) -> pa.Table:
    return io.read_parquet(str(path)).sort_by([("id", "ascending"), ("valid_from", "ascending")])


def test_keys_of_several_columns(io: Any, tmp_path: Path) -> None:
    def changes(values: list[str], at: list[int]) -> pa.Table:
        return pa.table({"id": [1, 1], "sub": ["x", "y"], "v": values, "at": at})

    options = {**OPTIONS, "key_columns": ["id", "sub"], "partition_by": "sub"}
    io.apply_changes(changes(["a", "a"], [1, 1]), str(tmp_path / "d"), **options)
    result = io.apply_changes(changes(["b", "a"], [2, 2]), str(tmp_path / "d"), **options)
    assert (result.inserted, result.updated, result.stale) == (1, 1, 1)
    found = history(io, tmp_path / "d").select(["sub", "v", "valid_from", "valid_to"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found if row["sub"] == "x") == [("x", "a", 1, 2), ("x", "b", 2, None)]


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

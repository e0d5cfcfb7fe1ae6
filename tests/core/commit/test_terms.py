"""Commits with an idempotency key, and with a check of the staged files."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit import AlreadyCommittedError, CommitConflictError
from fsspeckit.core.commit import log
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "local":
        return str(tmp_path / "ds")
    request.getfixturevalue("memory_fs")
    return "memory://terms/ds"


def test_idempotency_key_commits_once(place: str) -> None:
    io = PyarrowDatasetIO()
    seq = io.on_terms(idempotency_key="monday").write_dataset(rows(1), place).commit_seq
    assert io.committed(place, "monday") == seq
    with pytest.raises(AlreadyCommittedError, match="monday") as caught:
        io.on_terms(idempotency_key="monday").write_dataset(rows(1), place)
    assert caught.value.seq == seq
    io.on_terms(idempotency_key="tuesday").write_dataset(rows(2), place)
    io.write_dataset(rows(3), place)
    assert sorted(io.read_parquet(place)["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("key", [7, 1.5, True, ["a"], b"x", "", "\ud800", "k" * 1001], ids=repr)
def test_only_text_is_an_idempotency_key(place: str, key: Any) -> None:
    io = PyarrowDatasetIO()
    with pytest.raises(ValueError, match=r"idempotency_key=.* is not a text of 1 to 1000 characters"):
        io.on_terms(idempotency_key=key)
    io.write_dataset(rows(1), place)
    with pytest.raises(ValueError, match="idempotency_key"):
        io.committed(place, key)
    io.on_terms(idempotency_key="k" * 1000).write_dataset(rows(2), place)
    assert io.committed(place, "k" * 1000) == 2


def test_key_is_known_however_many_commits_follow(place: str) -> None:
    io = PyarrowDatasetIO()
    seq = io.on_terms(idempotency_key="first").write_dataset(rows(0), place).commit_seq
    for number in range(1, 15):
        io.write_dataset(rows(number), place)
        assert io.committed(place, "first") == seq
    with pytest.raises(AlreadyCommittedError, match="first"):
        io.on_terms(idempotency_key="first").write_dataset(rows(0), place)
    assert io.read_parquet(place).num_rows == 15


def test_key_is_kept_after_its_record_is_pruned(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEPT_RECORDS", 2)
    monkeypatch.setattr(log, "_PRUNE_SLACK", 0)
    monkeypatch.setattr(log, "_KEPT_KEYS", 3)
    io = PyarrowDatasetIO()
    for number in range(8):
        io.on_terms(idempotency_key=f"run-{number}").write_dataset(rows(number), place)
    known = [io.committed(place, f"run-{number}") for number in range(8)]
    assert known == [None, None, 3, 4, 5, 6, 7, 8]
    with pytest.raises(AlreadyCommittedError):
        io.on_terms(idempotency_key="run-3").write_dataset(rows(3), place)


def test_one_of_several_concurrent_writers_with_one_key_commits(place: str) -> None:
    """Appends do not conflict, so only the key prevents a second commit."""
    io, ready, outcomes = PyarrowDatasetIO(), threading.Barrier(4), []

    def write() -> None:
        keyed = io.on_terms(idempotency_key="once", check=lambda *_: ready.wait(30) and None)
        try:
            outcomes.append(keyed.write_dataset(rows(1), place).commit_seq)
        except (AlreadyCommittedError, CommitConflictError) as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == ["1", *["AlreadyCommittedError"] * 3]
    assert io.read_parquet(place)["id"].to_pylist() == [1]

"""Another writer commits while an operation runs: it is revalidated, planned again, or refused, and no row is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import CommitConflictError, PartitionError
from fsspeckit.core.operations import attempts
from fsspeckit.core.operations.change import Revalidation
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

IO = PyarrowDatasetIO()
Act = Callable[[], Any]


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "d")
    request.getfixturevalue("memory_fs")
    return "memory://commits/d"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_FIRST_WAIT_SECONDS", 0.001)


@pytest.fixture
def revalidated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The new files of each revalidation that succeeded."""
    calls: list[tuple[str, ...]] = []
    check = Revalidation.__call__

    def counted(self: Revalidation, view: Any, new: frozenset[str]) -> None:
        check(self, view, new)
        calls.append(tuple(sorted(new)))

    monkeypatch.setattr(Revalidation, "__call__", counted)
    return calls


def table(ids: list[int], day: str = "a", v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids), "day": [day] * len(ids)})


def start(folder: str) -> None:
    rows = pa.concat_tables([table([1, 2]), table([11, 12], "b")])
    IO.write_dataset(rows, folder, partition_by="day")


def once(stage: str, act: Act, *, at_end: bool = False) -> Callable[[Any], None]:
    """A progress callback that acts when a stage begins, or ends, for the first time."""
    left = [act]

    def callback(event: Any) -> None:
        if left and event.stage == stage and event.done == (event.total if at_end else 0):
            left.pop()()

    return callback


def rows_of(folder: str) -> list[tuple[int, str, str]]:
    found = IO.read_parquet(folder)
    return sorted(zip(*(found[name].to_pylist() for name in ("id", "day", "v")), strict=True))


def upsert(ids: list[int], folder: str, day: str = "a", v: str = "mine", **options: Any) -> Any:
    options = {"strategy": "upsert", "key_columns": "id", **options}
    return IO.merge(table(ids, day, v), folder, **options)


def test_a_merge_in_another_partition_is_no_conflict(folder: str, revalidated: list[Any]) -> None:
    """The check of moves reads everything, so the rewritten file of the other partition is scanned."""
    start(folder)
    other = once("write", lambda: upsert([11], folder, "b", "other"))
    result = upsert([1, 3], folder, retries=0, progress=other)
    assert (result.updated, result.inserted, len(revalidated)) == (1, 1, 1)
    assert rows_of(folder) == [
        (1, "a", "mine"),
        (2, "a", "old"),
        (3, "a", "mine"),
        (11, "b", "other"),
        (12, "b", "old"),
    ]


@pytest.mark.parametrize("strategy", ["upsert", "insert", "update", "deduplicate"])
def test_a_key_that_another_writer_inserts_is_planned_again(folder: str, strategy: str) -> None:
    start(folder)
    add = lambda: IO.write_dataset(table([3], "a", "other"), folder)  # noqa: E731
    with pytest.raises(CommitConflictError, match="Run the operation again"):
        upsert([1, 3], folder, strategy=strategy, retries=0, progress=once("write", add))
    assert (3, "a", "other") in rows_of(folder)
    IO.delete(folder, where="id = 3")
    upsert([1, 3], folder, strategy=strategy, progress=once("write", add))
    mine = "other" if strategy == "insert" else "mine"
    assert [row for row in rows_of(folder) if row[0] == 3] == [(3, "a", mine)]


def test_a_key_that_arrives_in_another_partition_is_found_by_the_check_of_moves(folder: str) -> None:
    start(folder)
    add = lambda: upsert([3], folder, "b", "other")  # noqa: E731
    with pytest.raises(PartitionError, match="already in"):
        upsert([3], folder, progress=once("write", add))
    assert [row for row in rows_of(folder) if row[0] == 3] == [(3, "b", "other")]
    IO.delete(folder, where="id = 3")
    result = upsert([3], folder, progress=once("write", add), partition_move="move")
    assert result.moved == 1
    assert [row for row in rows_of(folder) if row[0] == 3] == [(3, "a", "mine")]


def test_a_compaction_under_a_merge(folder: str, revalidated: list[Any]) -> None:
    """Files without a matching key are compacted: no conflict. With one: the merge is planned again."""
    start(folder)
    for number in (13, 14):
        IO.write_dataset(table([number], "b"), folder)
    compact = lambda: IO.compact_parquet_dataset(folder, target_rows_per_file=100)  # noqa: E731
    upsert([1], folder, retries=0, progress=once("write", compact))
    assert len(revalidated) == 1
    IO.write_dataset(table([15], "b"), folder)
    with pytest.raises(CommitConflictError):
        upsert([12], folder, "b", retries=0, progress=once("write", compact))
    IO.write_dataset(table([16], "b"), folder)
    upsert([12], folder, "b", progress=once("write", compact))
    assert [row[0] for row in rows_of(folder)] == [1, 2, 11, 12, 13, 14, 15, 16]
    assert (12, "b", "mine") in rows_of(folder)


def test_update_conditions_have_no_write_skew(folder: str) -> None:
    """Each update makes the condition of the other false, in another file; only one order can have happened."""
    rows = pa.table({"id": [1, 2], "day": ["a", "b"], "v": ["free", "free"]})
    IO.write_dataset(rows, folder, partition_by="day")
    whole = "v = 'free' AND id = {}"
    change = lambda: IO.update(folder, set={"v": "'taken'"}, where=whole.format(1))  # noqa: E731
    result = IO.update(folder, set={"v": "'late'"}, where="v = 'free'", progress=once("write", change))
    assert result.updated == 1
    assert rows_of(folder) == [(1, "a", "taken"), (2, "b", "late")]


def test_delete_and_update_look_at_new_files_by_their_condition(folder: str, revalidated: list[Any]) -> None:
    start(folder)
    add = once("write", lambda: IO.write_dataset(table([3], "a", "other"), folder))
    assert IO.delete(folder, where="id = 1", retries=0, progress=add).deleted == 1
    assert len(revalidated) == 1
    add = once("write", lambda: IO.write_dataset(table([2], "c", "other"), folder))
    assert IO.update(folder, set={"v": "'mine'"}, where="id = 2", progress=add).updated == 2
    assert rows_of(folder)[:2] == [(2, "a", "mine"), (2, "c", "mine")]


def test_replace_where_and_overwrite_partitions_state_what_they_replace(folder: str) -> None:
    start(folder)
    for options in ({"mode": "overwrite", "replace_where": "day = 'a'"}, {"mode": "overwrite_partitions"}):
        other = once("write", lambda: upsert([11], folder, "b", "other"))
        IO.write_dataset(table([5]), folder, retries=0, progress=other, **options)
        add = lambda: IO.write_dataset(table([6], "a", "other"), folder)  # noqa: E731
        with pytest.raises(CommitConflictError):
            IO.write_dataset(table([7]), folder, retries=0, progress=once("write", add), **options)
        IO.write_dataset(table([8]), folder, progress=once("write", add), **options)
        assert [row[0] for row in rows_of(folder)] == [8, 11, 12]


def test_staged_files_whose_inputs_are_unchanged_are_used_again(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start(folder)
    runs: list[int] = []
    run = type(IO.engine).run

    def counted(self: Any, storage: Any, source: Any, tasks: Any, staging: Any, on_done: Any) -> Any:
        runs.append(len(tasks))
        return run(self, storage, source, tasks, staging, on_done)

    monkeypatch.setattr(type(IO.engine), "run", counted)
    change = once("write", lambda: upsert([11], folder, "b", "other"), at_end=True)
    result = IO.merge(
        pa.concat_tables([table([1, 3], "a", "mine"), table([12], "b", "mine")]),
        folder,
        strategy="upsert",
        key_columns="id",
        progress=change,
    )
    assert runs == [3, 1, 1]  # mine, the other writer's, and the file that the other one changed
    assert (result.updated, result.inserted) == (2, 1)
    assert [row[2] for row in rows_of(folder)] == ["mine", "old", "mine", "other", "mine"]
    assert not IO.recover(folder)

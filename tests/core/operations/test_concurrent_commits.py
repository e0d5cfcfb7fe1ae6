"""Another writer commits while an operation runs: it is revalidated, planned again, or refused, and no row is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import CommitConflictError, PartitionError
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.record import Record
from fsspeckit.core.operations import attempts
from fsspeckit.core.operations.change import Revalidation
from fsspeckit.core.operations.maintenance_run import MaintenanceRun
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


def test_the_journal_shows_an_input_that_size_and_stamp_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another commit rewrites an input, and a third one adds a file: the newer view has the same size and stamp."""
    folder = str(tmp_path / "d")
    start(folder)
    read = Log.read

    def lie(self: Log, seq: int) -> Record:
        record = read(self, seq)
        touched = record.publish[:1] if seq == 2 else ()
        fake = tuple(type(item)(item.staged, path, item.rows, item.size, item.stamp) for item in touched)
        return type(record)(record.seq, record.kind, record.owner, fake or record.publish, record.retire, info={})

    path = next(file for file in Path(folder).rglob("*.parquet") if "day=a" in str(file)).relative_to(folder).as_posix()

    def add() -> None:
        IO.write_dataset(table([7], "b", "other"), folder)
        monkeypatch.setattr(Log, "read", lie)

    with pytest.raises(CommitConflictError, match="another writer changed"):
        upsert([1], folder, retries=0, progress=once("write", add))


# Files that another writer changes while an operation runs


def put(path: str, ids: list[int], value: str = "old") -> None:
    """Write one file like a program that does not know of the journal."""
    fs, _, (inner,) = fsspec.get_fs_token_paths(path)
    fs.makedirs(fs._parent(inner), exist_ok=True)
    with fs.open(inner, "wb") as file:
        pq.write_table(pa.table({"id": ids, "v": [value] * len(ids)}), file)


def ids_of(folder: str) -> list[int]:
    return sorted(IO.read_parquet(folder)["id"].to_pylist())


def at_stage(stage: str, change: Callable[[], Any]) -> Callable[[Any], None]:
    """A progress callback that makes a change when a stage begins."""
    return lambda event: change() if event.stage == stage and event.done == 0 else None


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], Any]], None]:
    """Make a change right before the commit of this number in a run."""

    def arrange(number: int, change: Callable[[], Any]) -> None:
        commit = MaintenanceRun.commit

        def changed_before(run: MaintenanceRun, *args: Any, **options: Any) -> None:
            if len(run.commits) == number:
                change()
            commit(run, *args, **options)

        monkeypatch.setattr(MaintenanceRun, "commit", changed_before)

    return arrange


@pytest.mark.parametrize("change", ["another row", "gone"])
def test_the_file_of_a_winner_that_is_not_rewritten_changes(folder: str, change: str) -> None:
    """Key 2 stays in b.parquet, which no task touches. Without it the row in a.parquet must not go."""
    put(f"{folder}/a.parquet", [1, 2])
    put(f"{folder}/b.parquet", [2, 3])

    def act() -> None:
        if change == "gone":
            fsspec.url_to_fs(folder)[0].rm(f"{folder}/b.parquet")
        else:
            put(f"{folder}/b.parquet", [4, 3])

    with pytest.raises(CommitConflictError, match="again"):
        IO.deduplicate_parquet_dataset(folder, "id", progress=at_stage("write", act), retries=0)
    assert 2 in ids_of(folder)


def test_the_file_of_a_winner_changes_during_a_sort(folder: str) -> None:
    """Limits leave the file of the winner out of the sort."""
    put(f"{folder}/a.parquet", [1, 6])
    put(f"{folder}/b.parquet", [2, 3])
    put(f"{folder}/c.parquet", [6, 9], "wins")
    change = at_stage("sort", lambda: put(f"{folder}/c.parquet", [8, 9], "wins"))
    options: dict[str, Any] = {"deduplicate_key_columns": "id", "dedup_order_by": "v", "max_files": 2}
    plan = IO.optimize_parquet_dataset(folder, "id", dry_run=True, **options)
    assert (list(plan.skipped_files), plan["deduplicated_rows"]) == ([f"{folder}/c.parquet"], 1)
    with pytest.raises(CommitConflictError, match="again"):
        IO.optimize_parquet_dataset(folder, "id", progress=change, **options, retries=0)
    assert 6 in ids_of(folder)


@pytest.mark.parametrize("ids", [[11, 12, 13], [13, 12, 11]])
def test_a_file_changes_between_two_commits_of_one_run(
    folder: str, ids: list[int], before_commit: Callable[..., None]
) -> None:
    """The second commit was planned with rows that are no longer there; what the first did stays."""
    for number in range(4):
        put(f"{folder}/day={number // 2}/{number}.parquet", [3 * number + i for i in range(3)])
    before_commit(1, lambda: put(f"{folder}/day=1/2.parquet", ids))
    with pytest.raises(CommitConflictError, match="Earlier commits of this run are kept"):
        IO.compact_parquet_dataset(folder, target_rows_per_file=100, max_groups_per_commit=1, retries=0)
    assert ids_of(folder) == sorted([*range(6), *ids, 9, 10, 11])


@pytest.mark.parametrize("operation", ["deduplicate", "sorted"])
def test_a_commit_of_another_writer_between_two_of_a_deduplication(
    folder: str, operation: str, before_commit: Callable[..., None]
) -> None:
    """Even one that only adds a file: its rows were not compared with those that are to go."""
    calls: dict[str, Callable[[], Any]] = {
        "deduplicate": lambda: IO.deduplicate_parquet_dataset(folder, "id", max_groups_per_commit=1, retries=0),
        "sorted": lambda: IO.optimize_parquet_dataset(
            folder, "id", deduplicate_key_columns="id", dedup_order_by="v", max_groups_per_commit=1, retries=0
        ),
    }
    for day in range(2):
        put(f"{folder}/day={day}/a.parquet", [day, day])
    before_commit(1, lambda: IO.write_dataset(pa.table({"id": [7], "v": ["new"], "day": [9]}), folder))
    with pytest.raises(CommitConflictError, match="the dataset changed"):
        calls[operation]()
    assert ids_of(folder) == [0, 1, 1, 7]


@pytest.mark.parametrize("mode", ["overwrite", "overwrite_partitions"])
@pytest.mark.parametrize("writer", ["journal", "foreign"])
def test_an_overwrite_that_did_not_see_every_file(folder: str, mode: Any, writer: str) -> None:
    """A file that arrives in an overwritten partition would stay beside the rows that replace it."""
    put(f"{folder}/day=1/a.parquet", [1, 2])
    put(f"{folder}/day=2/b.parquet", [3])

    def add() -> None:
        if writer == "foreign":
            put(f"{folder}/day=1/z.parquet", [9])
        else:
            IO.write_dataset(pa.table({"id": [9], "v": ["new"], "day": [1]}), folder)

    rows = pa.table({"id": [5], "v": ["new"], "day": [1]})
    with pytest.raises(CommitConflictError, match="Nothing was changed"):
        IO.write_dataset(rows, folder, mode=mode, partition_by="day", progress=at_stage("write", add), retries=0)
    assert ids_of(folder) == [1, 2, 3, 9]


MERGES: dict[str, dict[str, Any]] = {
    "rewritten": {"strategy": "upsert", "rows": [2]},
    "only looked at": {"strategy": "insert", "rows": [7]},
}


@pytest.mark.parametrize("merge", MERGES)
def test_a_file_changes_during_a_merge_without_changing_its_size(folder: str, merge: str) -> None:
    put(f"{folder}/a.parquet", [1, 2])
    size = fsspec.url_to_fs(folder)[0].size(f"{folder}/a.parquet")
    strategy, rows = MERGES[merge]["strategy"], MERGES[merge]["rows"]

    def change() -> None:
        put(f"{folder}/a.parquet", [1, 7])
        assert fsspec.url_to_fs(folder)[0].size(f"{folder}/a.parquet") == size

    source = pa.table({"id": rows, "v": ["new"] * len(rows)})
    with pytest.raises(CommitConflictError, match="again"):
        IO.merge(source, folder, strategy=strategy, key_columns="id", progress=at_stage("write", change), retries=0)
    assert ids_of(folder) == [1, 7]


@pytest.mark.parametrize("merge", MERGES)
def test_a_file_changes_after_its_plan_without_changing_its_size(folder: str, merge: str) -> None:
    put(f"{folder}/a.parquet", [1, 2], "same")
    strategy, rows = MERGES[merge]["strategy"], MERGES[merge]["rows"]
    source = pa.table({"id": rows, "v": ["new"] * len(rows)})
    plan = IO.merge(source, folder, strategy=strategy, key_columns="id", dry_run=True)
    put(f"{folder}/a.parquet", [1, 2], "SAME")
    with pytest.raises(CommitConflictError, match=r"a\.parquet was changed.*make a new plan"):
        IO.merge(source, folder, strategy=strategy, key_columns="id", plan=plan)
    assert IO.read_parquet(folder)["v"].to_pylist() == ["SAME", "SAME"]


def test_a_source_with_one_more_update_than_its_plan(folder: str) -> None:
    """The same file is rewritten to as many rows; only the counts tell."""
    put(f"{folder}/a.parquet", [1, 2, 3])
    plan = IO.merge(pa.table({"id": [1], "v": ["new"]}), folder, strategy="upsert", key_columns="id", dry_run=True)
    more = pa.table({"id": [1, 2], "v": ["new", "new"]})
    with pytest.raises(CommitConflictError, match="source_count is 2 and 1 in the plan"):
        IO.merge(more, folder, strategy="upsert", key_columns="id", plan=plan)
    assert IO.read_parquet(folder)["v"].to_pylist() == ["old"] * 3

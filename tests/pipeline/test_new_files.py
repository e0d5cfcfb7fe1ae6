"""Pipelines that read only files that they have not read before: each file exactly once."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError, StepFailedError
from inside import dying_commits, failing_commits, forgetting_positions, short_journals

pytestmark = pytest.mark.spark

LANDING = """
name = "landing"

[sources.raw]
format = "csv"
path = "in"
new_files = true

[datasets.orders]
path = "lake/orders"

[datasets.wrong]
path = "lake/wrong"

[[steps]]
name = "load"
do = "write"
from = "raw"
into = "orders"
"""
CHECKED = 'expect = { positive = "amount > 0" }\non_fail = "quarantine"\nquarantine = "wrong"\n'
IO = PyarrowDatasetIO()


class Killed(BaseException):
    """Nothing catches this."""


def put(name: str, *amounts: int) -> Path:
    path = Path("in") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("amount\n" + "".join(f"{amount}\n" for amount in amounts))
    return path


def amounts(path: str = "lake/orders") -> list[int]:
    return sorted(IO.read_parquet(path)["amount"].to_pylist())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    put("a.csv", 1)
    put("b.csv", 2, 3)

    def call(old: str = "", new: str = "", **options: Any) -> Any:
        Path("landing.toml").write_text(LANDING.replace(old, new) if old else LANDING)
        return Pipeline.load("landing.toml").run(spark, **options).step("load")

    return call


def test_every_file_is_read_once(run: Callable[..., Any]) -> None:
    first = run()
    assert (first.rows, first.details["source_files"], first.details["files_left"]) == (3, 2, 0)
    assert (run().rows, run(idempotency_key="k").commit_seq) == (0, None)
    put("c.csv", 4)
    with short_journals(records=1, slack=0):
        assert run().details["source_files"] == 1
        for number in range(5, 8):  # the records of earlier runs are pruned meanwhile
            put(f"{number}/d.csv", number)
            assert run('path = "in"', 'path = ["in/*.csv", "in/*/*.csv"]').details["source_files"] == 1
    assert amounts() == list(range(1, 8))
    stored = list(Path("lake/.orders.fsspeckit/seen").iterdir())
    assert [len(path.read_bytes()) % 24 for path in stored] == [0]
    for path in Path("in").rglob("*.csv"):  # archived
        path.unlink()
    assert run().rows == 0
    put("e.csv", 8)
    assert run().rows == 1
    assert amounts() == list(range(1, 9))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_before_or_after_the_record_repeats_or_skips_the_files(
    run: Callable[..., Any], when: Literal["before", "after"]
) -> None:
    run()
    put("c.csv", 4)
    with dying_commits(when, Killed), pytest.raises(Killed):
        run()
    put("d.csv", 5)
    run()
    assert amounts() == [1, 2, 3, 4, 5]


def test_of_two_runs_at_the_same_time_one_commits(run: Callable[..., Any]) -> None:
    run()
    with forgetting_positions():  # as seen before the other run committed
        assert run().status == "skipped"
    assert amounts() == [1, 2, 3]


def test_replaced_files_are_errors_unless_the_source_says_what_to_do(run: Callable[..., Any]) -> None:
    run()
    put("b.csv", 20, 30, 40)
    put("c.csv", 4)
    with pytest.raises(StepFailedError, match=r"in/b\.csv was read by an earlier run and has changed since\. Write"):
        run()
    assert amounts() == [1, 2, 3]
    assert run("new_files = true", 'new_files = true\nreplaced_files = "ignore"').rows == 1
    assert amounts() == [1, 2, 3, 4]
    for rows in (3, 0):
        assert run("new_files = true", 'new_files = true\nreplaced_files = "read"').rows == rows
    assert amounts() == [1, 2, 3, 4, 20, 30, 40]


def test_a_run_reads_at_most_max_files(run: Callable[..., Any]) -> None:
    put("c.csv", 4)
    found = [run("new_files = true", "new_files = true\nmax_files = 2").details for _ in range(2)]
    assert [(each["source_files"], each["files_left"]) for each in found] == [(2, 1), (1, 0)]
    assert amounts() == [1, 2, 3, 4]


def test_a_path_without_files_is_an_error_until_the_first_file(run: Callable[..., Any]) -> None:
    with pytest.raises(StepFailedError, match=r"no file at .*inn"):
        run('path = "in"', 'path = "inn"')
    run()
    for name in ("a.csv", "b.csv"):
        (Path("in") / name).unlink()
    assert run().rows == 0


def test_rows_in_quarantine_are_set_aside_once_for_the_same_files(run: Callable[..., Any]) -> None:
    put("c.csv", -1)
    # The quarantine is written first; the commit of the step fails.
    with failing_commits(of_positions=True), pytest.raises(StepFailedError, match="disk is gone"):
        run('into = "orders"\n', f'into = "orders"\n{CHECKED}')
    assert run('into = "orders"\n', f'into = "orders"\n{CHECKED}').details["quarantined"] == 1
    os.unlink("in/c.csv")
    put("d.csv", -2, 7)
    run('into = "orders"\n', f'into = "orders"\n{CHECKED}')
    assert (amounts(), amounts("lake/wrong")) == ([1, 2, 3, 7], [-2, -1])


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("new_files = true", 'replaced_files = "read"', "go with new_files = true"),
        ("new_files = true", "new_files = true\nmax_files = 100001", "max_files"),
        ('format = "csv"\npath = "in"', 'format = "dataset"\ndataset = "orders"', "new_files goes with files"),
        ('format = "csv"', 'format = "text"', "new_files"),
        ('do = "write"\nfrom = "raw"\ninto = "orders"', 'do = "check"\nfrom = "raw"\nchecks = {}', "has no position"),
    ],
)
def test_wrong_keys_are_errors(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "landing.toml").write_text(LANDING.replace(old, new))
    with pytest.raises(PipelineFileError, match=problem):
        Pipeline.load(tmp_path / "landing.toml")


def test_a_damaged_list_of_files_is_an_error(run: Callable[..., Any]) -> None:
    with short_journals(records=1, slack=0):
        for number in range(3):
            put(f"{number}.csv", number)
            run()
    (stored,) = Path("lake/.orders.fsspeckit/seen").iterdir()
    before = stored.read_bytes()
    stored.write_bytes(before[:-1])
    with pytest.raises(StepFailedError, match=r"is damaged: the list of files has \d+ bytes"):
        run()
    stored.write_bytes(before)
    assert run().rows == 0


def test_a_dry_run_reads_the_new_files_and_accepts_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    put("a.csv", 1)
    pipeline = Pipeline.of(tomllib.loads(LANDING))
    pipeline.run(spark)
    Path("in/a.csv").unlink()
    assert pipeline.preview(spark).step("load").reads == {"source_files": 0, "files_left": 0}
    assert pipeline.run(spark).step("load").rows == 0

"""Pipelines on Spark: rows through every kind of step, checks before the commit, and runs that are run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines.spark.clusters import QUICK, SPARK, environment
from fsspeckit import CheckFailedError, CommitConflictError
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, StepFailedError

pytestmark = pytest.mark.spark

WHOLE = """
name = "orders"
idempotency_key = "${day}"

[variables]
day = "mon"
most = 100

[sources.raw]
format = "csv"
path = "in/${day}.csv"


[sources.bronze]
format = "dataset"
dataset = "bronze"

[datasets.bronze]
path = "lake/bronze"

[datasets.silver]
path = "lake/silver"

[[steps]]
name = "named"
do = "rename"
from = "raw"
columns = { at = "day" }

[[steps]]
name = "typed"
do = "cast"
from = "named"
columns = { id = "bigint", amount = "decimal(10,2)", day = "date" }

[[steps]]
name = "newest"
do = "deduplicate"
from = "typed"
keys = ["id"]
order_by = ["day"]

[[steps]]
name = "landed"
do = "write"
from = "typed"
into = "bronze"
checks = { not_null = ["id"], reconciled = true }

[[steps]]
name = "merged"
do = "merge"
from = "newest"
into = "silver"
keys = ["id"]
[steps.checks]
rows = { min = 1, max = "${most}" }
unique = ["id"]
not_null = ["id", "day"]
fresh = { column = "day", within = "36500d" }
accepted = { status = ["new", "paid", "sent"] }
reconciled = true

[[steps]]
name = "joined"
do = "compact"
dataset = "bronze"

[[steps]]
name = "single"
do = "deduplicate"
dataset = "bronze"
keys = ["id"]
order_by = ["day"]
checks = { unique = ["id"], reconciled = true }

[[steps]]
name = "sorted"
do = "optimize"
dataset = "silver"
by = ["id"]
bloom = ["id"]

[[steps]]
name = "paid"
do = "filter"
from = "bronze"
where = "status <> 'new'"

[[steps]]
name = "good"
do = "check"
from = "paid"
checks = { accepted = { status = ["paid", "sent"] }, rows = { max = 9 } }

[[steps]]
name = "fine"
do = "check"
dataset = "silver"
checks = { unique = ["id"] }
"""

SHORT = """
name = "orders"
idempotency_key = "${day}"
variables = { day = "mon", most = 100 }
sources.raw.columns = "id int, status string, amount int, at date"
sources.raw.format = "csv"
sources.raw.path = "in/${day}.csv"
datasets.silver.path = "lake/silver"

[[steps]]
name = "merged"
do = "merge"
strategy = "deduplicate"
from = "raw"
into = "silver"
keys = ["id"]
order_by = ["status"]
checks = { rows.max = "${most}" }

[[steps]]
name = "good"
do = "check"
dataset = "silver"
checks = { rows.min = 1 }
"""


def rows_of(path: str) -> list[tuple[Any, ...]]:
    table = PyarrowDatasetIO().read_parquet(path)
    return sorted(tuple(row.values()) for row in table.select(["id", "status"]).to_pylist())


def small(**more: Any) -> dict[str, Any]:
    """A pipeline of one write."""
    source = {"format": "csv", "path": "in/mon.csv", "columns": "id bigint, status string, amount bigint, at date"}
    step = {"name": "load", "do": "write", "from": "raw", "into": "out"} | more
    raw = source
    return {"name": "small", "sources": {"raw": raw}, "datasets": {"out": {"path": "lake/out"}}, "steps": [step]}


def test_a_pipeline_of_everything_twice(lake: Path, spark: Any) -> None:
    Path("pipeline.toml").write_text(WHOLE)
    first = Pipeline.load("pipeline.toml").run(spark)
    assert first.status == "done"
    assert [(step.rows, step.files) for step in first.steps if step.name in ("landed", "merged")] == [(3, 1), (2, 1)]
    assert (
        first.step("landed").bytes == sum(file.stat().st_size for file in Path("lake/bronze").iterdir())
        or first.step("single").files
    )
    assert first.step("named").rows is None
    assert rows_of("lake/silver") == [(1, "new"), (2, "paid")]
    assert rows_of("lake/bronze") == [(1, "new"), (2, "paid")]
    assert first.step("good").rows == 1
    commits = {name: sorted(Path(f"lake/.{name}.fsspeckit/log").iterdir()) for name in ("bronze", "silver")}

    again = Pipeline.load("pipeline.toml").run(spark)
    status = {step.name: step.status for step in again.steps}
    assert {name for name, said in status.items() if said == "skipped"} == {"landed", "merged", "single", "sorted"}
    assert [again.step(name).commit_seq for name in ("landed", "merged")] == [1, 1]
    assert commits == {name: sorted(Path(f"lake/.{name}.fsspeckit/log").iterdir()) for name in commits}

    second = Pipeline.load("pipeline.toml", {"day": "tue"}).run(spark)
    assert second.step("merged").details == {
        "inserted": 1,
        "updated": 1,
        "deleted": 0,
        "total": 3,
        "unchanged": 0,
        "stale": 0,
        "moved": 0,
        "deleted_files": 0,
    }
    assert rows_of("lake/bronze") == rows_of("lake/silver") == [(1, "new"), (2, "sent"), (3, "new")]
    assert json.loads(json.dumps(second.to_dict()))["steps"][0]["do"] == "rename"
    assert "merged" in str(second)
    assert "<table>" in second._repr_html_()


def test_a_check_fails_before_the_commit(lake: Path, spark: Any) -> None:
    fresh = {"unique": ["id", "status"], "not_null": ["at"], "fresh": {"column": "at", "within": "1s"}}
    for checks, said in (
        ({"rows": {"min": 4}}, "3 rows are fewer than 4"),
        ({"rows": {"max": 2}}, "3 rows are more than 2"),
        ({"unique": ["id"]}, r"id is not unique \(for example 2\)"),
        (fresh, "older than 1s"),
        ({"accepted": {"status": ["new"]}}, "status has other values: paid"),
        ({"not_null": ["what"]}, "what"),
    ):
        with pytest.raises(StepFailedError, match=said) as caught:
            Pipeline.of(small(checks=checks)).run(spark)
        assert not Path("lake/out").exists()
        assert (caught.value.step, caught.value.result.step("load").status) == ("load", "failed")
        assert isinstance(caught.value.__cause__, CheckFailedError) or "what" in said


@pytest.mark.parametrize(
    "step",
    [
        {"do": "merge", "from": "raw", "into": "out", "keys": ["id"], "strategy": "full_merge"},
        {"do": "apply_changes", "from": "raw", "into": "out", "keys": ["id"], "sequence_by": "at"},
        {"do": "write", "from": "raw", "into": "out", "mode": "overwrite"},
        {"do": "write", "from": "raw", "into": "out", "mode": "overwrite", "replace_where": "id = 7"},
        {"do": "write", "from": "raw", "into": "out", "mode": "ignore"},
        {"do": "deduplicate", "dataset": "out", "keys": ["id"]},
        {"do": "delete", "dataset": "out", "where": "id = 9"},
        {"do": "update", "dataset": "out", "set": {"amount": "amount + 1"}, "where": "id = 8"},
        {"do": "compact", "dataset": "out"},
        {"do": "optimize", "dataset": "out", "by": ["id"]},
    ],
    ids=lambda step: " ".join(step[key] for key in ("do", "mode", "replace_where") if key in step),
)
def test_checks_of_every_step_that_changes_a_dataset(lake: Path, spark: Any, step: dict[str, Any]) -> None:
    """The dataset as it would be is looked at, in its staged files; where it is refused, it is what it was."""
    io = PyarrowDatasetIO()
    schema = pa.schema({"id": pa.int64(), "status": pa.string(), "amount": pa.int64(), "at": pa.date32()})
    for ids in ([7, 8], [8, 9]):
        rows = pa.table({"id": ids, "status": ["old"] * 2, "amount": [1, 1], "at": pa.nulls(2)}).cast(schema)
        io.write_dataset(rows, "lake/out")
    (lake / "in" / "mon.csv").write_text("id,status,amount,at\n7,new,1,2026-11-02\n")
    before = {path: path.read_bytes() for path in Path("lake/out").iterdir()}
    raw = small(checks={"accepted": {"id": [1]}, "reconciled": True})
    raw["steps"] = [{"name": "load", "checks": raw["steps"][0]["checks"]} | step]
    with pytest.raises(StepFailedError, match="id has other values: "):
        Pipeline.of(raw).run(spark)
    assert {path: path.read_bytes() for path in Path("lake/out").iterdir()} == before
    assert not io.recover("lake/out")
    raw["steps"][0]["checks"]["accepted"]["id"] = [7, 8, 9]
    assert Pipeline.of(raw).run(spark).step("load").commit_seq == 3


def one_step(do: str, **options: Any) -> dict[str, Any]:
    """A pipeline that brings the rows of `in/mon.csv` into a dataset by `id`."""
    sources = {"raw": {"format": "csv", "path": "in/mon.csv"}}
    step = {"name": "load", "do": do, "from": "raw", "into": "out", "keys": ["id"]} | options
    return {"name": "p", "sources": sources, "datasets": {"out": {"path": "lake/out"}}, "steps": [step]}


def test_a_change_feed_is_applied_once(lake: Path, spark: Any) -> None:
    (lake / "in" / "mon.csv").write_text("id,v,lsn,op\n1,a,1,c\n2,b,2,c\n1,A,3,u\n2,,4,d\n3,c,5,c\n")
    raw = one_step(
        "apply_changes",
        sequence_by="lsn",
        delete_when="op = 'd'",
        except_columns=["op"],
        checks={"unique": ["id"], "reconciled": True},
    )
    first = Pipeline.of(raw).run(spark, idempotency_key="k").step("load")
    assert (first.rows, first.details["inserted"], first.commit_seq) == (5, 2, 1)
    found = PyarrowDatasetIO().read_parquet("lake/out").sort_by("id")
    assert found.to_pylist() == [{"id": 1, "v": "A", "lsn": 3}, {"id": 3, "v": "c", "lsn": 5}]
    again = Pipeline.of(raw).run(spark, idempotency_key="k").step("load")
    assert (again.status, again.commit_seq) == ("skipped", 1)
    other = Pipeline.of(raw).run(spark, idempotency_key="l").step("load")
    assert (other.details["updated"], other.details["stale"]) == (0, 3)
    raw["steps"][0]["delete_when"] = "opp = 'd'"
    said = "step 'load': delete_when: unknown column 'opp' at character 1 of .*did you mean 'op'?"
    with pytest.raises(StepFailedError, match=said):
        Pipeline.of(raw).run(spark, idempotency_key="m")


def test_merge_steps_have_the_conditions_of_the_library(lake: Path, spark: Any) -> None:
    """That each option arrives: what they do is shown by the conformance tests."""
    rows = pa.table({"id": [1, 2], "v": ["a", "b"], "n": [1, 2]})
    (lake / "in" / "mon.csv").write_text("id,v,n\n1,A,8\n3,c,9\n")
    for options, expected in (
        ({"update_columns": ["v"], "insert_when": "source.n < 5"}, {1: ("A", 1), 2: ("b", 2)}),
        ({"delete_when": "v = 'A'"}, {2: ("b", 2), 3: ("c", 9)}),
        ({"update_when": "source.n < target.n"}, {1: ("a", 1), 2: ("b", 2), 3: ("c", 9)}),
        ({"newer_by": "n", "insert_when": "false"}, {1: ("A", 8), 2: ("b", 2)}),
        ({"strategy": "full_merge", "scope": "id <> 2"}, {1: ("A", 8), 2: ("b", 2), 3: ("c", 9)}),
    ):
        PyarrowDatasetIO().write_dataset(rows, "lake/out", mode="overwrite")
        Pipeline.of(one_step("merge", **options)).run(spark)
        found = PyarrowDatasetIO().read_parquet("lake/out").to_pylist()
        assert {row["id"]: (row["v"], row["n"]) for row in found} == expected, options


def test_another_writer_before_the_commit_of_a_checked_step_is_a_conflict(lake: Path, spark: Any) -> None:
    def meddle(event: Any) -> None:
        if (event.stage, event.done) == ("write", 1) and not Path("lake/out").exists():
            PyarrowDatasetIO().write_dataset(pa.table({"id": [5], "status": ["mine"]}), "lake/out")

    raw = small(checks={"rows": {"min": 1}}, retries=0)
    with pytest.raises(StepFailedError) as caught:
        Pipeline.of(raw).run(spark, idempotency_key="k", progress=meddle)
    assert isinstance(caught.value.__cause__, CommitConflictError)
    assert rows_of("lake/out") == [(5, "mine")]
    raw = small(checks={"rows": {"min": 1}}, mode="overwrite")
    assert Pipeline.of(raw).run(spark, idempotency_key="k").step("load").status == "done"
    assert len(rows_of("lake/out")) == 3


def test_null_values_are_found_and_counts_that_do_not_add_up(lake: Path, spark: Any) -> None:
    (lake / "in" / "mon.csv").write_text("id,status,amount,at\n1,,10,\n,new,1,2026-11-02\n")
    with pytest.raises(StepFailedError, match="id is null in 1 row, and at is null in 1 row"):
        Pipeline.of(small(checks={"not_null": ["id", "at"], "accepted": {"status": ["new"]}})).run(spark)


def test_rows_on_their_way_are_checked_and_nothing_after_that_runs(lake: Path, spark: Any) -> None:
    raw = small()
    raw["steps"].insert(0, {"name": "look", "do": "check", "from": "raw", "checks": {"unique": ["id"]}})
    with pytest.raises(StepFailedError) as caught:
        Pipeline.of(raw).run(spark)
    assert [step.status for step in caught.value.result.steps] == ["failed", "not run"]
    assert not Path("lake").exists()


def test_a_query_that_cannot_be_is_refused_before_the_first_step_writes(
    lake: Path, spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = small()
    raw["steps"] += [
        {"name": "odd", "do": "select", "from": "raw", "columns": ["nothing + 1 as x"]},
        {"name": "more", "do": "write", "from": "odd", "into": "out"},
    ]
    with pytest.raises(StepFailedError, match=r"before the first step.*of step 'odd'.*nothing") as caught:
        Pipeline.of(raw).run(spark)
    assert "".join(capfd.readouterr()) == ""
    assert type(caught.value.__cause__).__name__ == "SparkQueryError"
    assert not Path("lake").exists()
    raw["steps"][1] = {"name": "odd", "do": "rename", "from": "raw", "columns": {"nothing": "x"}}
    with pytest.raises(StepFailedError, match="choose among"):
        Pipeline.of(raw).run(spark)


def test_a_run_that_failed_goes_on_where_it_stopped(lake: Path, spark: Any) -> None:
    raw = small()
    raw["datasets"]["two"] = {"path": "lake/two"}
    raw["steps"].append({"name": "also", "do": "write", "from": "raw", "into": "two", "checks": {"rows": {"max": 2}}})
    with pytest.raises(StepFailedError, match="'also'"):
        Pipeline.of(raw).run(spark, idempotency_key="k")
    raw["steps"][1]["checks"]["rows"]["max"] = 3
    done = Pipeline.of(raw).run(spark, idempotency_key="k")
    assert [(step.status, step.commit_seq) for step in done.steps] == [("skipped", 1), ("done", 1)]
    assert len(rows_of("lake/out")) == 3
    assert Pipeline.of(raw | {"steps": raw["steps"][:1]}).run(spark).step("load").status == "done"
    assert len(rows_of("lake/out")) == 6


def test_the_command(lake: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pipeline.toml").write_text(SHORT)
    assert main(["run", "pipeline.toml", "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["status"], document["idempotency_key"], said.err) == ("done", "mon", "")
    assert all({"rows", "files", "bytes", "seconds", "commit_seq"} <= step.keys() for step in document["steps"])
    assert main(["run", "pipeline.toml", "-q", "--noop-exit-code", "7"]) == 7
    assert main(["run", "pipeline.toml", "--json", "--var", "day=tue", "--var", "most=1"]) == 1
    said = capsys.readouterr()
    failed = json.loads(said.out)
    assert (failed["status"], failed["exit_code"]) == ("failed", 1)
    assert [step["status"] for step in failed["steps"]] == ["failed", "not run"]
    assert said.err == (
        "error: step 'merged': lake/silver: 3 rows are more than 1. Nothing was committed by this step\n"
        "to do: correct the rows or the check\n"
    )


def test_the_command_without_spark(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pipeline.toml").write_text(WHOLE.replace('do = "compact"', 'do = "compress"'))
    assert main(["run", "pipeline.toml"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: pipeline.toml: steps[5] (joined).do: 'compress' is not allowed"
    assert said[1].startswith("to do: use one of 'select', 'rename'")
    assert main(["run", "pipeline.toml", "--var", "day"]) == 2
    assert main(["run"]) == 2
    capsys.readouterr()
    assert main(["run", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "PipelineFile"


SETTINGS = """
name = "settings"
sources.raw.columns = "id int, status string, amount int, at date"
sources.raw.format = "csv"
sources.raw.path = "in/mon.csv"
datasets.out.path = "lake/out"
spark = { master = "local[3]", conf = { "spark.app.name" = "file", "spark.sql.session.timeZone" = "Asia/Tokyo" } }
[[steps]]
name = "told"
do = "select"
from = "raw"
columns = ["id", "concat_ws(' ', '$${spark.master}', '$${spark.app.name}', current_timezone()) as status"]
[[steps]]
name = "load"
do = "merge"
strategy = "deduplicate"
from = "told"
into = "out"
keys = ["id"]
"""


def command(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "fsspeckit.cli", "run", "pipeline.toml", "--json", "--trust", *words]
    return subprocess.run(program, env=os.environ | env, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.more
def test_a_session_of_its_own_as_the_command_asks_for_it(lake: Path) -> None:
    Path("pipeline.toml").write_text(SETTINGS)
    done = command("--master", "local[1]", "--spark-conf", "spark.sql.session.timeZone=Asia/Seoul")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert set(rows_of("lake/out")) == {(1, "local[1] file Asia/Seoul"), (2, "local[1] file Asia/Seoul")}


@pytest.mark.more
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--master", "local[x]"), "Could not parse Master URL: 'local[x]'"),
        (("--spark-conf", "spark.driver.memory=1k"), "Too small maximum heap"),
    ],
    ids=["master", "setting"],
)
def test_a_session_that_cannot_start_is_told_of_in_two_lines(lake: Path, words: tuple[str, ...], said: str) -> None:
    Path("pipeline.toml").write_text(SETTINGS)
    done = command(*words)
    assert (done.returncode, done.stdout.count("\n")) == (1, 1), done.stdout
    assert said in json.loads(done.stdout)["error"]
    problem, remedy = done.stderr.splitlines()
    assert said in problem
    assert remedy == "to do: correct its master and its settings"


@pytest.mark.more
def test_under_spark_submit_with_settings(lake: Path) -> None:
    Path("pipeline.toml").write_text(
        """
name = "submitted"
sources.raw = { format = "json", path = "in/*.json" }
datasets.out.path = "lake/out"
spark.conf = { "spark.sql.session.timeZone" = "Asia/Tokyo" }
[[steps]]
name = "zoned"
do = "select"
from = "raw"
columns = ["id", "current_timezone() as status"]
[[steps]]
name = "load"
do = "merge"
from = "zoned"
into = "out"
keys = ["id"]
"""
    )
    (lake / "in" / "a.json").write_text('{"id": 1}\n')
    import fsspeckit.cli.__main__ as program

    words = [SPARK / "bin" / "spark-submit", "--master", "local[1]", "--driver-java-options", QUICK]
    words += ["--conf", "spark.ui.enabled=false", program.__file__, "run", "pipeline.toml", "--json"]
    words += ["--spark-conf", "spark.sql.session.timeZone=Asia/Seoul"]
    env = environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(done.stdout)["steps"][1]["details"]["inserted"] == 1
    assert rows_of("lake/out") == [(1, "Asia/Seoul")]

"""Pipelines that keep versions, and that process the changes of a dataset exactly once."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError, StepFailedError
from inside import failing_commits, forgetting_positions, short_journals

pytestmark = pytest.mark.spark

FEED = """
name = "feed"

[sources.changed]
format = "changes"
dataset = "orders"
keys = ["id"]

[datasets.orders]
path = "lake/orders"

[datasets.log]
path = "lake/log"

[datasets.copy]
path = "lake/copy"
retain = "2h"

[[steps]]
name = "log"
do = "write"
from = "changed"
into = "log"

[[steps]]
name = "current"
do = "filter"
from = "changed"
where = "_change_type != 'update_before'"

[[steps]]
name = "copy"
do = "merge"
from = "current"
into = "copy"
keys = ["id"]
delete_when = "_change_type = 'delete'"
"""


def orders(ids: list[int], status: str) -> pa.Table:
    return pa.table({"id": ids, "status": [status] * len(ids)})


def ids(path: str) -> list[tuple[int, str]]:
    table = PyarrowDatasetIO().read_parquet(path)
    return sorted(zip(table["id"].to_pylist(), table["status"].to_pylist(), strict=True))


def logged(path: str = "lake/log") -> list[tuple[int, str, str]]:
    rows = PyarrowDatasetIO().read_parquet(path).to_pylist()
    return sorted((row["id"], row["status"], row["_change_type"]) for row in rows)


@pytest.fixture
def run(lake: Path, spark: Any) -> Callable[[], Any]:
    (lake / "feed.toml").write_text(FEED)
    io = PyarrowDatasetIO()
    io.write_dataset(orders([1, 2, 3], "new"), "lake/orders")
    io.keep_history("lake/orders")
    return lambda **options: Pipeline.load("feed.toml").run(spark, **options)


@pytest.fixture
def short() -> Iterator[None]:
    """Records of earlier runs are pruned."""
    with short_journals(records=1, slack=0):
        yield


def test_every_change_is_processed_once(run: Callable[[], Any], short: None) -> None:
    io = PyarrowDatasetIO()
    result = run()
    assert [record.status for record in result.steps] == ["done", "done", "done"]
    assert ids("lake/copy") == ids("lake/orders")
    assert logged() == [(1, "new", "insert"), (2, "new", "insert"), (3, "new", "insert")]
    assert io.history("lake/copy")[0].readable, "it keeps versions"
    before = len(io.history("lake/log"))
    assert run().steps[0].rows == 0
    assert len(io.history("lake/log")) == before
    io.merge(orders([2, 4], "paid"), "lake/orders", strategy="upsert", key_columns="id")
    io.delete("lake/orders", where="id = 1")
    run()
    assert ids("lake/copy") == ids("lake/orders") == [(2, "paid"), (3, "new"), (4, "paid")]
    assert logged()[-2:] == [(3, "new", "insert"), (4, "paid", "insert")]
    assert [change for *_, change in logged()] == [
        *("delete", "insert", "insert", "update_before", "update_after", "insert", "insert")
    ]
    io.compact_parquet_dataset("lake/log", target_mb_per_file=1)  # removes the record of the position
    io.compact_parquet_dataset("lake/orders", target_mb_per_file=1)
    for _ in range(2):
        run()
        assert len(logged()) == 7


def test_position_in_another_dataset_is_an_error(run: Callable[[], Any]) -> None:
    run()
    io = PyarrowDatasetIO()
    for name in ("lake/orders", "lake/.orders.fsspeckit"):
        shutil.rmtree(name)
    io.write_dataset(orders([7, 8], "other"), "lake/orders")
    io.keep_history("lake/orders")
    with pytest.raises(StepFailedError, match=r"is version 2 of another dataset than lake/orders.*another name"):
        run()
    assert len(logged()) == 3
    io.merge(orders([9], "other"), "lake/orders", strategy="upsert", key_columns="id")
    with pytest.raises(StepFailedError, match="version 2 of another dataset"):
        run()
    renamed = FEED.replace('name = "log"', 'name = "log-again"').replace('name = "copy"', 'name = "copy-again"')
    Path("feed.toml").write_text(renamed)
    run()
    assert {row[0] for row in logged()} == {row[0] for row in ids("lake/copy")} == {1, 2, 3, 7, 8, 9}


def test_failed_step_is_repeated_and_a_step_of_another_run_is_skipped(run: Callable[[], Any]) -> None:
    with failing_commits(), pytest.raises(StepFailedError, match="disk is gone"):
        run()
    run()
    assert len(logged()) == 3
    with forgetting_positions():  # as seen before another run committed
        assert [record.status for record in run().steps] == ["skipped", "done", "skipped"]
    assert len(logged()) == 3


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('keys = ["id"]\n\n[datasets.orders]', 'path = "x"\n\n[datasets.orders]', "needs 'dataset'"),
        ('format = "changes"', 'format = "dataset"', "keys go with format 'changes'"),
        ('retain = "2h"', 'retain = "soon"', "datasets.copy.retain"),
    ],
)
def test_wrong_keys_are_errors(lake: Path, old: str, new: str, problem: str) -> None:
    (lake / "feed.toml").write_text(FEED.replace(old, new))
    with pytest.raises(PipelineFileError, match=problem):
        Pipeline.load("feed.toml")


JOINED = """
name = "joined"

[sources.changed]
format = "changes"
dataset = "orders"
keys = ["id"]

[datasets.orders]
path = "lake/orders"

[datasets.names]
path = "lake/names"

[datasets.out]
path = "lake/out"

[datasets.wrong]
path = "lake/wrong"

[[steps]]
name = "named"
do = "sql"
from = ["changed", "names"]
query = "SELECT id, status, name, _change_type FROM changed LEFT JOIN names USING (id)"

[[steps]]
name = "load"
do = "write"
from = "named"
into = "out"
expect = { named = "name IS NOT NULL" }
on_fail = "quarantine"
quarantine = "wrong"
"""


def test_changes_behind_a_query_with_a_quarantine(run: Callable[[], Any], lake: Path, spark: Any) -> None:
    (lake / "feed.toml").write_text(JOINED)
    io = PyarrowDatasetIO()
    io.write_dataset(pa.table({"id": [1, 2, 5], "name": ["Ann", "Bob", "Eve"]}), "lake/names")
    shown = Pipeline.load("feed.toml").preview(spark)
    assert list(shown.steps[1].columns) == ["id", "status", "name", "_change_type"]
    assert (shown.step("load").reads["since"], "reads: all rows of version" in str(shown)) == (None, True)
    assert not Path("lake/out").exists()
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("fsspeckit_")] == []
    for _ in range(2):
        run(idempotency_key="k")
        assert (ids("lake/out"), ids("lake/wrong")) == ([(1, "new"), (2, "new")], [(3, "new")])
    io.write_dataset(orders([5, 6], "late"), "lake/orders")
    assert run(idempotency_key="k").step("load").expectations == {"named": 1}
    assert ids("lake/out")[2:] == [(5, "late")]
    assert ids("lake/wrong")[1:] == [(6, "late")]


CHECK = '[[steps]]\nname = "look"\ndo = "check"\nfrom = "changed"\nchecks = { rows = { min = 1 } }\n\n'


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('[[steps]]\nname = "load"', f'{CHECK}[[steps]]\nname = "load"', r"\(look\).from: a check of changes or"),
        (
            'from = ["changed", "names"]',
            'from = ["changed", "more"]',
            r"\(load\).from: its rows are changes or new files of changed and more",
        ),
    ],
)
def test_a_step_that_writes_reads_changes_of_one_dataset(lake: Path, old: str, new: str, problem: str) -> None:
    more = '[sources.more]\nformat = "changes"\ndataset = "names"\n\n[datasets.orders]'
    (lake / "feed.toml").write_text(JOINED.replace(old, new).replace("[datasets.orders]", more))
    with pytest.raises(PipelineFileError, match=problem):
        Pipeline.load("feed.toml")


def test_a_dry_run_finds_changes_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    io = PyarrowDatasetIO()
    io.write_dataset(pa.table({"id": [1], "state": ["new"]}), "lake/orders")
    found = tomllib.loads(FEED)
    for call in (Pipeline.preview, Pipeline.run):
        with pytest.raises(StepFailedError, match=r"^step 'log': Version 1 of .* is not kept"):
            call(Pipeline.of(found), spark, select=["log"])
    io.keep_history("lake/orders", retain="1h")
    found["sources"]["changed"]["keys"] = ["idd"]
    for call in (Pipeline.preview, Pipeline.run):
        with pytest.raises(StepFailedError, match=r"^step 'log': keys: .* has no column 'idd'"):
            call(Pipeline.of(found), spark, select=["log"])

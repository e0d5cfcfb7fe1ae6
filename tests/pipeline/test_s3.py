"""Pipelines whose datasets stand on an object store: every kind of step, checks before the commit, runs run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as pds
import pytest

from fsspeckit.pipeline import Pipeline, StepFailedError
from inside import lower

pytestmark = pytest.mark.more

SECRET = "do-not-tell-4711"
FILE = """
name = "p"
idempotency_key = "${day}"

[variables]
day = "mon"
kinds = "paid"

[sources]
raw.columns = "id int, status string, amount int, at date"
raw.format = "csv"
raw.path = "in/${day}.csv"
silver = { format = "dataset", dataset = "out" }

[datasets.out]
path = "s3://${env:BUCKET}/lake/out"
storage_options = { key = "test", secret = "${env:SECRET}", client_kwargs.endpoint_url = "${env:ENDPOINT}" }

[datasets.gold]
path = "s3a://${env:BUCKET}/lake/gold"
storage_options = { key = "test", secret = "${env:SECRET}", client_kwargs.endpoint_url = "${env:ENDPOINT}" }

[[steps]]
name = "load"
do = "merge"
strategy = "deduplicate"
from = "raw"
into = "out"
keys = ["id"]
order_by = ["status"]
checks = { unique = ["id"], reconciled = true, accepted.status = ["new", "${kinds}", "sent"] }

[[steps]]
name = "gold"
do = "write"
mode = "overwrite"
from = "silver"
into = "gold"
partition_by = ["status"]

[[steps]]
name = "tidy"
do = "compact"
dataset = "gold"

[[steps]]
name = "sorted"
do = "optimize"
dataset = "out"
by = ["id"]

[[steps]]
name = "good"
do = "check"
dataset = "gold"
checks = { rows.min = 2, not_null = ["id"] }
"""


@pytest.fixture
def store(lake: Path, s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The store, whose login stands in the environment of the pipeline alone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("BUCKET", s3_bucket), ("SECRET", SECRET), ("ENDPOINT", s3_server.endpoint)):
        monkeypatch.setenv(name, value)
    (lake / "pipeline.toml").write_text(FILE)
    return s3_server


def rows(store: Any, bucket: str, name: str) -> list[tuple[Any, ...]]:
    fs, folder = store.filesystem(), f"{bucket}/lake/{name}"
    files = [file for file in fs.find(folder) if file.endswith(".parquet")]
    if not files:
        return []
    table = pds.dataset(files, filesystem=fs, partition_base_dir=folder, partitioning="hive").to_table()
    return sorted(tuple(row.values()) for row in table.select(["id", "status"]).to_pylist())


def test_two_days_and_one_of_them_again(store: Any, spark: Any, s3_bucket: str) -> None:
    first = Pipeline.load("pipeline.toml").run(spark)
    assert rows(store, s3_bucket, "out") == rows(store, s3_bucket, "gold") == [(1, "new"), (2, "paid")]
    assert [first.step(name).commit_seq for name in ("load", "gold", "tidy", "sorted")] == [1, 1, None, 2]
    again = Pipeline.load("pipeline.toml").run(spark)
    assert [step.status for step in again.steps] == ["skipped", "skipped", "done", "skipped", "done"]
    second = Pipeline.load("pipeline.toml", {"day": "tue"}).run(spark)
    assert second.step("load").details["inserted"] == second.step("load").details["updated"] == 1
    assert rows(store, s3_bucket, "gold") == [(1, "new"), (2, "sent"), (3, "new")]
    assert SECRET not in json.dumps([each.to_dict() for each in (first, again, second)])


def test_a_check_fails_before_anything_is_to_be_seen(store: Any, spark: Any, s3_bucket: str) -> None:
    with pytest.raises(StepFailedError, match="status has other values: paid") as caught:
        Pipeline.load("pipeline.toml", {"kinds": "lost"}).run(spark)
    assert rows(store, s3_bucket, "out") == []
    assert SECRET not in str(caught.value) + json.dumps(caught.value.result.to_dict())
    done = Pipeline.load("pipeline.toml").run(spark)
    assert (done.step("load").status, len(rows(store, s3_bucket, "out"))) == ("done", 2)


def test_csv_files_on_the_store(store: Any, spark: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need no connector of Spark, only the options of their source."""
    lower(monkeypatch, "bytes of a small file", 0)
    for name in ("mon", "tue"):
        store.filesystem().put_file(f"in/{name}.csv", f"{s3_bucket}/in/{name}.csv")
    options = FILE[FILE.index("storage_options") :].partition("\n")[0]
    moved = FILE.replace("in/${day}.csv", "s3a://${env:BUCKET}/in/*.csv").replace(
        "raw.format", f"raw.{options}\nraw.format"
    )
    Path("pipeline.toml").write_text(moved)
    result = Pipeline.load("pipeline.toml").run(spark)
    assert rows(store, s3_bucket, "out") == [(1, "new"), (2, "sent"), (3, "new")]
    assert SECRET not in json.dumps(result.to_dict())

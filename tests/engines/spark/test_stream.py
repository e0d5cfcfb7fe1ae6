"""Streams: every batch is merged once, also where a process dies between its commit and Spark's note of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.spark.clusters import run_driver
from engines.spark.stream_driver import CHANGES, FEED, SCHEMA, source
from fsspeckit.common.errors import ExpressionError, StorageError, TableFormatError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytestmark = pytest.mark.more


def put(folder: Path, number: int, *rows: tuple[Any, ...], columns: Sequence[str] = ("id", "v")) -> None:
    """A file of the source; times a minute apart make the order of batches."""
    path = folder / "in" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    os.utime(path, (1_700_000_000 + 60 * number,) * 2)


def rows_of(path: Path) -> dict[int, str]:
    found = PyarrowDatasetIO().read_parquet(path).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def keys_of(path: Path) -> list[str]:
    log = path.parent / f".{path.name}.fsspeckit" / "log"
    infos = [json.loads(record.read_text())["info"] for record in sorted(log.glob("*.json"))]
    return [info["idempotency_key"].rpartition("/")[2] for info in infos if "idempotency_key" in info]


def test_a_process_is_killed_between_batches(tmp_path, io, spark):
    for number in range(3):
        put(tmp_path, number, (0, f"batch {number}"), (number + 1, "new"))
    done = run_driver("stream_driver", tmp_path)
    assert (done.stdout.splitlines(), done.returncode) == (["dying"], -9), done.stderr[-3000:]
    assert sorted(os.listdir(tmp_path / "checkpoint" / "commits"))[-1] == "0"
    assert rows_of(tmp_path / "ds") == {0: "batch 1", 1: "new", 2: "new"}

    other = PyarrowDatasetIO()
    newer = other.read_parquet(tmp_path / "ds").slice(0, 1).set_column(1, "v", [["by somebody else"]])
    other.merge(newer, tmp_path / "ds", strategy="update", key_columns="id")
    expected = rows_of(tmp_path / "ds")
    os.remove(tmp_path / "in" / "2.json")

    def again() -> None:
        query = io.merge_stream(
            source(spark, str(tmp_path)),
            tmp_path / "ds",
            key_columns="id",
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    again()
    assert rows_of(tmp_path / "ds") == expected
    put(tmp_path, 5, (0, "batch 5"), (9, "new"))
    again()
    assert rows_of(tmp_path / "ds") == {0: "batch 5", 1: "new", 2: "new", 9: "new"}
    assert keys_of(tmp_path / "ds") == ["0", "1", "2"]


@pytest.mark.parametrize("is_written_anew", [False, True])
def test_a_stream_does_not_continue_in_a_dataset_whose_rows_are_gone(tmp_path, io, spark, is_written_anew):
    def run(checkpoint: str) -> None:
        settings = {"checkpoint": str(tmp_path / checkpoint), "trigger": {"availableNow": True}}
        io.merge_stream(source(spark, str(tmp_path)), tmp_path / "ds", key_columns="id", **settings).awaitTermination()

    put(tmp_path, 0, (1, "a"))
    run("checkpoint")
    shutil.rmtree(tmp_path / "ds")
    if is_written_anew:
        (tmp_path / "ds").mkdir()
        pq.write_table(pa.table({"id": [9], "v": ["other"]}), tmp_path / "ds" / "part-0.parquet")
    put(tmp_path, 1, (2, "b"))
    with pytest.raises(Exception, match=r"DatasetLostError.*fsspeckit forget"):
        run("checkpoint")
    io.forget(tmp_path / "ds")
    run("new checkpoint")
    assert rows_of(tmp_path / "ds") == {1: "a", 2: "b"} | ({9: "other"} if is_written_anew else {})


def test_a_process_is_killed_between_batches_of_a_change_feed(tmp_path, io, spark):
    """A deleted key leaves no trace in the dataset, so a batch that is applied twice brings its row back."""
    columns = ("id", "v", "lsn", "op")
    put(tmp_path, 0, (1, "a", 1, "c"), (2, "b", 2, "c"), columns=columns)
    put(tmp_path, 1, (1, "A", 4, "u"), (1, "?", 3, "u"), (5, "e", 5, "c"), columns=columns)
    put(tmp_path, 2, (2, None, 6, "d"), (6, "f", 7, "c"), columns=columns)
    ds = tmp_path / "ds"

    done = run_driver("stream_driver", tmp_path, "after", main="main_of_changes")
    assert (done.stdout.splitlines(), done.returncode) == (["dying"], -9), done.stderr[-3000:]
    assert sorted(os.listdir(tmp_path / "checkpoint" / "commits"))[-1] == "0"
    assert rows_of(ds) == {1: "A", 2: "b", 5: "e"}
    PyarrowDatasetIO().delete(ds, where="id = 5")

    done = run_driver("stream_driver", tmp_path, "before", main="main_of_changes")
    assert (done.stdout.splitlines(), done.returncode) == (["dying"], -9), done.stderr[-3000:]
    assert rows_of(ds) == {1: "A", 2: "b"}
    assert keys_of(ds) == ["0", "1"]

    query = io.apply_changes_stream(
        source(spark, str(tmp_path), FEED),
        ds,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        **CHANGES,
    )
    query.awaitTermination()
    assert rows_of(ds) == {1: "A", 6: "f"}
    assert keys_of(ds) == ["0", "1", "2"]


def test_a_stream_takes_the_conditions_of_merges(tmp_path, io, spark):
    put(tmp_path, 0, (1, "a"), (2, "b"))
    put(tmp_path, 1, (1, "x"), (2, "0"), (3, "c"), (4, ""))
    query = io.merge_stream(
        source(spark, str(tmp_path)),
        tmp_path / "ds",
        key_columns="id",
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        delete_when="v = 'x'",
        update_when="source.v > target.v",
        insert_when="source.v <> ''",
    )
    query.awaitTermination()
    assert rows_of(tmp_path / "ds") == {2: "b", 3: "c"}


def test_a_stream_with_wrong_options_does_not_start(tmp_path, io):
    fixed = {"key_columns": "id", "checkpoint": str(tmp_path / "checkpoint")}
    for options, error, said in (
        ({"dry_run": True}, ValueError, "dry_run would drop the batches of a stream"),
        ({"delete_whn": "true"}, TypeError, "unexpected keyword argument 'delete_whn'"),
        ({"delete_when": "op ="}, ExpressionError, "delete_when: not an SQL expression at character 4"),
    ):
        with pytest.raises(error, match=said):
            io.merge_batches(tmp_path / "ds", **fixed, **options)
        with pytest.raises(error, match=said):
            io.apply_changes_batches(tmp_path / "ds", sequence_by="v", **fixed, **options)


def test_a_function_that_does_not_know_its_query(tmp_path, io, spark):
    merge = io.merge_batches(tmp_path / "ds", key_columns="id", checkpoint=str(tmp_path / "elsewhere"))
    with pytest.raises(StorageError, match="checkpointLocation"):
        merge(spark.createDataFrame([(1, "x")], SCHEMA), 0)
    assert not (tmp_path / "ds").exists()


def test_the_output_of_a_file_sink_is_no_dataset_and_no_source(tmp_path, io, spark):
    put(tmp_path, 0, (1, "a"))
    rows = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")
    sink = rows.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
    sink.trigger(availableNow=True).start(f"{tmp_path}/sink").awaitTermination()
    (part,) = (tmp_path / "sink").glob("part-*.parquet")
    (tmp_path / "sink" / "part-of-a-failed-batch.parquet").write_bytes(part.read_bytes())
    assert spark.read.parquet(f"{tmp_path}/sink").count() == 1
    for call in (
        lambda: io.read_parquet(tmp_path / "sink"),
        lambda: io.merge(f"{tmp_path}/sink", tmp_path / "ds", strategy="upsert", key_columns="id"),
        lambda: io.delete(tmp_path / "sink", where="id = 1"),
    ):
        with pytest.raises(TableFormatError, match=r"the output of a Spark stream.*spark.read.parquet"):
            call()

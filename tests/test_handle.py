"""The handle of a dataset, the choice of an engine, and the names that all interfaces share."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit import Dataset, KeyColumnError, api
from fsspeckit.cli.app import app
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import choose_engine, lower


def rows(*ids: int, v: str = "a", day: str = "mon") -> pa.Table:
    return pa.table({"id": ids, "v": [v] * len(ids), "day": [day] * len(ids)})


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb", "auto"])
def test_every_operation_with_key_and_partitions_given_once(tmp_path: Path, engine: str) -> None:
    events = Dataset(str(tmp_path / "events"), engine=engine, key="id", partition_by="day")
    assert events.merge(rows(1, 2, 3)).inserted == 3
    assert events.merge(rows(3, 4, v="b")).stats() == {"inserted": 1, "updated": 1, "deleted": 0, "total": 4}
    assert sorted(path.parent.name for path in tmp_path.rglob("*.parquet")) == ["day=mon"] * 2
    events.append(rows(4, 5, v="c"))
    assert events.deduplicate(order_by="v")["deduplicated_rows"] == 1
    assert events.delete("id = 1").deleted == 1
    assert events.update({"v": "upper(v)"}, "id = 5").updated == 1
    feed = pa.table({"id": [2, 6], "v": ["x", "y"], "day": ["mon"] * 2, "op": ["d", "u"], "n": [1, 1]})
    assert events.apply_changes(feed.drop(["n"]), sequence_by="v", delete_when="op = 'd'").deleted == 1
    assert events.compact()["after_file_count"] == 1
    assert events.optimize(by="id", force=True)["after_file_count"] == 1
    assert sorted(events.read(columns=["id", "v"], filters="id > 3").to_pylist(), key=lambda row: row["id"]) == [
        {"id": 4, "v": "c"},
        {"id": 5, "v": "C"},
        {"id": 6, "v": "y"},
    ]
    assert events.inspect(key="id")["rows"] == 4
    assert events.doctor().healthy
    assert events.recover().to_dict() == Dataset(tmp_path / "none", engine=engine).recover().to_dict()
    assert events.write(rows(9), mode="overwrite").rows == 1
    assert events.merge(rows(9), dry_run=True).path == str(tmp_path / "events")
    assert "engine='" + engine in repr(events)
    first = events.keep_history("1d")
    events.delete("true")
    assert (events.read(version=first).num_rows, events.history()[0].deleted) == (1, 1)
    assert events.diff(first, first + 1).rows_before == 1
    assert events.changes(since=first)["_change_type"].to_pylist() == ["delete"]
    assert events.restore(version=first).commit_seq == first + 2
    assert events.vacuum(older_than="0s").removed_files == 1


def test_a_call_can_have_another_key_and_an_engine_of_the_caller(tmp_path: Path) -> None:
    events = Dataset(tmp_path / "events", engine=PyarrowDatasetIO())
    with pytest.raises(KeyColumnError, match=r'has no key here. Pass key="id" to Dataset or to this call.'):
        events.merge(rows(1))
    assert events.merge(rows(1), key="id").inserted == 1
    assert events.merge(rows(1), key_columns=["id", "v"], strategy="insert").inserted == 0
    with pytest.raises(ValueError, match="key and key_columns are the same argument"):
        events.merge(rows(1), key="id", key_columns="id")
    with pytest.raises(ValueError, match="has its own filesystem and storage_options"):
        Dataset("lake", engine=PyarrowDatasetIO(), storage_options={"key": "x"})
    with pytest.raises(ValueError, match="engine='flink' is unknown"):
        Dataset("lake", engine="flink")


def test_the_engine_is_chosen_by_type_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, source = str(tmp_path / "lake"), str(tmp_path / "in.csv")
    Path(source).write_text("id,v,day\n" + "1,a,mon\n" * 9)
    relation = duckdb.connect().sql("SELECT 1 AS id")
    pq.write_table(rows(*range(500)), tmp_path / "in.parquet")
    assert choose_engine(relation, folder) == "duckdb"
    assert choose_engine(rows(1), folder) == choose_engine(None, folder) == choose_engine(source, folder) == "pyarrow"
    assert choose_engine(str(tmp_path / "missing.csv"), folder) == "pyarrow"
    lower(monkeypatch, "bytes of a small dataset", 100)
    assert choose_engine(rows(1), folder) == choose_engine(source, folder) == "pyarrow"
    assert choose_engine(rows(*range(100)), folder) == "spark"
    assert choose_engine(str(tmp_path / "in.parquet"), folder) == "spark"
    Path(source).write_text("id,v,day\n" + "1,a,mon\n" * 99)
    assert choose_engine(source, folder) == choose_engine(fsspeckit.TextFiles(source, "csv"), folder) == "spark"
    fsspeckit.write_dataset(rows(1), folder, engine="pyarrow")
    assert choose_engine(rows(2), folder) == choose_engine(None, folder) == "spark"
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setattr(sys, "path", [])
    assert choose_engine(None, folder) == "pyarrow"


SCRIPT = """
import sys, fsspeckit
events = fsspeckit.Dataset(sys.argv[1], key="id")
assert events.engine == "spark"
print(events.read()["id"].to_pylist(), fsspeckit.read_parquet(sys.argv[1]).num_rows, events.inspect()["rows"])
events.recover(), events.doctor(), fsspeckit.recover(sys.argv[1])
print("pyspark" in sys.modules)
"""


def test_calls_that_need_no_spark_do_not_start_it(tmp_path: Path) -> None:
    fsspeckit.write_dataset(rows(1, 2), str(tmp_path / "d"), engine="pyarrow")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "d")], capture_output=True, text=True, check=False
    )
    assert (done.stdout.splitlines(), done.stderr) == (["[1, 2] 2 2", "False"], "")


def test_one_name_and_one_default_everywhere() -> None:
    commands = {command.name for command in app.registered_commands}
    for name in ("merge", "apply_changes", "delete", "update", "compact", "optimize", "deduplicate", "recover"):
        assert name.replace("_", "-") in commands
        assert hasattr(api, name)
        assert hasattr(Dataset, name)
    for function in (Dataset.merge, PyarrowDatasetIO.merge):
        assert inspect.signature(function).parameters["strategy"].default == "upsert"


def test_functions_have_the_short_names(tmp_path: Path) -> None:
    folder, options = str(tmp_path / "d"), {"engine": "auto"}
    fsspeckit.merge(rows(3, 1), folder, key="id", **options)
    fsspeckit.write_dataset(rows(1, 2, v="b"), folder, **options)
    assert fsspeckit.deduplicate(folder, key="id", order_by="v", **options)["deduplicated_rows"] == 1
    assert fsspeckit.compact(folder, **options)["after_file_count"] == 1
    fsspeckit.optimize(folder, by="id", bloom="v", **options)
    assert fsspeckit.read_parquet(folder, **options)["id"].to_pylist() == [1, 2, 3]

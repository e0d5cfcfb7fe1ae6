"""Results and plans: each is a mapping with attributes, and is shown as an HTML table with escaped names."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit as package
from fsspeckit.cli.plan_files import SavedPlan
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.incremental import plan_incremental_rewrite
from fsspeckit.core.operations.register import RegisterResult
from fsspeckit.core.planning import maintenance_request
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.doctor import diagnose
from fsspeckit.pipeline import PipelineResult, StepRecord
from fsspeckit.pipeline.preview_result import PipelinePreview, StepPreview
from fsspeckit.report.layout import analyse, load_all_statistics


def results(folder: str) -> list[Any]:
    """One object of every class of results and plans."""
    io, rows = PyarrowDatasetIO(), pa.table({"id": [1, 2]})
    preview = StepPreview("load", "write", "lake", {"id": "bigint"}, "new dataset")
    record = StepRecord("load", "write", "done", "lake", rows=2, details={"deleted_files": 0})
    found = [
        io.write_dataset(rows, folder),
        io.merge(rows, folder, strategy="upsert", key_columns="id", dry_run=True),
        io.merge(rows, folder, strategy="upsert", key_columns="id"),
        io.optimize_parquet_dataset(folder, ["id"], dry_run=True),
        io.optimize_parquet_dataset(folder, ["id"]),
        io.adopt(folder),
        io.recover(folder),
        *_versions(io, folder),
        diagnose(folder, "pyarrow"),
        plan_incremental_rewrite(folder, [1], ["id"]),
        preview,
        PipelinePreview("p", (preview,)),
        record,
        PipelineResult("p", "key", "done", "2026-11-02T00:00:00+00:00", 0.1, (record,)),
    ]
    place = Place.of(folder, None, None)
    found += [io.export(folder, "delta"), RegisterResult("glue", "db.events", folder, 1, 0, 0, 0, kept=False)]
    return [*found, analyse(load_all_statistics(place), folder, place.journal.status())]


def _versions(io: PyarrowDatasetIO, folder: str) -> list[Any]:
    """One object of every class of results about versions."""
    io.keep_history(folder, "7d")
    io.delete(folder, where="id = 1")
    newest, before, *_ = io.history(folder)
    difference = io.diff(folder, before.version, newest.version)
    restored, vacuumed = io.restore(folder, version=before.version), io.vacuum(folder, older_than="1d")
    return [newest, difference, restored, vacuumed, io.forget(folder)]


def result_classes() -> set[type]:
    """Every class of the package that is named a result or a plan, or can be written as a dictionary."""
    names = [name for _, name, _ in pkgutil.walk_packages(package.__path__, "fsspeckit.")]
    modules = [importlib.import_module(name) for name in names if not name.startswith("fsspeckit.integrations.")]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    classes -= {maintenance_request.Plan, SavedPlan}  # internal: callers get a `MaintenanceResult` or a `MergePlan`
    return {
        each
        for each in classes
        if each.__module__.startswith("fsspeckit.")
        and dataclasses.is_dataclass(each)
        and (each.__name__.endswith(("Result", "Plan")) or hasattr(each, "to_dict"))
    }


def test_every_result_is_a_mapping(tmp_path: Path) -> None:
    found = results(str(tmp_path / "lake"))
    assert {type(each) for each in found} == result_classes()
    for result in found:
        assert isinstance(result, Mapping)
        copy = dict(result)
        assert set(result) == set(copy) == set(result.keys()) == {**result}.keys()
        assert (len(result), list(result.items())) == (len(copy), list(copy.items()))
        assert list(result.values()) == list(copy.values())
        assert all(name in result and result[name] == result.get(name) == value for name, value in copy.items())
        assert "no such key" not in result
        assert result.get("no such key", 7) == 7
        with pytest.raises(KeyError, match="no such key"):
            result["no such key"]
        assert result == copy == result.to_dict()
        assert result != {**copy, "more": 1}
        assert result != 5
        assert json.loads(json.dumps(copy)) == copy, "the values are plain JSON types"

"""The files that a report predicts for a command are those of the command's dry run, and of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset.place import Place
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations.forecast import forecast
from fsspeckit.core.planning.maintenance_request import CompactRequest, MaintenanceScope, OptimizeRequest
from fsspeckit.core.planning.output_sizes import Target
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.report.layout import load_all_statistics


def lay(path: Path) -> None:
    """Rows whose size depends on their order: sorted by `id`, `copy` is smaller."""
    random = np.random.default_rng(5)
    for number in range(24):
        folder = path / f"day={number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        ids = random.integers(0, 500, 1500 * (1 + number % 3))
        columns = {"id": ids, "copy": [f"text of {each}" for each in ids], "noise": random.random(len(ids))}
        pq.write_table(pa.table(columns), folder / f"{number:02}.parquet")


@pytest.mark.parametrize(
    ("options", "mb"),
    [
        ({}, 0.03),
        ({}, 128),
        ({"zorder_columns": ["id", "noise"], "curve": "hilbert"}, 0.1),
        ({"zorder_columns": ["noise"], "row_group_size": 700, "force": True}, 0.03),
    ],
)
def test_a_forecast_has_the_files_of_a_dry_run(options: dict[str, Any], mb: float, tmp_path: Path) -> None:
    lay(tmp_path / "d")
    io, path, target = PyarrowDatasetIO(), str(tmp_path / "d"), Target.of(mb, None)
    scope = MaintenanceScope(options=WriteOptions(row_group_size=options.get("row_group_size")))
    request: CompactRequest | OptimizeRequest = CompactRequest(target, scope)
    change = io.compact_parquet_dataset
    if options:
        change = io.optimize_parquet_dataset  # type: ignore[assignment]
        columns = tuple(options["zorder_columns"])
        request = OptimizeRequest(columns, options.get("curve", "linear"), target, scope, force="force" in options)
    place = Place.of(path, None, None)
    found = forecast(place, load_all_statistics(place), request)
    planned = change(path, target_mb_per_file=mb, dry_run=True, **options)
    assert found is not None
    assert (found.files, found.rewritten) == (planned["after_file_count"], planned["compacted_file_count"])
    written = change(path, target_mb_per_file=mb, **options)
    assert written["after_file_count"] == found.files
    if options:
        groups = sum(len(file.row_groups) for file in load_all_statistics(place).files)
        assert found.row_groups == pytest.approx(groups, rel=0.2)

"""Plan an upsert of a few rows into a dataset of very many files with a current footer index.

    python -m benchmarks.million --data /some/disk

The files are hard links to a few small files, so that they take no space, and the index says that each has its own
range of keys. The two files that the upsert changes are real. The plan runs in a process of its own, and must stay
below 60 seconds and 1,500 MB for a million files.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import text_array, to_arrow
from fsspeckit.core.commit.file_list import paths_of, sizes_of, versions_of
from fsspeckit.core.commit.footer_index import FooterIndex
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.parquet.footer_table import FooterTable, tables_of
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

_ROWS = 10
_LINKS = 60_000
_FOLDERS = 1_000
_SECONDS, _MB = 60.0, 1500.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the dataset if it is missing, plan, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="folder in which the dataset is kept; by default a temporary folder")
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.plan is not None:
        print(json.dumps(_plan(options.plan, options.files)))
        return 0
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-") as temporary:
        root = (options.data or Path(temporary)).resolve() / f"files-{options.files}"
        if not root.exists():
            _build(root, options.files)
        command = [sys.executable, "-m", "benchmarks.million", "--files", str(options.files), "--plan", str(root)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    print(f"{options.files:,} files: {found}")
    return 0 if found["wall"] <= _SECONDS and found["peak_mb"] <= _MB else 1


def _plan(root: Path, files: int) -> dict[str, float]:
    source = pa.concat_tables([_rows(number) for number in _changed(files)])
    days = [f"{_folder(number, files):04d}" for number in _changed(files) for _ in range(_ROWS)]
    source = source.set_column(1, "v", pa.array([-1.0] * len(source))).append_column("day", pa.array(days))
    start, cpu = time.perf_counter(), time.process_time()
    plan = PyarrowDatasetIO().merge(source, str(root), strategy="upsert", key_columns="id", dry_run=True)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert len(plan.entries) == files
    assert plan.updated == len(source)
    return {"wall": round(wall, 2), "cpu": round(cpu, 2), "peak_mb": round(peak)}


def _changed(files: int) -> tuple[int, int]:
    return files // 3, files // 2


def _rows(number: int) -> pa.Table:
    ids = np.arange(number * _ROWS, (number + 1) * _ROWS)
    return pa.table({"id": ids, "v": ids * 0.5, "s": [f"text {i:012d}" for i in ids]})


def _folder(number: int, files: int) -> int:
    return number * _FOLDERS // files


def _build(root: Path, files: int) -> None:
    changed, origin = _changed(files), None
    for number in range(files):
        folder = root / f"day={_folder(number, files):04d}"
        path = folder / f"part-{number:08d}.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        if number in changed:
            pq.write_table(_rows(number), path)
        elif origin is None or number % _LINKS == 0:
            pq.write_table(_rows(number), path)
            origin = path
        else:
            os.link(origin, path)
    try:
        _build_index(root, changed)
    except BaseException:
        shutil.rmtree(root)
        raise


def _build_index(root: Path, changed: Sequence[int]) -> None:
    place = Place.of(str(root), None, None)
    view = place.journal.view()
    paths = paths_of(view.files).to_pylist()
    numbers = np.array([int(path[-16:-8]) for path in paths], dtype=np.int64)
    real = np.flatnonzero(np.isin(numbers, changed))
    read = read_data_files(place.storage, [view.files[int(at)] for at in (0, *real)], None)
    everything = _table(tables_of(read[:1])[0], numbers)
    columns = {"path": text_array(paths), "size": to_arrow(sizes_of(view.files)), "version": versions_of(view.files)}
    batch = everything.files
    for at, field in enumerate(batch.schema):
        batch = batch.set_column(at, field, columns[field.name]) if field.name in columns else batch
    others = np.flatnonzero(~np.isin(numbers, changed))
    with place.journal.begin(view, "benchmark") as transaction:
        sidecar = str(Path(transaction.staging).parent)
        index = FooterIndex(place.storage, sidecar)
        index.added = [replace(everything, files=batch).take(others)]
        index.save(sidecar, 0, read[1:], lambda: text_array([]), anew=True)


def _table(one: FooterTable, numbers: npt.NDArray[np.int64]) -> FooterTable:
    """Return the entry of one file for all files, each with its own range of keys."""
    table = one.take(np.zeros(len(numbers), dtype=np.int64))
    bounds = {"lower": to_arrow(numbers * _ROWS), "upper": to_arrow(numbers * _ROWS + _ROWS - 1)}
    return replace(table, columns={**table.columns, "id": replace(table.columns["id"], **bounds)})


if __name__ == "__main__":
    sys.exit(main())

"""Every verb on every lake that others wrote: the values, the files that stay, and the readers that still read."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from lakes.gaps import gap
from lakes.model import LAKES, Lake, Rows
from lakes.readers import INSTALLED, READERS, Seen, by_spark, rows_of_file, seen, visible
from lakes.verbs import ROW_VERBS, VERBS, Run

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # readers that fail leave files open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
OPEN = [lake for lake in LAKES if not lake.refused]


def names(lake: Lake) -> str:
    return lake.name


def io_of(engine: str) -> Any:
    if engine == "spark":
        from fsspeckit.datasets.spark import SparkDatasetIO

        return SparkDatasetIO()
    if engine == "duckdb":
        from fsspeckit.datasets.duckdb import DuckDBDatasetIO

        return DuckDBDatasetIO()
    return PyarrowDatasetIO()


def look(lake: Lake, folder: Path, rows: Rows, spark: Any = None) -> dict[str, Seen]:
    """What all readers see."""
    readers = {name: READERS[name] for name in INSTALLED} | ({"spark": by_spark(spark)} if spark is not None else {})
    return {name: seen(read, lake, folder, rows) for name, read in readers.items()}


def check(run: Run, verb: str, before: dict[str, Seen], spark: Any = None) -> None:
    """Do one verb, and look at everything."""
    folder = Path(run.path)
    files = {path: (Path(path).read_bytes(), rows_of_file(path)) for path in visible(folder)}
    old = copy.deepcopy(run.rows)
    VERBS[verb](run)
    assert run.lake.canonical(run.io.read_parquet(run.path)) == run.rows
    if verb in ROW_VERBS:
        changed = {id_ for id_, row in old.items() if run.rows.get(id_) != row}
        stay = {path: data for path, (data, ids) in files.items() if not changed & set(ids)}
        assert {
            path for path, data in stay.items() if not Path(path).exists() or Path(path).read_bytes() != data
        } == set()
    after = look(run.lake, folder, run.rows, spark)
    for reader, columns in before.items():
        lost = _lost(columns, after[reader], run)
        assert not lost, f"{reader}: {after[reader].get('error', lost)}"


def _lost(before: Seen, after: Seen, run: Run) -> dict[str, str]:
    """Columns that a reader read before, and does not read now or with another type."""
    if "error" in before:
        return {}
    if run.is_migrated:  # other types are what it is for; fastparquet reads no times of 64 bits in structs
        return {} if "place" in run.lake.columns else {name: "" for name in before if name not in after}
    return {name: f"{kind}, now {after.get(name)}" for name, kind in before.items() if after.get(name) != kind}


def life(lake: Lake, engine: str, base: Path, spark: Any = None) -> None:
    """All verbs in turn. One with a declared gap must fail, on a copy."""
    folder = base / "lake" / "d"
    shutil.copytree(lake.folder, folder)
    run = Run(io_of(engine), lake, str(folder), lake.rows())
    before = look(lake, folder, run.rows, spark)
    for verb in VERBS:
        reason = gap(lake.name, verb, engine)
        if not reason:
            try:
                check(run, verb, before, spark)
            except (AssertionError, FsspeckitError) as error:
                error.add_note(f"{lake.name}: {verb} on {engine}")
                raise
            continue
        shutil.copytree(base / "lake", base / verb)
        other = Run(run.io, lake, str(base / verb / "d"), copy.deepcopy(run.rows), run.first)
        with pytest.raises((AssertionError, FsspeckitError, OSError)):
            check(other, verb, before, spark)


@pytest.mark.parametrize("lake", OPEN, ids=names)
def test_pyarrow(lake: Lake, tmp_path: Path) -> None:
    life(lake, "pyarrow", tmp_path)

"""Every verb on every lake that others wrote: the values, the files that stay, and the readers that still read."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FsspeckitError, OldCalendarError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import contents
from lakes.gaps import gap
from lakes.model import LAKES, Lake
from lakes.readers import INSTALLED, READERS, Seen, by_spark, rows_of_file, seen, visible
from lakes.results import noted, share
from lakes.verbs import READS, ROW_VERBS, VERBS, Run

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # readers that fail leave files open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
OPEN = [lake for lake in LAKES if not lake.refused]
EACH = ["spark-3.5/by-day", "spark-3.5/legacy", "spark-4.3/columns", "spark-4.0/millis", "polars/defaults",
        "hive/names", "duckdb/version-2", "fastparquet/hive", "datafusion/by-region", "pyiceberg/files"]  # fmt: skip
"""One lake of each kind: on Spark every verb costs jobs."""
LOOKS = ("merge", "append", "apply_changes", "optimize", "restore", "Delta")
"""Verbs after which `make test` looks with all readers; `make test-more` does after each."""
SPARK_LOOKS = ("merge", "append", "optimize")
"""Verbs after which Spark reads too."""


def named(*names: str) -> list[Lake]:
    return [lake for lake in OPEN if lake.name in names]


def io_of(engine: str) -> Any:
    if engine == "spark":
        from fsspeckit.datasets.spark import SparkDatasetIO

        return SparkDatasetIO()
    if engine == "duckdb":
        from fsspeckit.datasets.duckdb import DuckDBDatasetIO

        return DuckDBDatasetIO()
    return PyarrowDatasetIO()


def check(run: Run, verb: str, before: dict[str, Seen], readers: Mapping[str, Callable[[Lake, Path], Any]]) -> None:
    """Do one verb, and look at everything."""
    folder = Path(run.path)
    files = {path: (Path(path).read_bytes(), rows_of_file(path)) for path in visible(folder)}
    old = copy.deepcopy(run.rows)
    VERBS[verb](run)
    assert run.lake.canonical(run.io.read_parquet(run.path)) == run.rows
    if verb in ROW_VERBS:
        changed = {id_ for id_, row in old.items() if run.rows.get(id_) != row}
        stay = {path: data for path, (data, ids) in files.items() if not changed & set(ids)}
        assert {path: Path(path).read_bytes() for path in stay if Path(path).exists()} == stay
    for name, read in readers.items():
        if name != "spark" or verb in SPARK_LOOKS:
            after = seen(read, run.lake, folder, run.rows)
            lost = _lost(before[name], after, run)
            assert not lost, f"{name}: {after.get('error', lost)}"


def _lost(before: Seen, after: Seen, run: Run) -> dict[str, str]:
    """Columns that a reader read before, and does not read now or with another type."""
    if "error" in before:
        return {}
    if run.is_migrated:  # other types are what it is for; fastparquet reads no times of 64 bits in structs
        return {} if "place" in run.lake.columns else {name: "" for name in before if name not in after}
    same = {name: kind if name not in run.lake.mixed else after.get(name) for name, kind in before.items()}
    return {name: f"{kind}, now {after.get(name)}" for name, kind in same.items() if after.get(name) != kind}


def life(lake: Lake, engine: str, base: Path, spark: Any = None, looks: Collection[str] = VERBS.keys() - READS) -> None:
    """All verbs in turn, with a look by all readers after some. One with a declared gap must fail, on a copy."""
    folder = base / "lake" / "d"
    shutil.copytree(lake.folder, folder)
    run = Run(io_of(engine), lake, str(folder), lake.rows())
    readers = {name: READERS[name] for name in INSTALLED} | ({"spark": by_spark(spark)} if spark is not None else {})
    before = {name: seen(read, lake, folder, run.rows) for name, read in readers.items()}
    for name, found in before.items():
        assert share(lake, found) == noted(lake)[name], f"{name}: {found}"
    for verb in VERBS:
        if not gap(lake.name, verb):
            try:
                check(run, verb, before, readers if verb in looks else {})
            except (AssertionError, FsspeckitError) as error:
                error.add_note(f"{lake.name}: {verb} on {engine}")
                raise
            continue
        shutil.copytree(base / "lake", base / verb)
        other = Run(run.io, lake, str(base / verb / "d"), copy.deepcopy(run.rows), run.first)
        with pytest.raises((AssertionError, FsspeckitError, OSError)):
            check(other, verb, before, readers)


@pytest.mark.parametrize("lake", OPEN, ids=lambda lake: lake.name)
def test_every_verb(lake: Lake, tmp_path: Path) -> None:
    life(lake, "pyarrow", tmp_path, looks=LOOKS)


@pytest.mark.parametrize("other", ["duckdb", "spark"])
@pytest.mark.parametrize("lake", named("spark-4.3/defaults"), ids=lambda lake: lake.name)
def test_every_verb_of_another_engine(lake: Lake, other: str, tmp_path: Path) -> None:
    life(lake, other, tmp_path)


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.parametrize("lake", OPEN, ids=lambda lake: lake.name)
def test_duckdb_and_the_reader_of_spark(lake: Lake, tmp_path: Path) -> None:
    life(lake, "duckdb", tmp_path, io_of("spark").spark)


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.parametrize("lake", named(*EACH), ids=lambda lake: lake.name)
def test_spark(lake: Lake, tmp_path: Path) -> None:
    life(lake, "spark", tmp_path)


@pytest.mark.parametrize("lake", [lake for lake in LAKES if lake.refused], ids=lambda lake: lake.name)
def test_times_of_an_old_calendar_are_refused(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    shutil.copytree(lake.folder, folder)
    for verb in ("merge", "delete", "compact", "optimize", "Delta"):
        with pytest.raises(OldCalendarError, match=lake.refused):
            VERBS[verb](Run(PyarrowDatasetIO(), lake, str(folder), lake.rows()))
        assert {name: data for name, data in contents(folder).items() if name[0] not in "._"} == {
            name: data for name, data in contents(lake.folder).items() if name[0] not in "._"
        }


@pytest.mark.parametrize("name", ["spark-4.3/columns", "spark-4.3/widths", "spark-3.5/micros"])
def test_files_tell_spark_of_all_their_columns(name: str, tmp_path: Path) -> None:
    """Spark takes the columns and types from the metadata that it writes, not from the file."""
    (lake,) = named(name)
    folder = str(tmp_path / "d")
    shutil.copytree(lake.folder, folder)
    io = PyarrowDatasetIO()
    given = lake.table(ids=[2]).append_column("extra", pa.array([5]))
    for change in (
        lambda: io.merge(given, folder, key_columns="id", schema_mode="evolve"),
        lambda: io.compact_parquet_dataset(folder, target_rows_per_file=100),
    ):
        change()
        for file in visible(Path(folder)):
            text = (pq.read_metadata(file).metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata")
            if text is not None:
                told = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
                schema = pq.read_schema(file)
                assert set(told) == set(schema.names)
                assert (told["small"] == "long") == (schema.field("small").type == pa.int64())
    assert "extra" in pq.read_schema(visible(Path(folder))[0]).names

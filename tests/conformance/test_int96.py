"""Lakes with INT96, the default timestamp of Spark: instants on every engine, stored as before by every verb."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from conformance.rows import duckdb_rows
from fsspeckit.cli.app import main
from fsspeckit.common.errors import FsspeckitError, OldCalendarError, SchemaMismatchError, UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import contents, data_files

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", INSTANT), ("v", pa.string()), ("s", pa.struct([("t", INSTANT), ("n", pa.int64())]))]
)


def at(hour: int) -> dt.datetime:
    return dt.datetime(2026, 3, 29, hour, 30, tzinfo=dt.UTC)


def rows(ids: list[int], hour: int, v: str = "old") -> pa.Table:
    """The years of the struct are beyond nanoseconds."""
    late = [{"t": dt.datetime(9999, 12, 31, hour, tzinfo=dt.UTC), "n": n} for n in ids]
    return pa.table([ids, [at(hour)] * len(ids), [v] * len(ids), late], schema=SCHEMA)


def lake(folder: Path, *, store_schema: bool = False) -> str:
    folder.mkdir()
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True, "store_schema": store_schema}
    pq.write_table(rows([1, 2, 3], 0), folder / "a.parquet", **options)
    pq.write_table(rows([4, 5, 6], 1), folder / "b.parquet", **options)
    return str(folder)


def leaves(file: Path) -> list[Any]:
    schema = pq.ParquetFile(file).schema
    return [schema.column(number) for number in range(len(schema))]


def kinds(folder: str | Path) -> set[tuple[tuple[str, str], ...]]:
    """The physical types of the timestamps of each file."""
    return {
        tuple(
            (leaf.path, leaf.physical_type)
            for leaf in leaves(file)
            if leaf.path.rpartition(".")[2] in ("at", "t", "wall")
        )
        for file in data_files(Path(folder))
    }


def by_id(table: pa.Table) -> list[Any]:
    return table.sort_by("id").to_pylist()


VERBS: dict[str, Callable[[Any, str], Any]] = {
    "merge": lambda io, d: io.merge(rows([2, 9], 5, "new"), d, key_columns="id"),
    "merge by instant": lambda io, d: io.merge(rows([9], 0, "new").drop(["id"]), d, key_columns="at", strategy="update",
                                               schema_mode="evolve"),
    "insert": lambda io, d: io.merge(rows([9], 5, "new"), d, key_columns="id", strategy="insert"),
    "full merge": lambda io, d: io.merge(rows([9], 5, "new"), d, key_columns="id", strategy="full_merge"),
    "append": lambda io, d: io.write_dataset(rows([9], 5, "new"), d),
    "overwrite": lambda io, d: io.write_dataset(rows([9], 5, "new"), d, mode="overwrite"),
    "replace where": lambda io, d: io.write_dataset(rows([9], 5), d, mode="overwrite",
                                                    replace_where="at > TIMESTAMPTZ '2026-03-29 01:00:00Z'"),
    "delete": lambda io, d: io.delete(d, where="at = TIMESTAMPTZ '2026-03-29 02:30:00+02:00' AND id = 2"),
    "update": lambda io, d: io.update(d, set={"at": "at + INTERVAL '1' DAY"}, where="id IN (1, 4)"),
    "compact": lambda io, d: io.compact_parquet_dataset(d, target_rows_per_file=100),
    "optimize": lambda io, d: io.optimize_parquet_dataset(d, "at"),
    "deduplicate": lambda io, d: io.deduplicate_parquet_dataset(d, "at"),
    "changes": lambda io, d: io.apply_changes(rows([2, 9], 5, "new"), d, key_columns="id", sequence_by="at"),
}  # fmt: skip


def shape(table: pa.Table) -> list[Any]:
    return by_id(table.set_column(3, "s", table["s"].combine_chunks().field("n")))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_does_what_it_does_with_64_bits(io: Any, tmp_path: Path, verb: str) -> None:
    folder = lake(tmp_path / "d")
    plain = str(tmp_path / "plain")
    for ids, hour in (([1, 2, 3], 0), ([4, 5, 6], 1)):
        io.write_dataset(rows(ids, hour), plain)
    assert io.read_parquet(folder).schema.equals(SCHEMA, check_metadata=True)
    for each in (folder, plain):
        VERBS[verb](io, each)
    assert by_id(io.read_parquet(folder)) == by_id(io.read_parquet(plain))
    assert kinds(folder) == {(("at", "INT96"), ("s.t", "INT96"))}
    files = [str(file) for file in data_files(Path(folder))]
    assert pl.read_parquet(files).height == io.read_parquet(plain).num_rows  # it refuses files of different types
    stamps = [row["at"] // 1000 for row in duckdb_rows(data_files(Path(folder)), ["at"])]
    assert sorted(stamps) == sorted(io.read_parquet(plain)["at"].cast(pa.int64()).to_pylist())


@pytest.mark.parametrize("store_schema", [False, True])
def test_readers_take_the_types_of_the_schema_in_the_footer(io: Any, tmp_path: Path, store_schema: bool) -> None:
    folder = lake(tmp_path / "d", store_schema=store_schema)
    before = pl.read_parquet(f"{folder}/*.parquet").schema
    io.merge(rows([2, 9], 5), folder, key_columns="id")
    io.write_dataset(rows([10], 5), folder)
    assert pl.read_parquet([str(file) for file in data_files(Path(folder))]).schema == before


@pytest.mark.parametrize("verb", ["merge", "append", "delete", "compact", "optimize"])
def test_int96_beside_64_bits(io: Any, tmp_path: Path, verb: str) -> None:
    """Spark stores TIMESTAMP as INT96 and TIMESTAMP_NTZ as 64 bits in one file."""
    (tmp_path / "d").mkdir()
    folder = str(tmp_path / "d")
    spark = Path(__file__).parents[1] / "lakes" / "spark_int96.parquet"
    for name in ("a", "b"):
        (tmp_path / "d" / f"{name}.parquet").write_bytes(spark.read_bytes())
    before = io.read_parquet(folder).sort_by("id")
    assert before["at"].to_pylist()[::2] == [at(10 + n).replace(month=7, day=1, minute=0) for n in (1, 2, 3, 4)]
    assert before.schema.field("wall").type == pa.timestamp("us")
    new = before.slice(0, 1).set_column(0, "id", [[9]])
    calls: dict[str, Callable[[], Any]] = {
        "merge": lambda: io.merge(new, folder, key_columns="id"),
        "append": lambda: io.write_dataset(new, folder),
        "delete": lambda: io.delete(folder, where="id = 4"),
    }
    calls.get(verb, lambda: VERBS[verb](io, folder))()
    assert kinds(folder) == {(("at", "INT96"), ("wall", "INT64"), ("s.t", "INT96"))}
    after = io.read_parquet(folder).sort_by("id")
    assert after.select(["wall", "s"]).slice(0, 6).equals(before.select(["wall", "s"]).slice(0, 6))


def test_nanoseconds_stay(io: Any, tmp_path: Path) -> None:
    """Values with nanoseconds are instants in nanoseconds, wherever they are in the files."""
    times = [0, 1_000, 1_001, 2_000]
    table = pa.table({"id": [1, 2, 3, 4], "at": pa.array(times, pa.timestamp("ns"))})
    (tmp_path / "d").mkdir()
    folder = str(tmp_path / "d")
    pq.write_table(table, tmp_path / "d" / "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=2)
    for change in (
        lambda: io.merge(pa.table({"id": [9], "at": pa.array([7_000], INSTANT)}), folder, key_columns="id"),
        lambda: io.compact_parquet_dataset(folder, target_rows_per_file=100),
        lambda: io.optimize_parquet_dataset(folder, "at"),
        lambda: io.deduplicate_parquet_dataset(folder, "at"),
    ):
        change()
        found = io.read_parquet(folder).sort_by("id")
        assert found.schema.field("at").type == pa.timestamp("ns", "UTC")
        assert found["at"].cast(pa.int64()).to_pylist() == [*times, 7_000_000]
        assert kinds(folder) == {(("at", "INT96"),)}


LOSSY: dict[str, Callable[[Any, Path], Any]] = {
    "read": lambda io, base: io.read_parquet(str(base / "d")),
    "filter": lambda io, base: io.read_parquet(str(base / "d"), columns=["id"], filters="at IS NULL"),
    "source": lambda io, base: io.write_dataset(str(base / "d"), str(base / "new")),
    "key": lambda io, base: io.deduplicate_parquet_dataset(str(base / "d"), key_columns=["at"]),
    "merge": lambda io, base: io.delete(str(base / "d"), where="id = 4"),
    "compact": lambda io, base: io.compact_parquet_dataset(str(base / "d"), target_rows_per_file=100),
    "optimize": lambda io, base: io.optimize_parquet_dataset(str(base / "d"), zorder_columns=["id"]),
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("call", LOSSY)
def test_times_that_64_bits_cannot_hold(tmp_path: Path, call: str, nested: bool) -> None:
    """The last row group of the last file has a nanosecond in the year 9999."""
    late, day = 253_370_764_800_000_000, 86_400_000_000
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True, "use_dictionary": False, "compression": "none"}
    (tmp_path / "d").mkdir()
    for name, times in {"a": [0, 1, 2, 3], "b": [4, 5, 6, late]}.items():
        column = pa.array(times, pa.timestamp("us"))
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), column) if nested else column
        table = pa.table({"id": [1, 2, 3, 4], "at": column})
        pq.write_table(table, tmp_path / "d" / f"{name}.parquet", row_group_size=2, **options)
    file, stored = tmp_path / "d" / "b.parquet", struct.pack("<qi", 0, late // day + 2_440_588)
    assert file.read_bytes().count(stored) == 1
    file.write_bytes(file.read_bytes().replace(stored, struct.pack("<q", 1) + stored[8:]))
    before = contents(tmp_path / "d")
    with pytest.raises(
        FsspeckitError, match=r"'at' of .*b\.parquet has INT96 timestamps with nanoseconds|cannot be a key"
    ):
        LOSSY[call](PyarrowDatasetIO(), tmp_path)
    assert contents(tmp_path / "d") == before


def test_without_a_time_zone(io: Any, tmp_path: Path) -> None:
    """Impala and old Hive store times of a wall clock."""
    local = type(io)(storage_options={"int96": "local"})
    folder = lake(tmp_path / "d")
    found = local.read_parquet(folder, filters="at < TIMESTAMP '2026-03-29 01:00:00'")
    assert found["at"].type == pa.timestamp("us")
    assert found["at"].to_pylist() == [at(0).replace(tzinfo=None)] * 3
    new = rows([2, 9], 5).cast(pa.schema([
        f.with_type(pa.timestamp("us")) if f.name == "at"
        else f.with_type(pa.struct([("t", pa.timestamp("us")), ("n", pa.int64())])) if f.name == "s" else f
        for f in SCHEMA
    ]))  # fmt: skip
    assert local.merge(new, folder, key_columns="id").updated == 1
    local.optimize_parquet_dataset(folder, "at")
    assert kinds(folder) == {(("at", "INT96"), ("s.t", "INT96"))}
    assert by_id(io.read_parquet(folder))[1]["at"] == at(5)
    with pytest.raises(SchemaMismatchError, match="at"):
        io.merge(new, folder, key_columns="id")
    with pytest.raises(ValueError, match="int96='here'"):
        type(io)(storage_options={"int96": "here"}).read_parquet(folder)


MIGRATIONS: dict[str, Callable[[Any, str, bool], Any]] = {
    "alter": lambda io, d, dry: io.alter(d, timestamps="micros", dry_run=dry),
    "compact": lambda io, d, dry: io.compact_parquet_dataset(d, None, 3, timestamps="micros", dry_run=dry),
    "optimize": lambda io, d, dry: io.optimize_parquet_dataset(d, "id", timestamps="micros", dry_run=dry),
}


@pytest.mark.parametrize("verb", MIGRATIONS)
def test_migration_to_64_bits(io: Any, tmp_path: Path, verb: str) -> None:
    folder = lake(tmp_path / "d")
    pq.write_table(rows([9], 3), tmp_path / "d" / "new.parquet")
    if verb == "optimize":
        io.optimize_parquet_dataset(folder, "id")
    before, old = contents(tmp_path / "d"), by_id(io.read_parquet(folder))
    planned = MIGRATIONS[verb](io, folder, True)
    assert contents(tmp_path / "d") == before
    done = MIGRATIONS[verb](io, folder, False)
    assert planned["planned_groups"] == done["planned_groups"]
    assert len(done["commits"]) == 1
    assert kinds(folder) == {(("at", "INT64"), ("s.t", "INT64"))}
    assert by_id(io.read_parquet(folder)) == old
    assert pl.read_parquet([str(file) for file in data_files(Path(folder))]).schema["at"] == pl.Datetime("us", "UTC")
    assert MIGRATIONS[verb](io, folder, False)["compacted_file_count"] == 0


def test_nanoseconds_are_not_migrated(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})
    (tmp_path / "d").mkdir()
    pq.write_table(table, tmp_path / "d" / "a.parquet", use_deprecated_int96_timestamps=True)
    for migrate in MIGRATIONS.values():
        with pytest.raises(SchemaMismatchError, match=r"nanoseconds in .*'at'"):
            migrate(io, str(tmp_path / "d"), False)


LAKES = Path(__file__).parents[1] / "lakes"
READS: dict[str, Callable[[Any, str], Any]] = {
    "read": lambda io, d: io.read_parquet(d),
    "filter": lambda io, d: io.read_parquet(d, columns=["id"], filters="d < DATE '1500-01-05'"),
    "merge": lambda io, d: io.merge(
        pa.table({"id": [1], "at": pa.array([0], INSTANT), "d": pa.array([-200_000], pa.date32())}), d, key_columns="id"
    ),
    "compact": lambda io, d: io.compact_parquet_dataset(d, target_rows_per_file=100),
    "optimize": lambda io, d: io.optimize_parquet_dataset(d, "at"),
    "alter": lambda io, d: io.alter(d, timestamps="micros"),
    "source": lambda io, d: io.write_dataset(d, f"{d}-new"),
    "changed row": lambda io, d: io.delete(d, where="id = 1"),
}  # fmt: skip


@pytest.mark.parametrize("call", READS)
def test_the_calendar_of_an_old_spark(io: Any, tmp_path: Path, call: str) -> None:
    """Spark shifts these values when it reads them, so they are refused, and files without such values work."""
    for name in ("spark_old_calendar", "spark_legacy_modern"):
        (tmp_path / name).mkdir()
        for file in ("a", "b"):
            (tmp_path / name / f"{file}.parquet").write_bytes((LAKES / f"{name}.parquet").read_bytes())
    before = contents(tmp_path / "spark_old_calendar")
    with pytest.raises(OldCalendarError, match=r"column '(at|d)' of .*[ab]\.parquet has dates before 1582"):
        READS[call](io, str(tmp_path / "spark_old_calendar"))
    assert contents(tmp_path / "spark_old_calendar") == before
    READS[call](io, str(tmp_path / "spark_legacy_modern"))
    kept = io.read_parquet(str(tmp_path / "spark_legacy_modern"), filters="id = 2")
    assert set(kept["at"].to_pylist()) == {dt.datetime(2019, 12, 31, 23, tzinfo=dt.UTC)}
    if call in ("alter", "merge", "changed row"):
        (file, *_) = data_files(tmp_path / "spark_legacy_modern")
        assert not [key for key in pq.read_metadata(file).metadata if b"legacy" in key]


EXPORTS: dict[str, Callable[[Path], pa.Table]] = {
    "delta": lambda folder: pl.read_delta(str(folder)).to_arrow(),
    "iceberg": lambda folder: StaticTable.from_metadata(newest(folder)).scan().to_arrow(),
}


def newest(folder: Path) -> str:
    versions = (folder.parent / f"{folder.name}.iceberg" / "metadata").glob("v*.metadata.json")
    return str(max(versions, key=lambda file: int(file.name[1:].partition(".")[0])))


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsWarning", "ignore:.*Iceberg.*")
def test_exports_have_the_same_instants(tmp_path: Path, form: Any) -> None:
    """Readers of table formats take INT96 as nanoseconds, which end in the year 2262."""
    io, folder = PyarrowDatasetIO(), lake(tmp_path / "d")
    with pytest.raises(
        UnsupportedDataError, match=rf"before the year 1678.*fsspeckit alter {folder} --timestamps micros"
    ):
        io.export(folder, form)
    local = PyarrowDatasetIO(storage_options={"int96": "local"})
    with pytest.raises(UnsupportedDataError, match=r"--timestamps micros --storage-option int96=local`"):
        local.export(folder, form)
    now = tmp_path / "now"
    now.mkdir()
    for number, file in enumerate(data_files(Path(folder))):
        pq.write_table(
            pq.read_table(file, columns=["id", "at"]), now / f"{number}.parquet", use_deprecated_int96_timestamps=True
        )
    io.export(str(now), form, keep_exported=True)
    new = rows([2, 9], 5).select(["id", "at"])
    io.merge(new, str(now), key_columns="id")
    assert by_id(EXPORTS[form](now)) == by_id(io.read_parquet(str(now)))
    late = new.set_column(1, "at", pa.array([at(5), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)], INSTANT))
    before = contents(now)
    with pytest.raises(UnsupportedDataError, match=f"after 2262, .*fsspeckit alter {now} --timestamps micros"):
        io.merge(late, str(now), key_columns="id")
    assert contents(now) == before
    io.alter(str(now), timestamps="micros")
    io.merge(late, str(now), key_columns="id")
    assert by_id(EXPORTS[form](now)) == by_id(io.read_parquet(str(now)))


def test_timestamps_of_alter_are_named(tmp_path: Path) -> None:
    io, folder = PyarrowDatasetIO(), lake(tmp_path / "d")
    nothing: Any = None
    with pytest.raises(ValueError, match="timestamps=None is unknown; choose one of 'micros'"):
        io.alter(folder, timestamps=nothing)


@pytest.mark.parametrize(("version", "is_old"), [("2.4.8", True), ("3.0.1", False), ("4.3.0", False)])
def test_spark_2_marks_no_file(tmp_path: Path, version: str, is_old: bool) -> None:
    (tmp_path / "d").mkdir()
    days = pa.table({"d": pa.array([-200_000, 0], pa.date32())})
    pq.write_table(days.replace_schema_metadata({"org.apache.spark.version": version}), tmp_path / "d" / "a.parquet")
    calls: list[Callable[[Any, str], Any]] = [
        lambda io, d: io.read_parquet(d, filters="d > DATE '2000-01-01'"),
        lambda io, d: io.export(d, "delta"),
        lambda io, d: io.export(d, "iceberg"),
    ]
    for call in calls:
        with pytest.raises(OldCalendarError, match=r"column 'd' of a\.parquet") if is_old else nullcontext():
            call(PyarrowDatasetIO(), str(tmp_path / "d"))


def test_inspect_and_doctor_name_int96(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = lake(tmp_path / "d")
    for command in ("inspect", "doctor"):
        main([command, folder])
        assert f"fsspeckit alter {folder} --timestamps micros" in capsys.readouterr().out
    assert main(["alter", folder, "--timestamps", "micros", "--engine", "pyarrow"]) == 0
    assert kinds(folder) == {(("at", "INT64"), ("s.t", "INT64"))}

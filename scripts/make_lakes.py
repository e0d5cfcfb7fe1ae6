"""Make the small lakes of `tests/lakes/` with the libraries that write them.

`python scripts/make_lakes.py WRITER...` makes those of writers; without arguments it prints which packages they need.

Each writer runs in an environment of its own, which needs only what `PACKAGES` lists, so a lake is what that library
writes and not what another one makes of it. `tests/lakes/lakes.json` says what is in each lake, and
`tests/lakes/rows.json` the values of all columns: every lake has some of these columns, and all rows unless it says so.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

LAKES = Path(__file__).resolve().parents[1] / "tests" / "lakes"
PACKAGES = {
    "spark": "pyspark (3.5, 4.0, 4.1 or 4.3; Java 17)",
    "duckdb": "duckdb",
    "polars": "polars",
    "pandas": "pandas pyarrow",
    "fastparquet": "fastparquet",
    "datafusion": "datafusion",
    "delta-rs": "deltalake pyarrow",
    "pyiceberg": "pyiceberg[pyarrow,sql-sqlite]",
    "awswrangler": "awswrangler moto[server]",
    "duckdb-types": "duckdb",
    "polars-types": "polars",
    "fastparquet-types": "fastparquet",
    "datafusion-types": "datafusion",
    "spark-types": "pyspark 4.3 (Java 17)",
}
TYPES = {
    "id": "bigint",
    "name": "string",
    "small": "int",
    "amount": "decimal(9,2)",
    "total": "decimal(25,4)",
    "price": "double",
    "ratio": "float",
    "ok": "boolean",
    "born": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "raw": "binary",
    "kind": "string",
    "tags": "array<string>",
    "counts": "map<string,bigint>",
    "place": "struct<city:string,at:timestamp,n:int>",
    "parts": "array<struct<k:string,n:int>>",
    "day": "date",
    "year": "int",
    "region": "string",
    "ancient": "date",
    "ancient_at": "timestamp",
}
FLAT = ["id", "name", "small", "amount", "price", "ratio", "ok", "born", "at", "wall", "raw", "kind"]
NESTED = [*FLAT, "total", "tags", "counts", "place", "parts"]
NARROW = ["id", "name", "amount", "at"]
ZONE = "Europe/Berlin"
_REGIONS = ["a b", "ü", "50%", "#1", "a=b", "c/d"]
_COUNT = 12

Row = dict[str, Any]


def row(number: int) -> Row:
    """All columns of a row; times have no more than milliseconds, which every timestamp can hold."""
    at = dt.datetime(2026, 3, 29, 0, 30, 0, 250_000, dt.UTC) + dt.timedelta(hours=number)
    return {
        "id": number,
        "name": None if number == 4 else f"näme {number}",
        "small": number * 10,
        "amount": None if number == 5 else Decimal(number * 25 - 100) / 100,
        "total": Decimal(number) * Decimal("1000000000000000.0625"),
        "price": number / 4 - 1,
        "ratio": number / 8,
        "ok": number % 3 == 0,
        "born": None if number == 6 else dt.date(1969, 12, 25) + dt.timedelta(days=number * 400),
        "at": None if number == 8 else at,
        "wall": None if number == 9 else at.replace(tzinfo=None) - dt.timedelta(days=365 * number),
        "raw": bytes([0, 255, number]),
        "kind": f"k{number % 3}",
        "tags": None if number == 3 else [f"t{n}" if n else None for n in range(number % 4)],
        "counts": None if number == 7 else {f"c{n}": n * number for n in range(1, number % 3 + 1)},
        "place": {"city": f"city {number}", "at": at, "n": number},
        "parts": [{"k": f"p{n}", "n": n} for n in range(number % 3)],
        "day": None if number == 12 else dt.date(2026, 10, 31 if number % 2 else 1),
        "year": 2024 + number % 3,
        "region": None if number == 12 else _REGIONS[number % 6],
        "ancient": dt.date(1500, 3, number),
        "ancient_at": dt.datetime(1500, 3, number, 12, tzinfo=dt.UTC),
    }


ROWS = [row(number) for number in range(1, _COUNT + 1)]
HALVES = [ROWS[:6], ROWS[6:]]
_made: dict[str, dict[str, Any]] = {}


def lake(name: str, writer: str, columns: Iterable[str], **facts: Any) -> Path:
    """Return a new folder for a lake, and note what will be in it."""
    folder = LAKES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _made[name] = {"writer": writer, "columns": list(columns), **facts}
    return folder


def select(rows: Iterable[Row], columns: Iterable[str]) -> list[Row]:
    """Some columns of rows."""
    names = list(columns)
    return [{name: each[name] for name in names} for each in rows]


def ddl(columns: Iterable[str], **other: str) -> str:
    """The types of columns in SQL."""
    return ", ".join(f"{name} {other.get(name, TYPES[name])}" for name in columns)


# Spark


def spark() -> None:
    """Every timestamp type, the formats and calendars of older versions; partitions and mixed files of two versions."""
    from pyspark.sql import SparkSession

    number = ".".join(version("pyspark").split(".")[:2])
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": ZONE, "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    lakes = _SparkLakes(session, f"spark-{number}", f"Spark {number}")
    lakes.formats()
    if number in ("3.5", "4.3"):
        lakes.partitions()
    if number == "4.3":
        lakes.mixtures()
        lakes.names_of_others()
    session.stop()


class _SparkLakes:
    def __init__(self, session: Any, folder: str, writer: str) -> None:
        self.session, self.folder, self.writer = session, folder, writer

    def write(self, frame: Any, folder: Path, *by: str, **options: Any) -> None:
        writer = frame.write.mode("append").options(**options)
        (writer.partitionBy(*by) if by else writer).parquet(str(folder))

    def frame(self, columns: Iterable[str], rows: Iterable[Row] = ROWS, files: int = 2, **other: str) -> Any:
        names = list(columns)
        found = [tuple(each[name] for name in names) for each in rows]
        return self.session.createDataFrame(found, ddl(names, **other)).repartitionByRange(files, "id")

    def plain(self, name: str, columns: list[str], note: str, conf: dict[str, str], **facts: Any) -> None:
        folder = lake(f"{self.folder}/{name}", self.writer, columns, note=note, **facts)
        for key, value in conf.items():
            self.session.conf.set(key, value)
        self.write(self.frame(columns), folder)
        for key in conf:
            self.session.conf.unset(key)

    def formats(self) -> None:
        sql = "spark.sql.parquet."
        stamps, legacy = f"{sql}outputTimestampType", f"{sql}writeLegacyFormat"
        dates, int96 = f"{sql}datetimeRebaseModeInWrite", f"{sql}int96RebaseModeInWrite"
        self.plain("defaults", NESTED, "INT96", {})
        self.plain("micros", NESTED, "`TIMESTAMP_MICROS`", {stamps: "TIMESTAMP_MICROS"})
        self.plain("millis", FLAT, "`TIMESTAMP_MILLIS`", {stamps: "TIMESTAMP_MILLIS"})
        self.plain("legacy", NESTED, "`writeLegacyFormat`: decimals, lists and maps of Spark 1", {legacy: "true"})
        old = {dates: "LEGACY", int96: "LEGACY"}
        self.plain("legacy-calendar", FLAT, "legacy calendar, times of today", old)
        ancient = ["id", "name", "ancient", "ancient_at"]
        self.plain("old-times", ancient, "legacy calendar, times of 1500", old, refused="dates before 1582")
        new = {dates: "CORRECTED", int96: "CORRECTED", stamps: "TIMESTAMP_MICROS"}
        self.plain("corrected", ancient, "corrected calendar, times of 1500", new)

    def partitions(self) -> None:
        for by in (["day"], ["year"], ["region"], ["year", "region"]):
            columns = [*NARROW, *by]
            note = f"partitions of {' and '.join(by)}"
            folder = lake(f"{self.folder}/by-{'-'.join(by)}", self.writer, columns, partitions=by, note=note)
            self.write(self.frame(columns, files=1), folder, *by)

    def mixtures(self) -> None:
        first, second = HALVES
        folder = lake(f"{self.folder}/codecs", self.writer, FLAT, note="files in gzip and in zstd")
        self.write(self.frame(FLAT, first, 1), folder, compression="gzip")
        self.write(self.frame(FLAT, second, 1), folder, compression="zstd")
        folder = lake(f"{self.folder}/order", self.writer, FLAT, note="columns in another order in each file")
        self.write(self.frame(FLAT, first, 1), folder)
        self.write(self.frame(FLAT[::-1], second, 1), folder)
        missing = {"missing": {"price": [each["id"] for each in second], "kind": [each["id"] for each in second]}}
        folder = lake(f"{self.folder}/columns", self.writer, FLAT, note="two columns in some files only", **missing)
        self.write(self.frame(FLAT, first, 1), folder)
        self.write(self.frame([name for name in FLAT if name not in missing["missing"]], second, 1), folder)
        folder = lake(
            f"{self.folder}/widths",
            self.writer,
            FLAT,
            mixed=["small", "ratio"],
            note="`int` and `float` beside `bigint` and `double`",
        )
        self.write(self.frame(FLAT, first, 1), folder)
        self.write(self.frame(FLAT, second, 1, small="bigint", ratio="double"), folder)
        folder = lake(f"{self.folder}/empty-files", self.writer, FLAT, note="files without rows")
        self.write(self.frame(FLAT, [], 1), folder)
        self.write(self.frame(FLAT), folder)
        self.write(self.frame(FLAT, [], 1), folder)
        for name, level in (("all", "ALL"), ("common", "COMMON_ONLY")):
            note = f"`parquet.summary.metadata.level` {level}: `_metadata` or `_common_metadata`"
            folder = lake(f"{self.folder}/summary-{name}", self.writer, FLAT, note=note)
            self.write(self.frame(FLAT), folder, **{"parquet.summary.metadata.level": level})

    def names_of_others(self) -> None:
        """Hive and Trino name files without an ending; the format of the files is that of Hive's library."""
        names = {
            "hive": ["000000_0", "000001_0"],
            "trino": [f"20261102_101112_0000{n}_ab3de_0f8b2c4e-6d1a-4c3b-9e5f-7a8b9c0d1e2{n}" for n in (1, 2)],
        }
        key = "spark.sql.parquet.writeLegacyFormat"
        for writer, files in names.items():
            note = f"names of {writer.title()} without an ending, files of Spark with `writeLegacyFormat`"
            folder = lake(f"{writer}/names", f"{writer.title()} (names)", FLAT, note=note)
            self.session.conf.set(key, "true")
            with _scratch() as scratch:
                self.write(self.frame(FLAT), scratch / "t")
                folder.mkdir()
                for file, name in zip(sorted((scratch / "t").glob("*.parquet")), files, strict=True):
                    shutil.copy(file, folder / name)
            self.session.conf.unset(key)


# DuckDB


def duckdb() -> None:
    """`COPY` with its defaults, with the pages and codec of newer Parquet, and with partitions."""
    import duckdb

    connection = duckdb.connect()
    connection.sql(f"set timezone = '{ZONE}'")
    name = f"DuckDB {version('duckdb')}"
    types = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "binary": "blob", "bigint": "bigint"}
    nested = {
        "tags": "varchar[]",
        "counts": "map(varchar, bigint)",
        "place": 'struct(city varchar, "at" timestamptz, n integer)',
        "parts": "struct(k varchar, n integer)[]",
        "kind": "enum('k0', 'k1', 'k2')",
    }
    columns = {name: nested.get(name, types.get(TYPES[name], TYPES[name])) for name in TYPES}
    fields = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    connection.execute(f"create table t ({fields})")
    for each in ROWS:
        marks = ", ".join("?" * len(columns))
        connection.execute(f"insert into t values ({marks})", list(each.values()))  # noqa: S608

    def copy(folder: Path, names: list[str], options: str, where: str = "true", file: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        chosen = ", ".join(f'"{name}"' for name in names)
        rows = f"select {chosen} from t where {where} order by id"  # noqa: S608
        connection.execute(f"copy ({rows}) to '{folder / file if file else folder}' (format parquet{options})")

    for title, options, note in (
        ("defaults", "", "defaults; `kind` is an enum"),
        ("version-2", ", parquet_version v2, compression zstd", "`parquet_version v2`, zstd"),
    ):
        folder = lake(f"duckdb/{title}", name, NESTED, note=note)
        copy(folder, NESTED, options, "id <= 6", "a.parquet")
        copy(folder, NESTED, options, "id > 6", "b.parquet")
    for by in ("day", "region"):
        folder = lake(f"duckdb/by-{by}", name, [*NARROW, by], partitions=[by], note=f"partitions of {by}")
        copy(folder, [*NARROW, by], f", partition_by ({by}), overwrite_or_ignore")


# Arrow's libraries: polars, pandas, delta-rs, pyiceberg


def _arrow_types() -> dict[str, Any]:
    import pyarrow as pa

    instant = pa.timestamp("us", "UTC")
    simple = {
        "bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64(), "float": pa.float32(),
        "boolean": pa.bool_(), "date": pa.date32(), "timestamp": instant, "timestamp_ntz": pa.timestamp("us"),
        "binary": pa.binary(), "decimal(9,2)": pa.decimal128(9, 2), "decimal(25,4)": pa.decimal128(25, 4),
    }  # fmt: skip
    nested = {
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int64()),
        "place": pa.struct([("city", pa.string()), ("at", instant), ("n", pa.int32())]),
        "parts": pa.list_(pa.struct([("k", pa.string()), ("n", pa.int32())])),
    }
    return {name: nested.get(name, simple.get(kind)) for name, kind in TYPES.items()}


def arrow(rows: Iterable[Row], columns: Iterable[str]) -> Any:
    """Rows as an Arrow table."""
    import pyarrow as pa

    types, found = _arrow_types(), list(rows)

    def values(name: str) -> list[Any]:
        plain = [each[name] for each in found]
        return [list(each.items()) if isinstance(each, dict) and name == "counts" else each for each in plain]

    return pa.table({name: pa.array(values(name), types[name]) for name in columns})


def polars() -> None:
    """`write_parquet` with categories and an enum, and a partitioned sink."""
    import polars as pl

    name = f"polars {version('polars')}"
    schema: dict[str, Any] = {
        "bigint": pl.Int64, "int": pl.Int32, "string": pl.String, "double": pl.Float64, "float": pl.Float32,
        "boolean": pl.Boolean, "date": pl.Date, "timestamp": pl.Datetime("us", "UTC"), "binary": pl.Binary,
        "timestamp_ntz": pl.Datetime("us"), "decimal(9,2)": pl.Decimal(9, 2), "decimal(25,4)": pl.Decimal(25, 4),
        "array<string>": pl.List(pl.String),
    }  # fmt: skip
    nested = {
        "place": pl.Struct({"city": pl.String, "at": pl.Datetime("us", "UTC"), "n": pl.Int32}),
        "parts": pl.List(pl.Struct({"k": pl.String, "n": pl.Int32})),
    }

    def frame(rows: list[Row], columns: list[str], **other: Any) -> Any:
        kinds = {each: other.get(each, nested.get(each, schema.get(TYPES[each]))) for each in columns}
        return pl.DataFrame(select(rows, columns), schema=kinds)

    columns = [each for each in NESTED if each != "counts"]  # polars has no maps
    folder = lake("polars/defaults", name, columns, note="defaults; `kind` is a category")
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        frame(half, columns, kind=pl.Categorical).write_parquet(folder / f"{letter}.parquet")
    folder = lake("polars/enum", name, FLAT, note="`kind` is an enum; small row groups")
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        kind = pl.Enum(["k0", "k1", "k2"])
        frame(half, FLAT, kind=kind).write_parquet(folder / f"{letter}.parquet", row_group_size=2)
    for by in ("day", "region"):
        folder = lake(f"polars/by-{by}", name, [*NARROW, by], partitions=[by], note=f"partitions of {by}")
        frame(ROWS, [*NARROW, by]).write_parquet(folder, partition_by=by)


def pandas() -> None:
    """`to_parquet` through pyarrow: an index, categories, partitions, and the metadata files that Dask writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = f"pandas {version('pandas')}, pyarrow {version('pyarrow')}"

    def frame(rows: list[Row], columns: list[str]) -> Any:
        found = arrow(rows, columns).to_pandas()
        found["kind"] = found["kind"].astype("category")
        return found

    columns = [each for each in NESTED if each not in ("counts", "amount", "total")]  # a frame has no maps
    folder = lake("pandas/defaults", name, columns, note="defaults: an index, `kind` is a category")
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        frame(half, columns).to_parquet(folder / f"{letter}.parquet", engine="pyarrow")
    note = "decimals, whose precision pandas takes from the values of each file"
    folder = lake("pandas/decimals", name, NARROW, mixed=["amount"], note=note)
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        arrow(half, NARROW).to_pandas().to_parquet(folder / f"{letter}.parquet", engine="pyarrow")
    columns = [each for each in FLAT if each != "id"]
    folder = lake("pandas/index", name, [*columns, "id"], note="`id` is the index")
    folder.mkdir()
    for letter, half in zip("ab", (ROWS[::-2], ROWS[-2::-2]), strict=True):  # ids in order would be no column
        frame(half[3:] + half[:3], FLAT).set_index("id").to_parquet(folder / f"{letter}.parquet", engine="pyarrow")
    for by in ("day", "region"):
        folder = lake(f"pandas/by-{by}", name, [*NARROW, by], partitions=[by], note=f"partitions of {by}")
        arrow(ROWS, [*NARROW, by]).to_pandas().to_parquet(folder, engine="pyarrow", partition_cols=[by], index=False)
    folder = lake("pyarrow/metadata", f"pyarrow {version('pyarrow')}", FLAT, note="`_metadata` and `_common_metadata`")
    collected: list[Any] = []
    for letter, half in zip("ab", HALVES, strict=True):
        table = arrow(half, FLAT)
        pq.write_to_dataset(table, folder, metadata_collector=collected, basename_template=f"{letter}-{{i}}.parquet")
    schema = arrow(ROWS, FLAT).schema
    pq.write_metadata(schema, folder / "_common_metadata")
    pq.write_metadata(schema, folder / "_metadata", metadata_collector=collected)
    folder = lake("pyarrow/dictionaries", f"pyarrow {version('pyarrow')}", FLAT, note="dictionaries, int8 and int32")
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        table = arrow(half, FLAT)
        for column, codes in (("kind", pa.int8()), ("name", pa.int32())):
            at = table.column_names.index(column)
            table = table.set_column(at, column, table[column].cast(pa.dictionary(codes, pa.string())))
        pq.write_table(table, folder / f"{letter}.parquet")


def fastparquet() -> None:
    """Its own folder with `_metadata`, single files, INT96, and partitions."""
    import fastparquet
    import pandas

    name = f"fastparquet {version('fastparquet')}"
    columns = [each for each in FLAT if each not in ("amount", "ratio", "born", "wall")]  # no decimals, no dates

    def frame(rows: list[Row], names: list[str]) -> Any:
        found = pandas.DataFrame(select(rows, names))
        found = found.astype({each: "int32" for each in ("small", "year") if each in names})
        return found.astype({"at": "datetime64[us, UTC]"})

    folder = lake("fastparquet/hive", name, columns, note="`_metadata`, `_common_metadata`; `kind` is a category")
    data = frame(ROWS, columns)
    data["kind"] = data["kind"].astype("category")
    fastparquet.write(str(folder), data, file_scheme="hive", row_group_offsets=[0, 6], object_encoding=_encoding(data))
    folder = lake("fastparquet/files", name, columns, note="single files in gzip")
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        data = frame(half, columns)
        fastparquet.write(str(folder / f"{letter}.parquet"), data, compression="GZIP", object_encoding=_encoding(data))
    folder = lake("fastparquet/int96", name, columns, note='`times="int96"`')
    folder.mkdir()
    for letter, half in zip("ab", HALVES, strict=True):
        data = frame(half, columns).astype({"at": "datetime64[ns, UTC]"})  # it takes the unit for ns
        file = str(folder / f"{letter}.parquet")
        fastparquet.write(file, data, times="int96", object_encoding=_encoding(data))
    names = ["id", "name", "at", "year"]
    folder = lake("fastparquet/by-year", name, names, partitions=["year"], note="`_metadata`, partitions of year")
    data = frame(ROWS, names)
    options = {"partition_on": ["year"], "object_encoding": _encoding(data)}
    fastparquet.write(str(folder), data, file_scheme="hive", **options)


def _encoding(frame: Any) -> dict[str, str]:
    return {name: "bytes" if name == "raw" else "utf8" for name in frame.columns if name in ("raw", "name", "kind")}


# DataFusion


def datafusion() -> None:
    """The writer of parquet-rs: `write_parquet`, `COPY` with partitions, and pages of Parquet 2."""
    from datafusion import SessionContext

    name = f"datafusion {version('datafusion')}"

    def context(rows: list[Row], columns: list[str]) -> Any:
        found = SessionContext()
        found.register_record_batches("t", [arrow(rows, columns).to_batches()])
        return found

    for title, options, note in (
        ("defaults", "", "defaults"),
        ("version-2", " OPTIONS ('format.writer_version' '2.0', 'format.compression' 'lz4_raw')", "version 2.0, lz4"),
    ):
        folder = lake(f"datafusion/{title}", name, NESTED, note=note)
        folder.mkdir()
        for letter, half in zip("ab", HALVES, strict=True):
            file = folder / f"{letter}.parquet"
            context(half, NESTED).sql(f"COPY t TO '{file}' STORED AS PARQUET{options}").collect()
    for by in ("day", "region"):
        rows = [each for each in ROWS if each[by] is not None]
        facts = {"partitions": [by], "without": [each["id"] for each in ROWS if each[by] is None]}
        folder = lake(f"datafusion/by-{by}", name, [*NARROW, by], note=f"partitions of {by}", **facts)
        context(rows, [*NARROW, by]).sql(f"COPY t TO '{folder}/' STORED AS PARQUET PARTITIONED BY ({by})").collect()


# Single files of types that Arrow does not carry, for tests/conformance/test_logical_types.py: id, the types, and s


def duckdb_types() -> None:
    """INTERVAL and TIMETZ, JSON and UUID, VARIANT."""
    import duckdb

    files = {
        "interval": """to_days(i::int) + to_months(i::int) iv, ('12:00:0' || i || '+02')::timetz tz,
            {'x': to_days(i::int), 'y': i} st, [('12:00:0' || i || '+02')::timetz] ltz""",
        "json": """('{"a":' || i || '}')::json js, ('00000000-0000-0000-0000-00000000000' || i)::uuid u""",
        "variant": "{'a': i, 'b': 'x' || i}::variant v",
    }
    for name, columns in files.items():
        rows = f"select i::int id, {columns}, 'v' || i s from range(1, 4) t(i)"  # noqa: S608
        duckdb.sql(f"copy ({rows}) to '{LAKES}/duckdb_{name}.parquet' (format parquet, compression zstd)")


def polars_types() -> None:
    """Integers of 128 bits, and arrays with nulls."""
    import polars as pl

    found = {
        "int128": pl.Series("i", [1, -2, None], dtype=pl.Int128),
        "array": pl.Series("a", [[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
    }
    for name, column in found.items():
        frame = pl.DataFrame([pl.Series("id", [1, 2, 3]), column, pl.Series("s", ["v1", "v2", "v3"])])
        frame.write_parquet(LAKES / f"polars_{name}.parquet", statistics=name != "int128")


def fastparquet_types() -> None:
    """Timedeltas, which fastparquet stores as times in UTC."""
    import fastparquet
    import pandas as pd

    seconds = pd.to_timedelta([1, 2, 3], unit="s")
    frame = pd.DataFrame({"id": [1, 2, 3], "td": seconds, "s": ["v1", "v2", "v3"]})
    fastparquet.write(str(LAKES / "fastparquet_timedelta.parquet"), frame, object_encoding={"s": "utf8"})


def datafusion_types() -> None:
    """Categories in pages of version 2.0 without a dictionary."""
    from datafusion import ParquetWriterOptions, SessionContext

    rows = """select column1 as id, arrow_cast(column2, 'Dictionary(Int32, Utf8)') d, 'v' || column1 as s
        from (values (1, 'a'), (2, 'b'), (3, 'a'))"""
    options = ParquetWriterOptions(writer_version="2.0", dictionary_enabled=False)
    SessionContext().sql(rows).write_parquet_with_options(str(LAKES / "datafusion_v2.parquet"), options)


def spark_types() -> None:
    """Lists of two levels, `bag` and `array`, with `writeLegacyFormat`."""
    from pyspark.sql import SparkSession
    from pyspark.sql.types import _parse_datatype_string

    session = SparkSession.builder.master("local[1]").getOrCreate()
    session.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    schema = (
        "id bigint, l array<int>, r array<int>, m map<string,int>, ls array<struct<a:int,b:string>>, dec decimal(9,2), "
        "s string"
    )
    required = {"r", "ls"}  # elements that are never null have no group of their own
    types: Any = _parse_datatype_string(schema)
    for field in types:
        if field.name in required:
            field.dataType.containsNull = False
    rows = session.createDataFrame(
        [
            (1, [1, None], [1, 2], {"a": 1, "b": None}, [(1, "x"), (None, None)], Decimal("1.50"), "v1"),
            (2, [], [], {}, [], None, "v2"),
            (3, None, None, None, None, Decimal("-2.25"), "v3"),
        ],
        types,
    )
    with _scratch() as scratch:
        rows.coalesce(1).write.parquet(str(scratch / "t"))
        (file,) = (scratch / "t").glob("*.parquet")
        shutil.copy(file, LAKES / "spark_legacy_lists.parquet")


# Table formats, of which only the data files are kept


def delta_rs() -> None:
    """The data files of Delta tables without their log."""
    from deltalake import write_deltalake

    name = f"delta-rs {version('deltalake')}"
    for title, columns, by in (("files", NESTED, []), ("by-day", [*NARROW, "day"], ["day"])):
        note = f"data files of a table{f' with partitions of {by[0]}' if by else ''}"
        folder = lake(f"delta-rs/{title}", name, columns, note=note, **({"partitions": by} if by else {}))
        with _scratch() as scratch:
            for half in HALVES:
                write_deltalake(str(scratch / "t"), arrow(half, columns), mode="append", partition_by=by or None)
            shutil.copytree(scratch / "t", folder, ignore=shutil.ignore_patterns("_delta_log"))


def pyiceberg() -> None:
    """The data files of Iceberg tables without their metadata."""
    from pyiceberg.catalog.sql import SqlCatalog

    name = f"pyiceberg {version('pyiceberg')}"
    for title, columns, by in (("files", NESTED, ""), ("by-region", [*NARROW, "region"], "region")):
        facts: dict[str, Any] = {"note": "data files of a table"}
        if by:  # the folders repeat a column that the files have, and other words for null
            facts = {"note": f"data files of a table with partitions of {by}, which the files have too"}
        folder = lake(f"pyiceberg/{title}", name, columns, **facts)
        with _scratch() as scratch:
            catalog = SqlCatalog("c", uri=f"sqlite:///{scratch}/c.db", warehouse=f"file://{scratch}")
            catalog.create_namespace("n")
            table = catalog.create_table("n.t", arrow(ROWS, columns).schema)
            if by:
                with table.update_spec() as change:
                    change.add_identity(by)
            for half in HALVES:
                table.append(arrow(half, columns))
            (data,) = (path for path in scratch.rglob("data") if path.is_dir())
            shutil.copytree(data, folder)


def awswrangler() -> None:
    """`wr.s3.to_parquet` on an S3 server on loopback; what needs Athena or Glue is left out."""
    import awswrangler as wr
    import boto3
    from moto.server import ThreadedMotoServer

    name = f"awswrangler {version('awswrangler')}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    wr.config.s3_endpoint_url = f"http://{host}:{port}"
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")  # noqa: S106
    client = session.client("s3", endpoint_url=wr.config.s3_endpoint_url)
    client.create_bucket(Bucket="lakes")
    kept = {"amount", "total", "counts"}  # of which a frame does not tell the type
    every = [each for each in NESTED if each != "wall"]  # INT96 would make it an instant
    for title, columns, by in (("dataset", every, []), ("by-day", [*NARROW, "day"], ["day"])):
        note = f"`dataset=True`{f', partitions of {by[0]}' if by else ''}"
        facts = {"partitions": by, "without": [12]} if by else {}  # it drops rows without a partition
        folder = lake(f"awswrangler/{title}", name, columns, note=note, **facts)
        for half in HALVES:
            wr.s3.to_parquet(
                arrow(half, columns).to_pandas(), f"s3://lakes/{title}/", dataset=True, partition_cols=by or None,
                index=False, boto3_session=session, dtype={name: TYPES[name] for name in kept & set(columns)},
            )  # fmt: skip
        for found in client.list_objects_v2(Bucket="lakes", Prefix=f"{title}/")["Contents"]:
            target = folder / found["Key"].partition("/")[2]
            target.parent.mkdir(parents=True, exist_ok=True)
            client.download_file("lakes", found["Key"], str(target))
    server.stop()


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


WRITERS: dict[str, Callable[[], None]] = {
    "spark": spark,
    "duckdb": duckdb,
    "polars": polars,
    "pandas": pandas,
    "fastparquet": fastparquet,
    "datafusion": datafusion,
    "delta-rs": delta_rs,
    "pyiceberg": pyiceberg,
    "awswrangler": awswrangler,
    "duckdb-types": duckdb_types,
    "polars-types": polars_types,
    "fastparquet-types": fastparquet_types,
    "datafusion-types": datafusion_types,
    "spark-types": spark_types,
}


def _plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _save() -> None:
    """Write what is in the lakes. New lakes replace those of the same names."""
    path = LAKES / "lakes.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps(dict(sorted((known | _made).items())), indent=1, ensure_ascii=False) + "\n", "utf-8")
    rows = [{name: _plain(value) for name, value in each.items()} for each in ROWS]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in rows)
    (LAKES / "rows.json").write_text(f'{{"types": {json.dumps(TYPES)},\n"rows": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    if not sys.argv[1:]:
        for writer, packages in PACKAGES.items():
            print(f"{writer}: {packages}")
    for writer in sys.argv[1:]:
        WRITERS[writer]()
        _save()

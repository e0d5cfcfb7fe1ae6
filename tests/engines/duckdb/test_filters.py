"""A filter as SQL text is one predicate and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fsspeckit import FilterError
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.duckdb.conditions import condition_database
from fsspeckit.datasets.duckdb.filters import parse_predicate
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "name": ["a", "B", "c", None, "e", "F", "g", "h", "i", "it's"],
        "at": pa.array(np.arange("2024-01-01", "2024-01-11", dtype="datetime64[D]").astype("datetime64[ns]")),
        "price": pa.array([Decimal(n) / 4 for n in range(10)], pa.decimal256(60, 2)),
        "kind": pa.array(["x", "y"] * 5, pa.dictionary(pa.int8(), pa.string())),
        "point": pa.array([{"x": n, "y": str(n)} for n in range(10)]),
        "part": [n // 4 for n in range(10)],
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("filters") / "d")
    PyarrowDatasetIO().write_dataset(ROWS, path, partition_by=["part"])
    return path


@pytest.fixture(params=["own", "given"])
def io(request):
    return DuckDBDatasetIO(duckdb.connect() if request.param == "given" else None)


SAME = {
    "id > 3": pc.field("id") > 3,
    "ID BETWEEN 2 AND 4 OR id = 9": ((pc.field("id") >= 2) & (pc.field("id") <= 4)) | (pc.field("id") == 9),
    "name IS NULL": pc.field("name").is_null(),
    "name IN ('a', 'it''s') -- and no more": pc.field("name").isin(["a", "it's"]),
    "NOT (name = 'a')": ~(pc.field("name") == "a"),
    "\"at\" >= TIMESTAMP '2024-01-08'": pc.field("at") >= pa.scalar(np.datetime64("2024-01-08", "ns")),
    "kind = 'x' AND part = 2": (pc.field("kind") == "x") & (pc.field("part") == 2),
    "part = 1": pc.field("part") == 1,
    "point.x = 7": pc.field("point", "x") == 7,
    "id > 100": pc.field("id") > 100,
    "TRUE": pc.scalar(True),
    "1 = 0": pc.scalar(False),
    "/* a ; b */ id < 2": pc.field("id") < 2,
}


WAYS = [
    {"columns": columns, **more}
    for columns in (None, ["price", "name"])
    for more in ({}, {"include_file_path": True}, {"use_threads": False})
]
IN_TURN = [(text, WAYS[number % len(WAYS)]) for number, text in enumerate(SAME)]
EVERY_WAY = [(text, way) for text in SAME for way in WAYS]


@pytest.mark.parametrize(("text", "way"), EVERY_WAY if sweep_size().full else IN_TURN)
def test_the_same_rows_and_types_as_an_expression(io, folder, text, way):
    found = io.read_parquet(folder, filters=text, **way)
    expected = PyarrowDatasetIO().read_parquet(folder, filters=SAME[text], **way)
    assert found.equals(expected, check_metadata=True), (found, expected)


COUNTS = {
    "lower(name) = 'f'": 1,
    "name LIKE 'i%'": 2,
    "name ILIKE 'b'": 1,
    "regexp_matches(name, '[a-c]')": 2,
    "id % 2 = 0 AND id + 1 > 5": 2,
    "CASE WHEN id > 3 THEN name = 'e' ELSE FALSE END": 1,
    "coalesce(name, 'z') = 'z'": 1,
    "list_contains([1, 2], id)": 2,
    "len(list_filter([id], lambda n: n > 7)) = 1": 2,
    "year(\"at\") = 2024 AND date_trunc('day', \"at\") < DATE '2024-01-03'": 2,
    "id IS DISTINCT FROM 3": 9,
    "id::VARCHAR = '4'": 1,
    "name COLLATE nocase = 'B'": 1,
    "(id = 1) OR (id = 2)": 2,
    "name = $$) OR ($$": 0,
    "nullif(id, 3) IS NULL": 1,
    "split_part(name, 't', 1) = 'i'": 2,
    "now() > TIMESTAMPTZ '2024-01-01' AND current_date > DATE '2024-01-01'": 10,
    "ago(INTERVAL 1 DAY) > TIMESTAMPTZ '2024-01-01' AND id = 1": 1,
    "len(range(id)) = 2": 1,
}


@pytest.mark.parametrize("text", COUNTS)
def test_conditions_of_many_forms(io, folder, text):
    assert io.read_parquet(folder, filters=text).num_rows == COUNTS[text]


REFUSED = [
    "1=1); COPY (SELECT 1) TO 'x.csv'; --",
    "1=1); COPY (SELECT 1) TO 'x.csv",
    "1=1; COPY (SELECT 1) TO 'x.csv'",
    "1=1); SELECT (1",
    "1=1); ATTACH 'x.csv' AS x; SELECT (1",
    "1=1); PRAGMA version; SELECT (1",
    "1=1); SET memory_limit = '1MB'; SELECT (1",
    "COPY (SELECT 1) TO 'x.csv'",
    "ATTACH 'x.csv' AS x",
    "PRAGMA version",
    "SELECT 1",
    "(SELECT 1)",
    "id IN (SELECT 1)",
    "id IN (FROM 'x.csv')",
    "id = (SELECT count(*) FROM read_text('x.csv'))",
    "EXISTS (FROM glob('*'))",
    "id = ANY (SELECT 1)",
    "list_filter([1], lambda n: n IN (SELECT 1)) = [1]",
    "CASE WHEN (SELECT TRUE) THEN TRUE END",
    "1=1) UNION (SELECT 1",
    "1=1) UNION ALL SELECT (1",
    "1=1) GROUP BY (id",
    "1=1) ORDER BY (id",
    "1=1) LIMIT (1",
    "1=1) QUALIFY (TRUE",
    "1=1) USING SAMPLE (1",
    "1=1 ORDER BY id",
    "row_number() OVER () = 1",
    "count(*) > 1",
    "sum(id) > 1",
    "random() < 0.5",
    "nextval('s') > 1",
    "setseed(0.5) IS NULL",
    "read_text('x.csv') = ''",
    "main.lower('a') = 'a'",
    "mine(id) = 1",
    "id=1) OR (id=2",
    "id = 1 --)\n) OR (id = 2",
    "current_setting('memory_limit') = ''",
    "getvariable('x') IS NULL",
    "pg_sleep(1) IS NULL",
    "txid_current() > 0",
    "current_schema = 'main'",
    "current_catalog = 'memory' OR id = 1",
    "user = 'duckdb'",
    "user() = 'duckdb'",
    "current_user() = 'duckdb'",
    "current_role() = 'duckdb'",
    "session_user() = 'duckdb'",
    "version() <> ''",
    "get_block_size('memory') > 0",
    "format_type(1, 2) = ''",
    "json_serialize_plan('SELECT * FROM read_csv(''x.csv'')') IS NULL",
    "__internal_compress_string_ubigint(name) = 1",
    "id = ?",
    "id = $1",
    "#1 = 1",
    "COLUMNS(*) > 1",
    "* = 1",
    "id >",
    "id = 'x",
    "",
    " ",
    "-- nothing",
    ")",
]


@pytest.mark.parametrize("text", REFUSED)
def test_more_than_a_predicate_is_refused(folder, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("before")
    connection = duckdb.connect()
    connection.execute("CREATE MACRO mine(x) AS (SELECT count(*) FROM read_text('x.csv'))")
    connection.execute("CREATE SEQUENCE s")
    with pytest.raises(FilterError, match=r"\. Pass one condition over columns"):
        DuckDBDatasetIO(connection).read_parquet(folder, filters=text)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "before"
    assert connection.execute("SELECT nextval('s')").fetchone() == (1,)


@pytest.mark.parametrize("kind", ["native", "arrow"])
@pytest.mark.parametrize("text", ["mine(id) = 1", "sqrt(id) = 3"])
def test_functions_of_the_caller_are_never_called(folder, kind, text):
    """DuckDB lists them like its own functions, and they replace those with the same name."""
    connection, calls = duckdb.connect(), []
    for name in ("mine", "sqrt"):
        connection.create_function(name, lambda x: calls.append(x) or x, ["BIGINT"], "BIGINT", type=kind)
    io = DuckDBDatasetIO(connection)
    if text.startswith("mine"):
        with pytest.raises(FilterError, match="calls mine, which is not one of"):
            io.read_parquet(folder, filters=text)
    else:
        assert io.read_parquet(folder, filters=text)["id"].to_pylist() == [9]
    assert calls == []


def test_macros_and_tables_of_the_caller_have_no_effect(folder):
    connection = duckdb.connect()
    for name in ("mine", "lower", "json_serialize_sql"):
        connection.execute(f"CREATE MACRO {name}(x) AS (SELECT count(*) FROM duckdb_settings())")
    connection.execute(
        "CREATE MACRO duckdb_functions() AS TABLE SELECT 'mine' AS function_name, 'scalar' AS function_type, "
        "'CONSISTENT' AS stability, NULL AS macro_definition, TRUE AS internal, NULL AS extension_name"
    )
    connection.execute("CREATE TABLE fsspeckit_rows AS SELECT 7 AS id")
    io = DuckDBDatasetIO(connection)
    assert io.read_parquet(folder, filters="lower(name) = 'f'")["id"].to_pylist() == [5]
    with pytest.raises(FilterError, match="calls mine, which is not one of"):
        io.read_parquet(folder, filters="mine(id) > 0")


SETTINGS = {"default_collation": ("'nocase'", "name = 'b'", []), "integer_division": ("true", "id / 2 = 1.5", [3])}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_the_caller_have_no_effect(folder, setting):
    value, text, expected = SETTINGS[setting]
    connection = duckdb.connect()
    connection.execute(f"SET GLOBAL {setting} = {value}")
    assert DuckDBDatasetIO(connection).read_parquet(folder, filters=text)["id"].to_pylist() == expected


ZONED = pa.table({"id": range(10), "at": pa.array([n * 3_600_000_000 for n in range(10)], pa.timestamp("us", "UTC"))})
ZONED_COUNTS = {"\"at\" >= '1970-01-01 04:00:00'": 6, 'hour("at") = 9': 1, 'year("at") = 1970': 10}


@pytest.mark.parametrize("text", ZONED_COUNTS)
def test_timestamps_are_utc_in_every_session(tmp_path, text):
    connection = duckdb.connect()
    connection.execute("SET GLOBAL TimeZone = 'America/New_York'")
    io = DuckDBDatasetIO(connection)
    io.write_dataset(ZONED, str(tmp_path / "d"))
    assert io.read_parquet(str(tmp_path / "d"), filters=text).num_rows == ZONED_COUNTS[text]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_timestamps_are_utc_on_every_machine(tmp_path, zone):
    DuckDBDatasetIO().write_dataset(ZONED, str(tmp_path / "d"))
    script = (
        "from fsspeckit.datasets.duckdb import read_parquet\n"
        f"print([read_parquet({str(tmp_path / 'd')!r}, filters=text).num_rows for text in {list(ZONED_COUNTS)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"TZ": zone}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(list(ZONED_COUNTS.values()))


def test_the_database_for_conditions_has_no_external_access(tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n")
    here = pa.table({"a": [1]})
    with condition_database().cursor() as cursor:
        for query in (f"FROM '{tmp_path}/x.csv'", f"COPY (SELECT 1) TO '{tmp_path}/y.csv'", "LOAD httpfs", "FROM here"):
            with pytest.raises(duckdb.Error):
                cursor.execute(query)
        with pytest.raises(duckdb.Error, match="configuration has been locked"):
            cursor.execute("SET TimeZone = 'Asia/Tokyo'")
    assert (here.num_rows, [path.name for path in tmp_path.iterdir()]) == (1, ["x.csv"])


def test_no_database_stays_open_without_its_owner(folder):
    """A process that was forked while a database of DuckDB was open crashes when it ends, whatever it does."""
    script = (
        "import os, sys\n"
        "from fsspeckit.datasets.duckdb import DuckDBDatasetIO, read_parquet\n"
        f"print(read_parquet({folder!r}, filters='id > 3').num_rows)\n"
        f"print(DuckDBDatasetIO().read_parquet({folder!r}, filters='id > 3').num_rows, flush=True)\n"
        "if child := os.fork():\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "sys.exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("6\n6\n0\n", "")


DEEP = ["NOT " * 500 + "(id = 1)", "id" + " + 1" * 900 + " > 0"]


@pytest.mark.parametrize("text", DEEP, ids=["not", "plus"])
def test_conditions_nested_too_deeply(io, folder, text):
    with pytest.raises(FilterError, match=r"nested too deeply. Pass one condition"):
        io.read_parquet(folder, filters=text)


def test_functions_that_do_not_depend_only_on_their_arguments_are_refused():
    connection = duckdb.connect()
    query = "SELECT DISTINCT function_name, stability FROM duckdb_functions() WHERE function_type = 'scalar'"
    unstable = {name for name, stability in connection.execute(query).fetchall() if stability != "CONSISTENT"}
    clock = {"current_date", "get_current_time", "get_current_timestamp", "now", "today", "transaction_timestamp"}
    assert {"current_setting", "getvariable", "random", "nextval", "txid_current"} <= unstable
    for name in unstable - clock:
        with pytest.raises(FilterError, match=f"calls {name}, which is not one of"):
            parse_predicate(connection, f'"{name}"(id) = 1')


def test_columns_with_the_names_of_settings(io, tmp_path):
    rows = pa.table({"user": ["x", "y"], "s": [{"current_schema": 1}, {"current_schema": 2}]})
    io.write_dataset(rows, str(tmp_path / "d"))
    found = io.read_parquet(str(tmp_path / "d"), filters="\"user\" = 'y' AND s.current_schema = 2")
    assert found.to_pylist() == rows.slice(1).to_pylist()


def test_uuids_are_compared_as_such(io, tmp_path):
    rows = io.connection.sql(
        "SELECT range AS id, u, {'u': u} AS s, [u] AS l FROM (SELECT range, "
        "('00000000-0000-0000-0000-00000000000' || range)::UUID AS u FROM range(3))"
    )
    io.write_dataset(rows, str(tmp_path / "d"))
    value = "'00000000-0000-0000-0000-000000000002'"
    for text in (f"u = {value}", f"s.u = {value}", f"l[1] = {value}", f"list_contains(l, {value}::UUID)"):
        assert io.read_parquet(str(tmp_path / "d"), filters=text)["id"].to_pylist() == [2]


def test_sql_text_is_refused_by_other_engines(folder):
    with pytest.raises(FilterError, match=r"SQL text, which only the DuckDB engine supports.*pyarrow\.compute\.field"):
        PyarrowDatasetIO().read_parquet(folder, filters="id > 3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope = 1", "nope"),
        ("id = 'abc'", "abc"),
        ("price = 1", "Unsupported.*Decimal"),
        ("point = 1", "1"),
        ("at = 1", "syntax|at"),
    ],
)
def test_invalid_conditions_are_typed_errors(io, folder, text, message):
    """Also a column of a type that DuckDB does not support; it can be read, but not compared."""
    with pytest.raises(FilterError, match=message):
        io.read_parquet(folder, filters=text)


def test_columns_that_differ_only_in_case(io, tmp_path):
    io.write_dataset(pa.table({"a": [1], "A": [2], "b": [3]}), str(tmp_path / "d"))
    assert io.read_parquet(str(tmp_path / "d"), filters="b = 3").to_pylist() == [{"a": 1, "A": 2, "b": 3}]
    with pytest.raises(FilterError, match="differ only in case"):
        io.read_parquet(str(tmp_path / "d"), filters="a = 1")


def test_columns_named_like_internal_names(io, tmp_path):
    io.write_dataset(pa.table({"fsspeckit row 0": [7, 8], "rows": [1, 2]}), str(tmp_path / "d"))
    found = io.read_parquet(str(tmp_path / "d"), filters='"fsspeckit row 0" = 8 AND "rows" = 2')
    assert found.to_pylist() == [{"fsspeckit row 0": 8, "rows": 2}]


@pytest.mark.parametrize("name", ["rows", "found", "fsspeckit row 0", "fsspeckit 0"])
def test_conditions_cannot_use_internal_names(io, tmp_path, name):
    rows = pa.table({name: [{"id": 5}, {"id": 1}], "id": [1, 2]})
    io.write_dataset(rows, str(tmp_path / "d"))
    assert io.read_parquet(str(tmp_path / "d"), filters=f'"{name}".id = 5').to_pylist() == rows.slice(0, 1).to_pylist()
    io.write_dataset(rows.select(["id"]), str(tmp_path / "e"))
    for text in (f'"{name}" IS NOT NULL', f'"{name}".id = 1', f'"{name}" IS NOT NULL AND id = 1'):
        with pytest.raises(FilterError, match=f'"{name}" not found'):
            io.read_parquet(str(tmp_path / "e"), filters=text)


LENGTHS = pa.array([0, 500], pa.duration("ns"))
HOLDING = {
    "plain": LENGTHS,
    "struct": pa.StructArray.from_arrays([LENGTHS], ["x"]),
    "list": pa.array([[0], [500]], pa.list_(pa.duration("ns"))),
    "map": pa.array([[("a", 0)], [("a", 500)]], pa.map_(pa.string(), pa.duration("ns"))),
}


@pytest.mark.parametrize("kind", HOLDING)
def test_durations_finer_than_those_of_duckdb_are_refused(io, tmp_path, kind):
    io.write_dataset(pa.table({"id": [1, 2], "d": HOLDING[kind]}), str(tmp_path / "d"))
    with pytest.raises(FilterError, match=r"truncates the nanoseconds of the columns \['d'\].*\. Use tuples"):
        io.read_parquet(str(tmp_path / "d"), filters="d IS NOT NULL")
    assert io.read_parquet(str(tmp_path / "d"), filters="id = 2")["d"].to_pylist() == HOLDING[kind].to_pylist()[1:]


ZEROS = {
    "INTERVAL 0 SECOND": pa.duration("us"),
    "TIMESTAMP '1970-01-01'": pa.timestamp("ns"),
    "TIMESTAMPTZ '1970-01-01'": pa.timestamp("us", "UTC"),
    "TIME '00:00:00'": pa.time64("us"),
}


@pytest.mark.parametrize("zero", ZEROS)
def test_other_times_are_compared_exactly(io, tmp_path, zero):
    rows = pa.table({"id": [1, 2], "d": pa.array([0, 1], pa.int64()).cast(ZEROS[zero])})
    io.write_dataset(rows, str(tmp_path / "d"))
    assert io.read_parquet(str(tmp_path / "d"), filters=f"d > {zero}")["id"].to_pylist() == [2]


def test_a_column_that_only_some_files_have(io, tmp_path):
    io.write_dataset(pa.table({"id": [1, 2]}), str(tmp_path / "d"))
    more = pa.table({"id": [2, 3], "new": ["x", "y"]})
    io.merge(more, str(tmp_path / "d"), strategy="upsert", key_columns="id", schema_mode="evolve")
    assert io.read_parquet(str(tmp_path / "d"), filters="new IS NULL")["id"].to_pylist() == [1]

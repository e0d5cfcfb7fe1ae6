"""The database of the engine: the caller's, which is not changed, or a new one with limits."""

from __future__ import annotations

import os
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

from fsspeckit.datasets.duckdb import (
    DuckDBDatasetIO,
    compact_parquet_dataset,
    create_duckdb_connection,
    deduplicate_parquet_dataset,
    merge,
    optimize_parquet_dataset,
    read_parquet,
    write_dataset,
)
from fsspeckit.datasets.duckdb.failures import DuckDBError, DuckDBNotFoundError

ROWS = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})


def state_of(connection):
    """The state of a database that is visible to the caller."""
    queries = (
        "SELECT name, value FROM duckdb_settings() ORDER BY 1",
        "SELECT database_name, schema_name, table_name FROM duckdb_tables() ORDER BY ALL",
        "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
        "SELECT extension_name FROM duckdb_extensions() WHERE loaded ORDER BY 1",
    )
    return [connection.execute(query).fetchall() for query in queries], connection.list_filesystems()


def life(io, folder, rows):
    io.write_dataset(rows, folder)
    io.merge(rows, folder, strategy="upsert", key_columns=["k"])
    io.merge(rows, folder, strategy="full_merge", key_columns=["k", "n"], dry_run=True)
    return io.read_parquet(folder, filters="n > 1").num_rows


def test_nothing_of_a_callers_database_changes(tmp_path):
    connection = duckdb.connect(config={"threads": 1, "memory_limit": "300MB"})
    connection.execute("SET default_collation = 'NOCASE'; SET preserve_insertion_order = false")
    connection.execute("CREATE TABLE t AS SELECT 1")
    connection.register("rows", ROWS)
    before = state_of(connection)
    assert life(DuckDBDatasetIO(connection), str(tmp_path / "d"), connection.table("rows")) == 2
    assert state_of(connection) == before


def test_invalid_connection_and_invalid_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TypeError, match=r"is not a DuckDB connection\. Pass a result of"):
        DuckDBDatasetIO("events.duckdb")
    for folder in (tmp_path / "file", ""):
        with pytest.raises(ValueError, match=r"is not a folder\. Pass the path"):
            DuckDBDatasetIO(temp_directory=folder)


@pytest.mark.parametrize("limit", ["64MB", 64 * 1024 * 1024])
def test_limits_of_a_new_database_are_applied(tmp_path, limit):
    io = DuckDBDatasetIO(memory_limit=limit, temp_directory=tmp_path / "spill")
    query = "SELECT value FROM duckdb_settings() WHERE name IN ('memory_limit', 'temp_directory') ORDER BY name"
    assert io.connection.execute(query).fetchall() == [("64.0 MiB",), (str(tmp_path / "spill"),)]
    io.connection.execute("CREATE TABLE t AS SELECT range AS i, hash(range) AS h FROM range(10_000_000)")
    assert os.listdir(tmp_path / "spill")
    io.connection.close()
    assert not (tmp_path / "spill").exists()


@pytest.mark.parametrize("call", ["optimize", "deduplicate"])
@pytest.mark.parametrize("given", ["nothing", "a connection", "settings"])
def test_maintenance_spills_below_the_temp_directory(tmp_path, call, given):
    spill = tmp_path / "spill"
    bounds = {"memory_limit": "16MB", "temp_directory": str(spill)}
    if given == "nothing":
        io = DuckDBDatasetIO(**bounds)
    elif given == "settings":
        io = DuckDBDatasetIO(duckdb.connect())
        for name, value in bounds.items():
            io.connection.execute(f"SET {name} = '{value}'")
    else:
        io = DuckDBDatasetIO(create_duckdb_connection(**bounds))
    rows = io.connection.sql("SELECT md5((range % 90000)::VARCHAR) AS k, range AS n FROM range(100000)")
    io.write_dataset(rows, str(tmp_path / "d"), max_rows_per_file=20_000)
    seen: set[bool] = set()
    options = {"progress": lambda event: seen.add(any(spill.iterdir())) if spill.exists() else None}
    if call == "optimize":
        io.optimize_parquet_dataset(str(tmp_path / "d"), ["k"], target_rows_per_file=50_000, **options)
    else:
        assert (
            io.deduplicate_parquet_dataset(str(tmp_path / "d"), "k", "n", **options).details["deduplicated_rows"]
            == 10_000
        )
    assert True in seen
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize("make", [DuckDBDatasetIO, create_duckdb_connection])
@pytest.mark.parametrize("limit", ["lots", "1XB", "80%", "", 0, -1, True, 1.5])
def test_an_invalid_size_is_refused(make, limit):
    with pytest.raises(ValueError, match=r"memory_limit=.* is not a size. Use bytes or a text"):
        make(memory_limit=limit)


def test_out_of_memory_is_a_typed_error(tmp_path):
    write_dataset(ROWS, str(tmp_path / "d"))
    with pytest.raises(DuckDBError, match=r"Out of Memory.*\. Free memory .* or increase memory_limit"):
        DuckDBDatasetIO(memory_limit="1KB").merge(ROWS, str(tmp_path / "d"), strategy="upsert", key_columns=["k", "n"])


def test_a_closed_connection_is_a_typed_error(tmp_path):
    connection, path = duckdb.connect(), str(tmp_path / "d")
    write_dataset(pa.table({"k": ["a", "b"], "n": [1, 2]}), path)
    before = sorted(tmp_path.rglob("*"))
    io, relation = DuckDBDatasetIO(connection), connection.sql("SELECT 'a' AS k, 1::BIGINT AS n")
    connection.close()
    calls = (
        lambda: io.merge(pa.table({"k": ["a"], "n": [1]}), path, strategy="upsert", key_columns=["k", "n"]),
        lambda: io.write_dataset(relation, path),
        lambda: merge(relation, path, "k"),
    )
    for call in calls:
        with pytest.raises(DuckDBError, match="Pass an open connection"):
            call()
    assert sorted(tmp_path.rglob("*")) == before


def test_the_functions_of_maintenance(tmp_path):
    folder, connection = str(tmp_path / "d"), duckdb.connect()
    for _ in range(3):
        write_dataset(ROWS, folder, connection=connection)
    plan = compact_parquet_dataset(folder, target_rows_per_file=100, dry_run=True, connection=connection)
    assert (plan["before_file_count"], plan["dry_run"]) == (3, True)
    assert compact_parquet_dataset(folder, 128)["after_file_count"] == 1
    assert deduplicate_parquet_dataset(folder, "k", ["-n"], connection=connection)["deduplicated_rows"] == 6
    assert optimize_parquet_dataset(folder, ["n"], curve="hilbert", compression="zstd")["curve"] == "hilbert"
    assert read_parquet(folder).num_rows == 3


def test_a_registered_filesystem_serves_its_urls(memory_fs):
    connection = create_duckdb_connection(memory_fs)
    io = DuckDBDatasetIO(connection)
    assert life(io, "memory://lake/d", ROWS) == 2
    assert connection.sql("SELECT count(*) FROM read_parquet('memory://lake/d/*.parquet')").fetchall() == [(3,)]
    connection.execute("COPY (SELECT 'z' AS k, 26 AS n) TO 'memory://lake/source.parquet'")
    assert io.merge("memory://lake/source.parquet", "memory://lake/d", strategy="upsert", key_columns="k").inserted == 1


def test_s3_through_the_filesystem_of_the_connection(s3_server, s3_bucket):
    connection = create_duckdb_connection(s3_server.filesystem())
    io, url = DuckDBDatasetIO(connection), f"s3://{s3_bucket}/d"
    assert life(io, url, ROWS) == 2
    connection.execute(f"COPY (SELECT 'a' AS k, 9 AS n UNION ALL SELECT 'z', 26) TO 's3://{s3_bucket}/source.parquet'")
    source = connection.sql(f"FROM 's3://{s3_bucket}/source.parquet'")
    result = io.merge(source, url, strategy="upsert", key_columns=["k"])
    assert (result.inserted, result.updated) == (1, 1)
    rows = connection.sql(f"SELECT k, n FROM '{url}/*.parquet' ORDER BY k").fetchall()
    assert rows == [("a", 9), ("b", 2), ("c", 3), ("z", 26)]
    assert io.read_parquet(url, filters="n > 3").sort_by("k").to_pylist() == [{"k": "a", "n": 9}, {"k": "z", "n": 26}]


def test_a_filesystem_that_only_duckdb_has_is_not_replaced(memory_fs):
    created, registered = create_duckdb_connection(memory_fs), duckdb.connect()
    registered.register_filesystem(memory_fs)
    for connection in (created.cursor(), registered):
        with pytest.raises(ValueError, match=r"memory:// that DuckDB does not return. Pass it as filesystem="):
            DuckDBDatasetIO(connection).write_dataset(ROWS, "memory://lake/d")
        assert not memory_fs.store
    assert DuckDBDatasetIO(registered, filesystem=memory_fs).write_dataset(ROWS, "memory://lake/d").rows == 3


def test_without_duckdb_the_error_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(DuckDBNotFoundError, match=r"pip install 'duckdb"):
        create_duckdb_connection()


def test_a_script_ends_without_output(tmp_path):
    """DuckDB prints a message if its objects are destroyed after the interpreter ends."""
    script = (
        "import pyarrow as pa\n"
        "from fsspeckit.datasets.duckdb import DuckDBDatasetIO\n"
        f"io, folder = DuckDBDatasetIO(), {str(tmp_path / 'd')!r}\n"
        "io.write_dataset(pa.table({'k': ['a', 'b']}), folder)\n"
        "print(io.merge(pa.table({'k': ['a', 'c']}), folder, strategy='upsert', key_columns='k').total)\n"
        "print(io.read_parquet(folder, filters=\"k > 'a'\").num_rows)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3\n2\n", "")

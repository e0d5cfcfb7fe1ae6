"""Relations as sources: of any connection, with types that DuckDB exports as other types."""

from __future__ import annotations

import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import UnsupportedDataError
from fsspeckit.common.types import same_storage
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.duckdb.failures import DuckDBError
from fsspeckit.datasets.duckdb.relations import relation_reader

IDS = [uuid.UUID(int=n) for n in (1, 2**127, 2**128 - 1)]
TYPES = {
    "uuid": "id",
    "list": "[id, NULL]",
    "array": "[id, id]::UUID[2]",
    "struct": "{'a b': id, 'n': 1}",
    "map": "map {'x': id}",
    "deep": "[{'q': map {1: [id]}}]",
    "json": "'{\"a\": 1}'::JSON",
    "hugeint": "170::HUGEINT",
    "enum": "'b'::ENUM('a', 'b')",
    "zoned": "TIMESTAMPTZ '2024-01-01 12:00:00+02'",
    "nanoseconds": "TIMESTAMP_NS '2024-01-01 00:00:00.123456789'",
    "unsigned": "255::UTINYINT",
    "blob": "'a'::BLOB",
    "decimal": "1.50::DECIMAL(38, 2)",
}
SETTINGS = {
    "views": ["arrow_output_list_view=true", "arrow_output_version='1.5'"],
    "large views": ["arrow_output_list_view=true", "arrow_output_version='1.5'", "arrow_large_buffer_size=true"],
}
ALL = [*SETTINGS["large views"], "arrow_lossless_conversion=true", "produce_arrow_string_view=true"]
NESTED = {
    "numbers": "[n, NULL, n + 1]",
    "texts": "['a text that is longer than twelve ' || n, NULL]",
    "empty": "CASE WHEN n % 2 = 0 THEN [] ELSE [n] END",
    "uuids": "[id, NULL]",
    "json": "[('[' || n || ']')::JSON]",
    "lists": "[[id], NULL, []]",
    "structs": "[{'u': id, 'j': ['{}'::JSON]}, NULL]",
    "struct": "{'l': [n], 'u': id}",
    "map": "map {id: ['x' || n]}",
    "arrays": "[[id], NULL]::UUID[][2]",
    "tuples": "[row(id, [n]), NULL]",
}


@pytest.fixture
def connection():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE ids (id UUID, n INTEGER)")
    connection.executemany("INSERT INTO ids VALUES (?, ?)", [[str(value), n] for n, value in enumerate(IDS)])
    return connection


@pytest.fixture(params=["own", "same"])
def io(request, connection):
    """The engine with a new database, and with the database of the relation."""
    return DuckDBDatasetIO(connection if request.param == "same" else None)


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_a_relation_are_read_back_equal(connection, io, tmp_path, kind):
    relation = connection.sql(f"SELECT id AS k, {TYPES[kind]} AS v FROM ids")
    io.write_dataset(relation, str(tmp_path / "d"))
    back = connection.sql(f"FROM '{tmp_path}/d/*.parquet'")
    expected = "VARCHAR" if kind == "enum" else "DECIMAL(38,0)" if kind == "hugeint" else str(relation.types[1])
    assert str(back.types[1]).replace("UUID[2]", "UUID[]") == expected.replace("UUID[2]", "UUID[]")
    assert [str(row) for row in back.fetchall()] == [str(row) for row in relation.fetchall()] or kind in (
        "array",
        "hugeint",
    )
    result = io.merge(relation, str(tmp_path / "d"), strategy="upsert", key_columns=["k"])
    assert (result.updated, result.unchanged, result.rewritten_files) == (3, 3, [])


@pytest.mark.sweep
@pytest.mark.parametrize("settings", ["all", *(pytest.param(each, marks=pytest.mark.more) for each in SETTINGS)])
@pytest.mark.parametrize("kind", NESTED)
def test_settings_of_the_connection_change_nothing(connection, tmp_path, kind, settings):
    query = f"SELECT n AS k, CASE WHEN n % 3 != 0 THEN {NESTED[kind]} END AS v FROM many ORDER BY n"
    connection.execute("CREATE TABLE many AS SELECT i::INTEGER AS n, md5(i::VARCHAR)::UUID AS id FROM range(3000) t(i)")
    io = DuckDBDatasetIO(connection)
    io.write_dataset(connection.sql(query), str(tmp_path / "usual"))
    for setting in SETTINGS.get(settings, ALL):
        connection.execute(f"SET {setting}")
    relation_reader(connection.sql(query)).read_all().validate(full=True)
    io.write_dataset(connection.sql(query), str(tmp_path / "set"))
    usual, read = (io.read_parquet(str(tmp_path / name)) for name in ("usual", "set"))
    assert same_storage(read["v"].type, usual["v"].type)
    assert read.to_pylist() == usual.to_pylist()
    result = io.merge(connection.sql(query), str(tmp_path / "usual"), strategy="upsert", key_columns=["k"])
    assert (result.unchanged, result.rewritten_files) == (3000, [])


def test_uuids_merge_into_files_that_duckdb_wrote(connection, io, tmp_path):
    (tmp_path / "d").mkdir()
    connection.execute(f"COPY (SELECT id, n, '{{}}'::JSON AS j FROM ids) TO '{tmp_path}/d/a.parquet'")
    schema = pq.read_schema(tmp_path / "d" / "a.parquet")
    assert schema.field("id").type == pa.uuid()
    source = connection.sql("SELECT id, n + 10 AS n, '[1]'::JSON AS j FROM ids WHERE n > 0")
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated) == (0, 2)
    rows = connection.sql(f"SELECT id, n, j FROM '{tmp_path}/d/*.parquet' ORDER BY n").fetchall()
    assert rows == [(IDS[0], 0, "{}"), (IDS[1], 11, "[1]"), (IDS[2], 12, "[1]")]
    [path] = result.rewritten_files
    assert pq.read_schema(path).field("id").type == pa.uuid()


LOSSY = [
    "'12:00:00+02'::TIMETZ",
    "'101'::BIT",
    "[{'a': '1'::BIT}]",
    "99::BIGNUM",
    "row('12:00:00+02'::TIMETZ, 1)",
    "[row(1, '1'::BIT)]",
    "row(99::BIGNUM)",
    "5::VARIANT",
    "{'a': [5::VARIANT]}",
]
GEOMETRIES = ["'POINT(1 1)'::GEOMETRY", "NULL::GEOMETRY('OGC:CRS84')", "[{'a': 'POINT(1 1)'::GEOMETRY}]"]


@pytest.mark.parametrize("value", [*LOSSY, *(GEOMETRIES if duckdb.__version__ >= "2" else [])])
def test_types_that_parquet_cannot_store_are_refused(connection, io, tmp_path, value):
    with pytest.raises(UnsupportedDataError, match=r"column 'v.*Cast it in the query"):
        io.write_dataset(connection.sql(f"SELECT {value} AS v"), str(tmp_path / "d"))
    assert list(tmp_path.iterdir()) == []


def test_a_failing_query_is_a_typed_error(connection, io, tmp_path):
    relation = connection.sql("SELECT v::INTEGER AS v FROM (VALUES ('1'), ('x')) AS t(v)")
    with pytest.raises(UnsupportedDataError, match=r"Could not convert string 'x' .*Correct its query"):
        io.write_dataset(relation, str(tmp_path / "d"))
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_is_interrupted_late(connection):
    reader = relation_reader(connection.sql("SELECT n, md5(n::VARCHAR) AS v FROM range(100_000_000) t(n)"))
    reader.read_next_batch()
    connection.interrupt()
    with pytest.raises(DuckDBError, match=r"Interrupted!. Run it again"):
        for _ in reader:
            pass


@pytest.mark.parametrize("first", ["1::HUGEINT", "1", "uuid()"])
@pytest.mark.parametrize("second", ["2::HUGEINT", "2"])
def test_names_that_differ_only_in_case(connection, io, tmp_path, first, second):
    io.write_dataset(connection.sql(f'SELECT {first} AS a, {second} AS "A"'), str(tmp_path / "d"))
    read = io.read_parquet(str(tmp_path / "d"))
    assert (read.column_names, read["A"].to_pylist()) == (["a", "A"], [2])
    if first != "uuid()":
        assert read["a"].to_pylist() == [1]


def test_relations_that_only_their_connection_can_read(connection, io, tmp_path):
    """Temporary tables, registered views and changes that are not committed yet."""
    connection.execute("CREATE TEMP TABLE hidden AS SELECT 1 AS id, 'x' AS v")
    connection.register("seen", pa.table({"id": pa.array([2], pa.int32()), "v": ["y"]}))
    connection.execute("BEGIN; INSERT INTO hidden VALUES (3, 'z')")
    io.write_dataset(connection.sql("FROM hidden UNION ALL FROM seen"), str(tmp_path / "d"))
    assert sorted(io.read_parquet(str(tmp_path / "d"))["id"].to_pylist()) == [1, 2, 3]


def test_a_relation_runs_once(connection, io, tmp_path):
    connection.execute("CREATE SEQUENCE calls")
    io.write_dataset(connection.sql("SELECT nextval('calls') AS id, 'x' AS v"), str(tmp_path / "d"))
    result = io.merge(
        connection.sql("SELECT nextval('calls') AS id, 'y' AS v"),
        str(tmp_path / "d"),
        strategy="upsert",
        key_columns="id",
    )
    assert (result.inserted, result.total) == (1, 2)
    assert connection.execute("SELECT nextval('calls')").fetchone() == (3,)


ODD = ['a"b', "a.b", "a b", "select", "Ä", "'", "a\\b", ";--", "%s", "$1", "?", "{}", "*"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("type_", ["UUID", "VARCHAR"])
def test_columns_of_any_name(connection, io, tmp_path, name, type_):
    quoted = '"' + name.replace('"', '""') + '"'
    relation = connection.sql(f"SELECT id::{type_} AS {quoted}, n FROM ids")
    io.write_dataset(relation, str(tmp_path / "d"), partition_by=["n"])
    result = io.merge(relation, str(tmp_path / "d"), strategy="upsert", key_columns=[name])
    assert (result.updated, result.unchanged) == (3, 3)
    value = f"'{IDS[0]}'" if type_ == "VARCHAR" else f"X'{IDS[0].hex}'"
    read = io.read_parquet(str(tmp_path / "d"), filters=f"{quoted} = {value}")
    assert (read.num_rows, read.column_names) == (1, [name, "n"])


@pytest.mark.parametrize("name", ["it's", 'say "x"', "a*b", "a?b", "[ab]", "{a,b}", "a b", "100%", "Ü", "$HOME", "a;b"])
def test_folders_of_any_name(connection, io, tmp_path, name):
    folder = str(tmp_path / name)
    decoy = tmp_path / "ab"
    io.write_dataset(connection.table("ids"), str(decoy))
    io.write_dataset(connection.table("ids"), folder, partition_by=["n"])
    source = connection.sql("SELECT * REPLACE (n AS n) FROM ids WHERE n = 1")
    assert io.merge(folder, str(tmp_path / "copy"), strategy="insert", key_columns=["id"]).inserted == 3
    assert io.merge(source, folder, strategy="full_merge", key_columns=["id"]).deleted == 2
    assert io.read_parquet(folder, filters="n = 1").num_rows == 1
    assert io.read_parquet(str(decoy)).num_rows == 3
    assert {
        Path(path).parent.parent for path in io.read_parquet(folder, include_file_path=True)["file_path"].to_pylist()
    } == {Path(folder)}

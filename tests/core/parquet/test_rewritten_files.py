"""A rewrite keeps everything of a file except the rows that it replaces."""

from __future__ import annotations

import datetime as dt

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = 3000


def rows_of_many_kinds() -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "random": rng.random(ROWS),
            "status": pa.array([("open", "paid", None)[i % 3] for i in range(ROWS)]),
            "note": pa.array([f"{i:040d}" for i in rng.permutation(ROWS)]),
            "amount": pa.array([i * 100 for i in range(ROWS)]).cast(pa.decimal128(21, 2)),
        }
    )


def upsert(folder, ids, **options):
    changed = rows_of_many_kinds().take(pa.array(ids)).set_column(1, "random", pa.array([-1.0] * len(ids)))
    return PyarrowDatasetIO(publish="replace").merge(changed, folder, strategy="upsert", key_columns="id", **options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "events").mkdir()
    return tmp_path / "events"


@pytest.mark.parametrize("codec", ["zstd", "none", "gzip", "snappy"])
def test_codec_row_groups_and_metadata_are_kept(folder, codec):
    table = rows_of_many_kinds().replace_schema_metadata({"owner": "sales"})
    fields = [f.with_metadata({"unit": f.name}) for f in table.schema]
    table = table.cast(pa.schema(fields, table.schema.metadata))
    pq.write_table(table, folder / "a.parquet", row_group_size=700, compression=codec)
    before = pq.ParquetFile(folder / "a.parquet")
    upsert(folder, [3, 800, 2999])
    after = pq.ParquetFile(folder / "a.parquet")
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    assert after.metadata.metadata == before.metadata.metadata
    groups = range(before.num_row_groups)
    assert [after.metadata.row_group(i).num_rows for i in groups] == [
        before.metadata.row_group(i).num_rows for i in groups
    ]
    assert after.metadata.row_group(0).column(0).compression == before.metadata.row_group(0).column(0).compression
    assert after.read()["id"].to_pylist() == list(range(ROWS))


def test_encodings_follow_the_input(folder):
    """A useful dictionary is kept, a useless one is removed, and other encodings are kept."""
    options = {"use_dictionary": ["status", "note"], "column_encoding": {"id": "DELTA_BINARY_PACKED"}}
    pq.write_table(rows_of_many_kinds(), folder / "a.parquet", write_page_index=True, **options)
    upsert(folder, [1, 5], compression="snappy")
    group = pq.ParquetFile(folder / "a.parquet").metadata.row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert chunks["status"].has_dictionary_page
    assert not chunks["note"].has_dictionary_page
    assert "DELTA_BINARY_PACKED" in chunks["id"].encodings
    assert chunks["id"].has_column_index


@pytest.mark.parametrize("asked", [{}, {"compression": "zstd"}, {"batch_rows": 64}], ids=str)
def test_statistics_of_dictionary_columns_cover_only_used_values(folder, asked):
    """pyarrow counts all dictionary values as used if there are nulls, and DuckDB answers from these statistics."""
    texts = [None, "m", "a", "z", *["m", "a"] * 2000]
    table = pa.table({"id": np.arange(len(texts)), "state": texts})
    pq.write_table(table, folder / "a.parquet")
    rows = pa.table({"id": [3], "state": ["m"]})
    PyarrowDatasetIO(publish="replace").merge(rows, folder, strategy="update", key_columns="id", **asked)
    assert duckdb.sql(f"select max(state) from '{folder}/*.parquet'").fetchall() == [("m",)]
    meta = pq.read_metadata(folder / "a.parquet")
    assert {meta.row_group(group).column(1).statistics.max for group in range(meta.num_row_groups)} == {"m"}


def test_int96_timestamps_beyond_the_range_of_nanoseconds_are_kept(folder):
    """INT96 has the years 1 to 9999; read as nanoseconds they would become other years."""
    days = [dt.datetime.fromisoformat(f"{day}T00:00Z") for day in ("2020-01-01", "9999-12-31", "0001-01-01")]
    table = pa.table({"id": [1, 2, 3], "at": pa.array(days, pa.timestamp("us", "UTC")), "v": [1, 2, 3]})
    pq.write_table(table, folder / "a.parquet", use_deprecated_int96_timestamps=True)
    io = PyarrowDatasetIO(publish="replace")
    io.merge(table.slice(0, 1).set_column(2, "v", [[7]]), folder, strategy="update", key_columns="id")
    assert io.read_parquet(folder)["at"].to_pylist() == days
    assert duckdb.sql(f'select "at" from "{folder}/*.parquet" order by id').fetchall() == [
        (day.replace(tzinfo=None),) for day in days
    ]
    assert pq.ParquetFile(folder / "a.parquet").schema.column(1).physical_type == "INT96"

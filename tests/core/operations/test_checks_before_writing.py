"""Invalid input raises a typed error before anything is created."""

from __future__ import annotations

import fsspec
import pyarrow as pa
import pytest

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

INTERVAL = pa.array([(1, 2, 3)], pa.month_day_nano_interval())


@pytest.fixture
def io():
    return PyarrowDatasetIO()


@pytest.mark.parametrize(
    "table",
    [pa.table([[1], [2]], names=["id", "id"]), pa.table({"id": [1], "span": INTERVAL})],
    ids=["twice", "interval"],
)
def test_columns_that_parquet_cannot_store_are_refused(io, tmp_path, table):
    with pytest.raises(SchemaMismatchError):
        io.write_dataset(table, tmp_path / "t")
    with pytest.raises(SchemaMismatchError):
        io.merge(table, tmp_path / "t", strategy="upsert", key_columns="id", dry_run=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_value_that_is_not_of_the_source_type_has_no_source_rows(io, tmp_path):
    io.write_dataset(pa.table({"id": [1, 2], "part": ["300", "7"], "v": [1, 2]}), tmp_path / "t", partition_by="part")
    rows = pa.table({"id": [2, 3], "part": pa.array([7, 7], pa.int8()), "v": [20, 30]})
    result = io.merge(rows, tmp_path / "t", strategy="upsert", key_columns="id")
    assert result.stats() == {"inserted": 1, "updated": 1, "deleted": 0, "total": 3}


def test_a_url_of_another_storage_than_the_filesystem_is_refused(tmp_path):
    io = PyarrowDatasetIO(filesystem=fsspec.filesystem("memory"))
    with pytest.raises(ValueError, match="Leave out one"):
        io.write_dataset(pa.table({"id": [1]}), f"file://{tmp_path}/t")


def test_one_column_may_be_given_as_a_string(io, tmp_path):
    io.write_dataset(pa.table({"id": [1], "v": [2]}), tmp_path / "t")
    assert io.read_parquet(tmp_path / "t", columns="id").column_names == ["id"]


def test_a_limit_must_be_a_number(io, tmp_path):
    with pytest.raises(ValueError, match="max_rows_per_file"):
        io.write_dataset(pa.table({"id": [1]}), tmp_path / "t", max_rows_per_file=None)


def test_credentials_in_a_url_are_not_in_messages(io):
    with pytest.raises(FileNotFoundError) as caught:
        io.read_parquet("memory://user:secret@nowhere/at-all")
    assert "secret" not in str(caught.value)

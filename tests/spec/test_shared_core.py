"""The merge function and the shared functions of `core.merge` say the same about keys, schemas and counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit import Dataset
from fsspeckit.common import schema
from fsspeckit.core.merge import compute_merge_stats, normalize_keys, unify_schemas, validate_keys_and_schema
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, merge_parquet_dataset_duckdb
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO, merge_parquet_dataset_pyarrow

TARGET = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = str(tmp_path / "target")
    PyarrowDatasetIO().write_dataset(TARGET, path)
    return path


@pytest.mark.scenario("UP-14", "UP-15")
@pytest.mark.parametrize("keys", ["id", ["id"], ("id",)])
def test_keys_are_normalised_alike(target: str, keys: str | list[str]) -> None:
    assert normalize_keys(keys) == ["id"]
    assert merge_parquet_dataset_pyarrow(TARGET, target, keys)["updated"] == 3


@pytest.mark.scenario("UP-14", "UP-16")
@pytest.mark.parametrize("keys", ["nope", [], ["id", "id"], ["id", "nope"]])
def test_bad_keys_are_refused_alike(target: str, keys: str | list[str]) -> None:
    with pytest.raises(ValueError) as shared:  # noqa: PT011 - the message is compared below
        validate_keys_and_schema(TARGET.schema, TARGET.schema, keys)
    with pytest.raises(type(shared.value)) as merged:
        merge_parquet_dataset_pyarrow(TARGET, target, keys)
    assert str(merged.value) in (str(shared.value), f"merge of {target}: {shared.value}")


@pytest.mark.scenario("UP-14", "UP-35")
@pytest.mark.parametrize(
    "source",
    [
        pa.table({"id": [1], "name": [1]}),
        pa.table({"id": ["1"], "name": ["a"]}),
        pa.table({"id": [1]}),
        pa.table({"id": [1], "name": ["a"], "more": [1]}),
    ],
    ids=["value type", "key type", "missing column", "new column"],
)
def test_schemas_are_refused_alike(target: str, source: pa.Table) -> None:
    with pytest.raises(ValueError) as shared:  # noqa: PT011 - compared below
        validate_keys_and_schema(source.schema, TARGET.schema, "id")
    with pytest.raises(ValueError) as merged:  # noqa: PT011 - compared below
        merge_parquet_dataset_pyarrow(source, target, "id")
    assert type(merged.value) is type(shared.value)


@pytest.mark.scenario("UP-14", "UP-36")
def test_counts_are_the_shared_statistics(target: str) -> None:
    source = pa.table({"id": [2, 3, 4, 5], "name": ["B", "C", "D", "E"]})
    stats = merge_parquet_dataset_pyarrow(source, target, "id", "full_merge")
    assert stats == compute_merge_stats(previous_total=3, inserted=2, updated=2, deleted=1)


@pytest.mark.scenario("UP-34")
def test_functions_of_the_specification_widen_and_all_other_faces_keep_types(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    PyarrowDatasetIO().write_dataset(pa.table({"id": pa.array([1], pa.int8())}), path)

    def stored_after(merge: Callable[..., Any], type_: pa.DataType, **options: Any) -> pa.DataType:
        merge(pa.table({"id": pa.array([2, 4], type_)}), path, **options)
        return PyarrowDatasetIO().read_parquet(path).schema.field("id").type

    for io in (PyarrowDatasetIO(), DuckDBDatasetIO()):
        assert stored_after(io.merge, pa.int64(), key_columns="id") == pa.int8()
    assert stored_after(fsspeckit.merge, pa.int64(), key_columns="id", engine="pyarrow") == pa.int8()
    dataset = Dataset(path, key="id", engine="pyarrow")
    assert stored_after(lambda rows, _: dataset.merge(rows), pa.int64()) == pa.int8()
    assert stored_after(merge_parquet_dataset_duckdb, pa.int16(), key_columns="id") == pa.int16()
    assert stored_after(merge_parquet_dataset_pyarrow, pa.int64(), key_columns="id") == pa.int64()


@pytest.mark.scenario("UP-33", "UP-34")
def test_a_merge_has_the_types_of_the_shared_unification(target: str) -> None:
    source = pa.table({"id": pa.array([2, 4], pa.int32()), "name": ["B", "D"]})
    merge_parquet_dataset_pyarrow(source, target, "id")
    merged = PyarrowDatasetIO().read_parquet(target)
    assert merged.schema == unify_schemas([TARGET.schema, source.schema])
    assert unify_schemas is schema.unify_schemas

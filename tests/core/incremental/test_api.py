"""The API section of the specification of `fsspeckit.core.incremental`, as its callers use it."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import incremental
from fsspeckit.core.planning import merge_request

# Parameters in the order of the specification; "=" marks those with a default.
FUNCTIONS = {
    "merge": [
        "data", "path", "strategy", "key_columns", "partition_columns=", "filesystem=", "compression=",
        "max_rows_per_file=", "row_group_size=",
    ],
    "list_dataset_files": ["dataset_path", "filesystem="],
    "parse_hive_partition_path": ["file_path", "partition_columns="],
    "confirm_affected_files": ["candidate_files", "key_columns", "source_keys", "filesystem="],
    "validate_no_null_keys": ["source_table", "key_columns"],
    "validate_partition_column_immutability": ["source_table", "target_table", "key_columns", "partition_columns"],
    "plan_incremental_rewrite": ["dataset_path", "source_keys", "key_columns", "filesystem=", "partition_schema="],
}  # fmt: skip
METHODS = {
    ("ParquetMetadataAnalyzer", "analyze_dataset_files"): ["dataset_path", "filesystem="],
    ("PartitionPruner", "identify_candidate_files"): [
        "file_metadata", "key_columns", "source_keys", "partition_schema=",
    ],
    ("ConservativeMembershipChecker", "file_might_contain_keys"): ["file_metadata", "key_columns", "source_keys"],
    ("IncrementalFileManager", "create_staging_directory"): ["base_path"],
    ("IncrementalFileManager", "atomic_replace_files"): ["source_files", "target_files", "filesystem="],
    ("IncrementalFileManager", "cleanup_staging_files"): [],
}  # fmt: skip
FIELDS = {
    "MergeFileMetadata": ["path", "row_count", "operation", "size_bytes"],
    "MergeResult": [
        "strategy", "source_count", "target_count_before", "target_count_after", "inserted", "updated", "deleted",
        "files", "rewritten_files", "inserted_files", "preserved_files",
    ],
    "ParquetFileMetadata": ["path", "row_group_count", "total_rows", "column_stats", "partition_values"],
    "IncrementalRewritePlan": ["affected_files", "unaffected_files", "new_files", "affected_rows"],
}  # fmt: skip


DEFAULTS = {"compression": "snappy", "max_rows_per_file": 5_000_000, "row_group_size": 500_000}


def parameters(function: Any) -> list[str]:
    """Names of the parameters, with "=" where there is a default."""
    found = inspect.signature(function).parameters.values()
    return [p.name + ("=" if p.default is not p.empty else "") for p in found if p.name != "self"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_parameters_of_the_specification(name: str) -> None:
    assert parameters(getattr(incremental, name))[: len(FUNCTIONS[name])] == FUNCTIONS[name]


def test_merge_has_the_defaults_of_the_specification() -> None:
    found = inspect.signature(incremental.merge).parameters
    assert {name: found[name].default for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(("owner", "name"), METHODS)
def test_methods_take_the_parameters_of_the_specification(owner: str, name: str) -> None:
    method = getattr(getattr(incremental, owner), name)
    assert parameters(method)[: len(METHODS[owner, name])] == METHODS[owner, name]


@pytest.mark.parametrize("name", FIELDS)
def test_dataclasses_start_with_the_fields_of_the_specification(name: str) -> None:
    fields = [field.name for field in dataclasses.fields(getattr(incremental, name))]
    assert fields[: len(FIELDS[name])] == FIELDS[name]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two days of two ids each."""
    for day, ids in (("1", [1, 2]), ("2", [3, 4])):
        (tmp_path / "d" / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": ids, "v": ["old", "old"]}), tmp_path / "d" / f"day={day}" / "a.parquet")
    return tmp_path / "d"


@pytest.mark.scenario("IO-13", "IO-14", "IO-16", "UP-49")
def test_merge_returns_metadata_of_rewritten_and_inserted_files(dataset: Path) -> None:
    source = pa.table({"id": [1, 9], "v": ["new", "new"], "day": ["1", "2"]})
    result = incremental.merge(source, str(dataset), "upsert", ["id"], partition_columns=["day"])
    assert (result.strategy, result.source_count) == ("upsert", 2)
    assert (result.target_count_before, result.target_count_after) == (4, 5)
    for entry in result.files:
        assert entry.size_bytes == Path(entry.path).stat().st_size
        assert entry.row_count == pq.read_metadata(entry.path).num_rows
    kinds = {entry.operation for entry in result.files}
    assert {"rewritten", "inserted"} <= kinds <= {"rewritten", "inserted", "preserved"}
    assert len(result.rewritten_files) == len(result.inserted_files) == len(result.preserved_files) == 1


@pytest.mark.scenario("UP-14", "UP-36")
def test_core_merge_has_the_shared_names() -> None:
    assert merge_request.normalize_keys("id") == ["id"]
    stats = merge_request.compute_merge_stats(previous_total=10, inserted=5, updated=2, deleted=3)
    assert stats == {"inserted": 5, "updated": 2, "deleted": 3, "total": 12}
    schema = pa.schema({"id": pa.int64()})
    with pytest.raises(ValueError, match="nowhere"):
        merge_request.validate_keys_and_schema(schema, schema, ["nowhere"])

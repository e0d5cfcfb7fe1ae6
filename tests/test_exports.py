"""The public face: which names exist, where they live, that they are documented, and that importing them is cheap."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fsspeckit

SOURCE = Path(fsspeckit.__file__).parent
MODULES = sorted(module.name for module in pkgutil.walk_packages(fsspeckit.__path__, "fsspeckit."))
# Modules of integrations need a scheduler or dbt, which have an environment of their own: `make test-integrations`.
MODULES = [name for name in MODULES if not name.startswith("fsspeckit.integrations.")]


def listed(names: dict[str, str]) -> dict[str, list[str]]:
    return {module: text.split() for module, text in names.items()}


# The whole public face of these modules: a name is added or removed here on purpose.
LOCKED = listed(
    {
        "fsspeckit": (
            "AlreadyCommittedError CatalogError CheckFailedError ColumnNameError CommitConflictError DamagedFileError "
            "Dataset DatasetExistsError DatasetLostError DatasetNotFoundError DocumentError ExpressionError "
            "FilterError FsspeckitError KeyColumnError NestedDatasetError OutOfMemoryError OutcomeUnknownError "
            "PartitionError SchemaMismatchError SourceFileError StorageError StorageFullError StorageOptionError "
            "StoragePermissionError TableFormatError TextFiles UnsupportedDataError VersionNotFoundError adopt "
            "apply_changes changes compact deduplicate delete diff forget history keep_history merge optimize "
            "read_parquet recover restore update vacuum write_dataset"
        ),
        "fsspeckit.datasets.duckdb": (
            "DuckDBDatasetIO compact_parquet_dataset create_duckdb_connection deduplicate_parquet_dataset merge "
            "merge_parquet_dataset_duckdb optimize_parquet_dataset read_parquet write_dataset"
        ),
        "fsspeckit.datasets.pyarrow": (
            "PyarrowDatasetIO cast_schema compact_parquet_dataset_pyarrow convert_large_types_to_normal "
            "deduplicate_parquet_dataset_pyarrow merge_parquet_dataset_pyarrow opt_dtype "
            "optimize_parquet_dataset_pyarrow unify_schemas"
        ),
        "fsspeckit.datasets.spark": (
            "ExecutorSetupError SparkDatasetIO SparkJobCancelledError SparkJobError merge_parquet_dataset_spark "
            "register_data_source"
        ),
        "fsspeckit.pipeline": (
            "LineageListener Pipeline PipelineFileError PipelinePreview PipelineResult StepFailedError StepPreview "
            "StepRecord"
        ),
    }
)

# The names that the specification fixes.
FIXED = listed(
    {
        "fsspeckit.common.schema": "cast_schema convert_large_types_to_normal opt_dtype unify_schemas",
        "fsspeckit.core.merge": "compute_merge_stats normalize_keys validate_keys_and_schema",
        "fsspeckit.core.incremental": (
            "ConservativeMembershipChecker IncrementalFileManager IncrementalRewritePlan MergeFileMetadata MergeResult "
            "ParquetFileMetadata ParquetMetadataAnalyzer PartitionPruner confirm_affected_files list_dataset_files "
            "merge parse_hive_partition_path plan_incremental_rewrite validate_no_null_keys "
            "validate_partition_column_immutability"
        ),
    }
)
PUBLIC = [(module, name) for module, names in {**FIXED, **LOCKED}.items() for name in names]


@pytest.mark.parametrize("module", LOCKED)
def test_public_names_are_locked_and_sorted(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__ == LOCKED[module]
    assert LOCKED[module] == sorted(LOCKED[module])
    assert set(LOCKED[module]) <= set(dir(found))


def test_public_names_exist_and_are_documented() -> None:
    public = {(module, name): getattr(importlib.import_module(module), name) for module, name in PUBLIC}
    assert [name for name, found in public.items() if not inspect.getdoc(found)] == []


def test_docstring_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = {module: doctest.testmod(importlib.import_module(module), optionflags=flags) for module in MODULES}
    assert [module for module, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) > 200


def test_import_is_light() -> None:
    heavy = {"duckdb", "pandas", "polars", "pyarrow.dataset", "pyspark", "rich", "s3fs"}
    code = "import fsspeckit, fsspeckit.datasets.duckdb, fsspeckit.datasets.pyarrow, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert heavy & set(loaded) == set()


@pytest.mark.scenario("UP-43")
def test_the_engine_has_no_schema_module() -> None:
    assert importlib.util.find_spec("fsspeckit.datasets.pyarrow.schema") is None


@pytest.mark.scenario("UP-57")
@pytest.mark.parametrize("name", FIXED["fsspeckit.common.schema"])
def test_schema_functions_are_re_exported_not_rewritten(name: str) -> None:
    engine, common = (
        importlib.import_module("fsspeckit.datasets.pyarrow"),
        importlib.import_module("fsspeckit.common.schema"),
    )
    assert getattr(engine, name) is getattr(common, name)


@pytest.mark.scenario("UP-44", "UP-57")
@pytest.mark.parametrize("name", FIXED["fsspeckit.common.schema"])
def test_schema_functions_are_written_once(name: str) -> None:
    assert [path for path in definitions(name) if "common" not in path.parts] == []


@pytest.mark.scenario("UP-58")
def test_core_takes_its_schema_functions_from_common() -> None:
    imported = {path: imports(path) for path in (SOURCE / "core").rglob("*.py")}
    assert [path for path, names in imported.items() if "fsspeckit.datasets" in names] == []
    assert any("fsspeckit.common.schema" in names for path, names in imported.items() if path.parent.name == "ext")


def definitions(name: str) -> list[Path]:
    """The files that define a function of that name at the top level."""
    return [
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]


def imports(path: Path) -> set[str]:
    """The modules a file imports, with every parent package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            parts = name.split(".")
            found |= {".".join(parts[: i + 1]) for i in range(len(parts))}
    return found

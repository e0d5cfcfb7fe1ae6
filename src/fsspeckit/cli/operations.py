"""Call the operations that plans save, and tell whether they change the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.cli.options import WITHOUT_ENGINE
from fsspeckit.common.choices import DEFAULT_ENGINE

if TYPE_CHECKING:
    from fsspeckit.cli.command import Run
    from fsspeckit.datasets.io import DatasetIO

_METHODS = {
    "write": "write_dataset",
    "compact": "compact_parquet_dataset",
    "optimize": "optimize_parquet_dataset",
    "deduplicate": "deduplicate_parquet_dataset",
}
"""The methods of `DatasetIO` that have another name than the operation."""


def engine_of(run: Run, operation: str, otherwise: str = DEFAULT_ENGINE) -> str:
    """Return the engine of an operation."""
    return "pyarrow" if operation in WITHOUT_ENGINE else run.chosen_engine(otherwise)


def operation_io(run: Run, operation: str, otherwise: str = DEFAULT_ENGINE) -> DatasetIO:
    """Return the `DatasetIO` that runs an operation."""
    from fsspeckit.api import dataset_io

    if operation in WITHOUT_ENGINE:
        return dataset_io("pyarrow", storage_options=run.options())
    return run.io(otherwise)


def call_operation(io: DatasetIO, operation: str, arguments: tuple[Any, ...], progress: Any, **options: Any) -> Any:
    """Call the method of an operation with its source, if it has one, and its dataset."""
    reported = {} if operation in ("restore", "vacuum") else {"progress": progress}  # these read no rows
    return getattr(io, _METHODS.get(operation, operation))(*arguments, **reported, **options)


def is_noop(result: Any) -> bool:
    """Return whether an operation did not change the dataset, or its plan would not."""
    from fsspeckit.core.operations.versions import RestoreResult, VacuumResult
    from fsspeckit.core.results import MaintenanceResult, MergePlan, WriteResult

    match result:
        case MergePlan():
            return all(entry.action == "keep" for entry in result.entries)
        case WriteResult():
            return not (result.files or result.deleted_files or result.rewritten_files)
        case MaintenanceResult():
            return not result.compacted_file_count
        case RestoreResult():
            return not (result.restored_files or result.removed_files)
        case VacuumResult():
            return not result.removed_files
    return result.commit_seq is None

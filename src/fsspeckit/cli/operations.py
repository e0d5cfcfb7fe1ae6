"""Call the operations that plans save, and tell whether they change the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsspeckit.datasets.io import DatasetIO

_METHODS = {
    "write": "write_dataset",
    "compact": "compact_parquet_dataset",
    "optimize": "optimize_parquet_dataset",
    "deduplicate": "deduplicate_parquet_dataset",
}
"""The methods of `DatasetIO` that have another name than the operation."""


def call_operation(io: DatasetIO, operation: str, arguments: tuple[Any, ...], progress: Any, **options: Any) -> Any:
    """Call the method of an operation with its source, if it has one, and its dataset."""
    reported = {} if operation == "restore" else {"progress": progress}  # a restore reads no rows
    return getattr(io, _METHODS.get(operation, operation))(*arguments, **reported, **options)


def is_noop(result: Any) -> bool:
    """Return whether an operation did not change the dataset, or its plan would not."""
    from fsspeckit.core.operations.versions import RestoreResult
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
    return result.commit_seq is None

"""Write, merge and maintain plain Parquet dataset folders on any fsspec storage, without a table format.

Names are loaded when they are first used, so that `import fsspeckit` and the command line's help cost next to nothing.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsspeckit.api import (
        adopt,
        apply_changes,
        changes,
        compact,
        deduplicate,
        delete,
        diff,
        forget,
        history,
        keep_history,
        merge,
        optimize,
        read_parquet,
        recover,
        restore,
        update,
        vacuum,
        write_dataset,
    )
    from fsspeckit.common.errors import (
        AlreadyCommittedError,
        CatalogError,
        CheckFailedError,
        ColumnNameError,
        CommitConflictError,
        DamagedFileError,
        DatasetExistsError,
        DatasetLostError,
        DatasetNotFoundError,
        DocumentError,
        ExpressionError,
        FilterError,
        FsspeckitError,
        KeyColumnError,
        NestedDatasetError,
        OutcomeUnknownError,
        OutOfMemoryError,
        PartitionError,
        SchemaMismatchError,
        SourceFileError,
        StorageError,
        StorageFullError,
        StorageOptionError,
        StoragePermissionError,
        TableFormatError,
        UnsupportedDataError,
        VersionNotFoundError,
    )
    from fsspeckit.core.dataset.text_source import TextFiles
    from fsspeckit.handle import Dataset

__version__ = "0.1.0"

__all__ = [
    "AlreadyCommittedError",
    "CatalogError",
    "CheckFailedError",
    "ColumnNameError",
    "CommitConflictError",
    "DamagedFileError",
    "Dataset",
    "DatasetExistsError",
    "DatasetLostError",
    "DatasetNotFoundError",
    "DocumentError",
    "ExpressionError",
    "FilterError",
    "FsspeckitError",
    "KeyColumnError",
    "NestedDatasetError",
    "OutOfMemoryError",
    "OutcomeUnknownError",
    "PartitionError",
    "SchemaMismatchError",
    "SourceFileError",
    "StorageError",
    "StorageFullError",
    "StorageOptionError",
    "StoragePermissionError",
    "TableFormatError",
    "TextFiles",
    "UnsupportedDataError",
    "VersionNotFoundError",
    "adopt",
    "apply_changes",
    "changes",
    "compact",
    "deduplicate",
    "delete",
    "diff",
    "forget",
    "history",
    "keep_history",
    "merge",
    "optimize",
    "read_parquet",
    "recover",
    "restore",
    "update",
    "vacuum",
    "write_dataset",
]

# fsspec takes every variable whose name begins with FSSPEC for its own and warns of those that it does not know.
warnings.filterwarnings("ignore", message="Ignoring environment variable FSSPECKIT_")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"Dataset": "fsspeckit.handle", "TextFiles": "fsspeckit.core.dataset.text_source"}
    home = homes.get(name, "fsspeckit.common.errors" if name.endswith("Error") else "fsspeckit.api")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

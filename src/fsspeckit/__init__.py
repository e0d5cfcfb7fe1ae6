"""Write, merge and maintain plain Parquet dataset folders on any fsspec storage, without a table format."""

from fsspeckit.api import compact, deduplicate, merge, optimize, read_parquet, recover, write_dataset
from fsspeckit.common.errors import (
    CommitConflictError,
    DamagedFileError,
    DatasetNotFoundError,
    FilterError,
    FsspeckitError,
    KeyColumnError,
    OutcomeUnknownError,
    PartitionError,
    SchemaMismatchError,
    StorageError,
    TableFormatError,
    UnsupportedDataError,
)

__version__ = "0.1.0"

__all__ = [
    "CommitConflictError",
    "DamagedFileError",
    "DatasetNotFoundError",
    "FilterError",
    "FsspeckitError",
    "KeyColumnError",
    "OutcomeUnknownError",
    "PartitionError",
    "SchemaMismatchError",
    "StorageError",
    "TableFormatError",
    "UnsupportedDataError",
    "compact",
    "deduplicate",
    "merge",
    "optimize",
    "read_parquet",
    "recover",
    "write_dataset",
]

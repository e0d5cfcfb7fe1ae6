"""The exceptions of fsspeckit, and nothing else.

    FsspeckitError
    ├── DocumentError         ValueError         a plan or report file that is not what it should be
    ├── FilterError           ValueError         a filter that is not one predicate over the columns
    │   └── ExpressionError                      a condition or value outside the expression language
    ├── KeyColumnError        ValueError         missing, null or duplicate keys
    ├── PartitionError        ValueError         a partition move, a bad value, a layout in conflict
    ├── SchemaMismatchError   pa.ArrowInvalid, pa.ArrowTypeError (so ValueError and TypeError too)
    ├── SourceFileError       pa.ArrowInvalid (so ValueError too): a csv or json file that cannot be read unchanged
    ├── UnsupportedDataError  TypeError          a source that is not tabular data
    ├── StorageOptionError    ValueError         a URL or storage options that a filesystem refuses
    ├── TableFormatError      ValueError         the folder belongs to Delta, Iceberg or Hudi
    ├── NestedDatasetError    ValueError         the path is inside another dataset, or contains one
    ├── DatasetNotFoundError  FileNotFoundError  no such dataset, or no file left after a filter
    ├── DamagedFileError      OSError            a file that cannot be read as Parquet
    ├── StorageError          OSError            trouble with the storage; path and operation in the message
    │   └── OutcomeUnknownError                  it failed so badly that nobody can say whether the commit took place
    ├── CommitConflictError   RuntimeError       another writer changed the dataset first
    ├── AlreadyCommittedError RuntimeError       an operation was committed before under the same idempotency key
    └── CheckFailedError      ValueError         the dataset would not be, or is not, what a check demands

Plain bad arguments (an unknown strategy, a threshold of zero) raise ``ValueError``. Every message ends with what
to do next.
"""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.common.text import printable, scrub


class FsspeckitError(Exception):
    """Root of every error that fsspeckit raises on its own account.

    Names in its message may hold control characters, and URLs may hold passwords; its text has neither.
    """

    def __str__(self) -> str:
        return printable(scrub(super().__str__()))


class DocumentError(FsspeckitError, ValueError):
    """A file that fsspeckit wrote, such as a plan, is damaged or was changed; the message names the place in it."""


class FilterError(FsspeckitError, ValueError):
    """A filter is not one predicate over the columns of the dataset."""


class ExpressionError(FilterError):
    """A condition or a computed value is not in the expression language, or cannot be computed."""


class KeyColumnError(FsspeckitError, ValueError):
    """Key columns are missing, hold nulls, or are not unique in the source."""


class PartitionError(FsspeckitError, ValueError):
    """A partition value is unusable, a key would move, or layouts disagree."""


class SchemaMismatchError(FsspeckitError, pa.ArrowInvalid, pa.ArrowTypeError):  # type: ignore[misc]
    """Source and target have no lossless common schema."""


class SourceFileError(FsspeckitError, pa.ArrowInvalid):  # type: ignore[misc]
    """A csv or json file cannot be read without changing a value; the message names the place in the file."""


class UnsupportedDataError(FsspeckitError, TypeError):
    """The given source is not something that holds Arrow data."""


class StorageOptionError(FsspeckitError, ValueError):
    """A filesystem refuses its URL or its storage options; the message names options, never their values."""


class TableFormatError(FsspeckitError, ValueError):
    """The folder is managed by a table format; changing files below it would corrupt the table."""


class NestedDatasetError(FsspeckitError, ValueError):
    """The path is inside another dataset, or contains other datasets; a file would belong to two journals."""


class DatasetNotFoundError(FsspeckitError, FileNotFoundError):
    """No dataset, or no matching data file, at the given path."""


class DamagedFileError(FsspeckitError, OSError):
    """A data file is empty, truncated or otherwise unreadable."""


class StorageError(FsspeckitError, OSError):
    """The storage failed; the message names the operation and the path."""


class OutcomeUnknownError(StorageError):
    """The storage failed so badly that nobody can say now whether the commit took place."""


class CommitConflictError(FsspeckitError, RuntimeError):
    """Another writer changed the dataset between our snapshot and our commit; nothing was changed by us."""


class AlreadyCommittedError(FsspeckitError, RuntimeError):
    """An operation was committed before under the same idempotency key; nothing was changed now."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


class CheckFailedError(FsspeckitError, ValueError):
    """Rows are not what a check demands; what was about to be committed was not."""

"""The exceptions of fsspeckit.

    FsspeckitError
    ├── DocumentError         ValueError         a plan or report file is damaged or was changed
    ├── FilterError           ValueError         a filter is not one predicate over the columns
    │   └── ExpressionError                      a condition or value is not in the expression language
    ├── KeyColumnError        pa.ArrowInvalid (so ValueError too): missing, null or duplicate keys
    ├── PartitionError        ValueError         a key would move, an invalid partition value, different layouts
    ├── SchemaMismatchError   pa.ArrowInvalid, pa.ArrowTypeError (so ValueError and TypeError too)
    │   └── ColumnNameError   KeyColumnError     an argument names a column that does not exist, or must not be named
    ├── SourceFileError       pa.ArrowInvalid (so ValueError too): a csv, json or Arrow source cannot be read
    ├── UnsupportedDataError  TypeError          a source is not tabular data, or pyarrow cannot read the data of a file
    │   └── OldCalendarError                     a file has dates that an old Spark wrote in another calendar
    ├── StorageOptionError    ValueError         a filesystem refuses its URL or storage options
    ├── TableFormatError      ValueError         the folder belongs to another program, such as Delta
    ├── NestedDatasetError    ValueError         the path is inside another dataset, or contains one
    ├── DatasetNotFoundError  FileNotFoundError  no such dataset, or no file matches a filter
    ├── VersionNotFoundError  LookupError        there is no such version, or it is no longer kept
    ├── DatasetExistsError    FileExistsError    a write with mode="error" found a dataset
    ├── DamagedFileError      OSError            a file cannot be read as Parquet
    ├── StorageError          OSError            the storage failed; the message names operation and path
    │   ├── StoragePermissionError PermissionError  the storage does not allow the operation
    │   ├── StorageFullError                     a disk, a quota or the limit of file sizes is reached
    │   └── OutcomeUnknownError                  it is unknown whether the commit took place
    ├── OutOfMemoryError      MemoryError        the work needs more memory than the process gets
    ├── CatalogError          RuntimeError       a catalog refuses a table, or has another one with its name
    ├── DatasetLostError      RuntimeError       the journal names rows whose files another program removed
    ├── CommitConflictError   RuntimeError       another writer changed the dataset first
    ├── AlreadyCommittedError RuntimeError       the idempotency key is already committed
    ├── CheckFailedError      ValueError         the rows do not pass a check
    └── VersionTooOldError    NotImplementedError  a feature needs a newer version of a package

Invalid arguments (an unknown strategy, a threshold of zero) raise ``ValueError``. Every message ends with the action to
take.
"""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.common.text import printable, scrub


class FsspeckitError(Exception):
    """Base class of the errors of fsspeckit.

    `str(error)` escapes control characters, which names in a message may contain, and hides passwords in URLs;
    `error.args` does not.

    Attributes:
        wrong_call: The call is wrong: it names what does not exist, and fails each time. Otherwise the work failed. The
            command line exits with 2 or 1.
    """

    wrong_call: bool = False

    def __str__(self) -> str:
        return printable(scrub(super().__str__()))

    @property
    def docs(self) -> str:
        """The section of the documentation that has the cause and the action."""
        return f"docs/errors.md#{type(self).__name__.lower()}"


class DocumentError(FsspeckitError, ValueError):
    """A document that fsspeckit wrote, such as a plan, is damaged or was changed; the message names the position."""

    wrong_call = True


class FilterError(FsspeckitError, ValueError):
    """A filter is not one predicate over the columns of the dataset."""


class ExpressionError(FilterError):
    """A condition or a computed value is not in the expression language, or cannot be computed."""

    wrong_call = True


class KeyColumnError(FsspeckitError, pa.ArrowInvalid):  # type: ignore[misc]
    """Key columns are missing, contain nulls, or are not unique in the source."""


class PartitionError(FsspeckitError, ValueError):
    """A partition value is invalid, a key would move to another partition, or layouts differ."""


class SchemaMismatchError(FsspeckitError, pa.ArrowInvalid, pa.ArrowTypeError):  # type: ignore[misc]
    """Source and target have no lossless common schema."""


class ColumnNameError(KeyColumnError, SchemaMismatchError):
    """An argument names a column that does not exist, that it must not name, or twice. No row was read."""

    wrong_call = True


class SourceFileError(FsspeckitError, pa.ArrowInvalid):  # type: ignore[misc]
    """A csv, json or Arrow source cannot be read without changing a value; the message names the position."""


class UnsupportedDataError(FsspeckitError, TypeError):
    """The source does not provide Arrow data, or pyarrow cannot read a file that is not damaged."""


class OldCalendarError(UnsupportedDataError):
    """A file of an old Spark has dates before 1582 or times before 1900, which programs read as other days."""


class StorageOptionError(FsspeckitError, ValueError):
    """A filesystem refuses its URL or its storage options; the message names options, never their values."""

    wrong_call = True


class TableFormatError(FsspeckitError, ValueError):
    """The folder belongs to a table format or a stream: its files are not its rows, and a change would corrupt it."""


class NestedDatasetError(FsspeckitError, ValueError):
    """The path is inside another dataset, or contains other datasets; a file would belong to two journals."""


class DatasetNotFoundError(FsspeckitError, FileNotFoundError):
    """No dataset, or no matching data file, at the given path."""


class VersionNotFoundError(FsspeckitError, LookupError):
    """A version of a dataset does not exist, was never kept, or is no longer kept."""

    wrong_call = True


class DatasetExistsError(FsspeckitError, FileExistsError):
    """There is already a dataset at the given path."""


class DamagedFileError(FsspeckitError, OSError):
    """A data file is empty, truncated or otherwise unreadable."""


class StorageError(FsspeckitError, OSError):
    """The storage failed; the message names the operation and the path."""


class StoragePermissionError(StorageError, PermissionError):
    """The storage does not allow the operation; the message names the operation and the path."""


class StorageFullError(StorageError):
    """A disk is full, or a quota or the limit of file sizes is reached; the message names operation and path."""


class OutOfMemoryError(FsspeckitError, MemoryError):
    """The work needs more memory than the process gets; the message names the operation and the path."""


class OutcomeUnknownError(StorageError):
    """The storage failed, and it is unknown whether the commit took place; recovery determines the outcome."""


class CatalogError(FsspeckitError, RuntimeError):
    """A catalog cannot be reached, refuses a table, or has another table with its name."""


class DatasetLostError(FsspeckitError, RuntimeError):
    """The journal says that rows were loaded, but another program removed their files; nothing was changed."""


class CommitConflictError(FsspeckitError, RuntimeError):
    """Another writer changed the dataset between snapshot and commit; this operation changed nothing."""


class AlreadyCommittedError(FsspeckitError, RuntimeError):
    """An operation with the same idempotency key is already committed; this operation changed nothing."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


class CheckFailedError(FsspeckitError, ValueError):
    """The rows do not pass a check; nothing was committed."""


class VersionTooOldError(FsspeckitError, NotImplementedError):
    """A feature needs a newer version of a package; the message names it."""

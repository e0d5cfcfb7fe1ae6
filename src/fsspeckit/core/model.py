"""The data that flows from planning to engines to the commit: frozen, picklable, printable, no behaviour beyond views.

Nothing here reads or writes storage. A task carries all that an engine needs to run it anywhere, except the source
rows themselves, which it names by row number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.choices import Codec, check_choice

RowNumbers = npt.NDArray[np.int64]
Action = Literal["rewrite", "insert", "delete", "keep"]
PartitionValues = tuple[str | None, ...]
_ROW_BYTES = 64
_SAME_CODEC = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Raw statistics of one column, one entry per row group, of type ``native``; ``None`` stands for unknown."""

    lower: tuple[Any, ...]
    upper: tuple[Any, ...]
    nulls: tuple[int | None, ...]
    native: pa.DataType | None


BoundValue = int | bytes | None
FileBounds = tuple[tuple[BoundValue, ...], tuple[BoundValue, ...]]
"""Lowest and highest values of some columns, in a form in which they can be compared; null is above all others."""


@dataclass(frozen=True, slots=True)
class SortNote:
    """What `optimize` notes in a footer: the order of the rows, and the run that made it; its files do not overlap.

    ``ends`` are the first and the last row in the linear order, or for a curve each column's own ends; ``target`` is
    the size that was asked for, in bytes and in rows.
    """

    curve: str
    columns: tuple[str, ...]
    run: str
    rows: int
    ends: FileBounds
    target: tuple[float | None, int | None] = (None, None)


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One data file: ``path`` is its name in the dataset, ``location`` where its bytes are now."""

    path: str
    location: str
    size: int
    stamp: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of a snapshot: where it is, what its footer says; ``footer`` is how many bytes that takes.

    ``int96`` names columns of old timestamps, whose nanoseconds no reader of ours shows. ``raw_footer`` is the footer
    itself, where it is kept for those who will read the file.
    """

    path: str
    location: str
    size: int
    stamp: str
    rows: int
    row_groups: tuple[int, ...]
    uncompressed: int
    codec: str
    schema: pa.Schema
    partition: PartitionValues | None
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
    blooms: Mapping[str, tuple[tuple[int, int] | None, ...]] = field(default_factory=dict)
    sort_note: SortNote | None = None
    footer: int = 0
    int96: tuple[str, ...] = ()
    raw_footer: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def folder(self) -> str:
        """The folder in the dataset."""
        return self.path.rpartition("/")[0]

    @property
    def data(self) -> int:
        """Bytes beside the footer."""
        return self.size - self.footer


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column and the type in which it is compared."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class KeySetSpec:
    """Source rows to look for, and the key columns to compare."""

    rows: range | RowNumbers
    keys: tuple[KeyColumn, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """A file to look into: the row groups that may hold keys, and which set of source keys to look for."""

    file: DataFile
    row_groups: tuple[int, ...]
    group: int

    @property
    def rows(self) -> int:
        """Rows that the scan decodes."""
        return sum(self.file.row_groups[i] for i in self.row_groups)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Rows of one file whose key stands in the source, ascending, and the source row of each."""

    positions: RowNumbers
    source_rows: RowNumbers


NO_ROWS: RowNumbers = np.empty(0, dtype=np.int64)
NO_MATCH = Match(NO_ROWS, NO_ROWS)


def whole_number(name: str, value: Any) -> int:
    """A whole number above zero, of Python or of numpy; an error that names it where it is not."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a whole number above zero")
    return int(value)


def plain_codec(name: str) -> str:
    """A codec in the spelling of writers."""
    return _SAME_CODEC.get(name.lower(), name.lower())


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How new bytes are written; ``None`` means: as the file had it, else the default."""

    compression: str | None = None
    max_rows_per_file: int = 5_000_000
    row_group_size: int | None = None
    batch_rows: int | None = None
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "row_group_size", "batch_rows", "memory_limit"):
            value = getattr(self, name)
            if value is not None or name == "max_rows_per_file":
                object.__setattr__(self, name, whole_number(name, value))
        if self.compression is not None:
            codec = plain_codec(self.compression) if isinstance(self.compression, str) else ""
            if codec not in get_args(Codec):
                check_choice("compression", self.compression, get_args(Codec))
            object.__setattr__(self, "compression", codec)


@dataclass(frozen=True, slots=True, eq=False)
class RowChange:
    """What changes in the rows of one file, by positions that ascend.

    Rows at ``replaced`` get the values of ``source_rows``, in all columns or only in ``columns``. Rows at ``dropped``,
    which are others, are left out; with ``drop_others``, all rows are that are not replaced.
    """

    replaced: RowNumbers = field(default_factory=lambda: NO_ROWS)
    source_rows: RowNumbers = field(default_factory=lambda: NO_ROWS)
    dropped: RowNumbers = field(default_factory=lambda: NO_ROWS)
    drop_others: bool = False
    columns: tuple[str, ...] | None = None

    def rows_left(self, rows: int) -> int:
        """How many of a file's rows are left."""
        return len(self.replaced) if self.drop_others else rows - len(self.dropped)


@dataclass(frozen=True, slots=True, eq=False)
class RewriteTask:
    """Write a file again with some rows replaced or left out."""

    file: DataFile
    change: RowChange
    schema: pa.Schema
    key_columns: tuple[str, ...]
    skip_unchanged: bool
    options: WriteOptions

    @property
    def recast(self) -> bool:
        """Whether the file must be rewritten for its types alone."""
        return not self.schema.equals(self.file.schema, check_metadata=False)

    @property
    def rows_in(self) -> int:
        """Rows that the task reads."""
        return self.file.rows

    @property
    def rows_out(self) -> int:
        """Rows that the file has afterwards."""
        return self.change.rows_left(self.file.rows)

    @property
    def weight(self) -> int:
        """Bytes that the task reads, by which engines spread tasks."""
        return self.file.size


@dataclass(frozen=True, slots=True, eq=False)
class WriteTask:
    """Write the given source rows (a range or row numbers) as one new file."""

    path: str
    rows: range | RowNumbers
    schema: pa.Schema
    options: WriteOptions

    @property
    def rows_in(self) -> int:
        """Rows that the task reads."""
        return len(self.rows)

    @property
    def rows_out(self) -> int:
        """Rows that the file has."""
        return len(self.rows)

    @property
    def weight(self) -> int:
        """Bytes that the task reads, roughly."""
        return _ROW_BYTES * len(self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class CombineTask:
    """Write the rows of several files, in their order, as one new file; ``drops`` are positions left out, by path."""

    path: str
    files: tuple[DataFile, ...]
    schema: pa.Schema
    options: WriteOptions
    drops: Mapping[str, RowNumbers] = field(default_factory=dict)

    @property
    def rows_in(self) -> int:
        """Rows that the task reads."""
        return sum(file.rows for file in self.files)

    @property
    def rows_out(self) -> int:
        """Rows that the new file has."""
        return self.rows_in - sum(len(self.drops[file.path]) for file in self.files if file.path in self.drops)

    @property
    def weight(self) -> int:
        """Bytes that the task reads."""
        return sum(file.size for file in self.files)


Task = RewriteTask | WriteTask | CombineTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task did. ``staged`` is empty when the file needs no change or the run was a probe."""

    staged: str
    rows: int
    size: int
    unchanged: int
    changed: bool


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One line of a plan: what happens to a file, and why.

    ``bytes`` and ``stamp`` are those of the file as it stands now; a file that is yet to be made has none.
    """

    path: str
    action: Action
    reason: str
    rows: int
    bytes: int
    updated: int = 0
    deleted: int = 0
    stamp: str = field(default="", compare=False)

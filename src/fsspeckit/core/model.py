"""Frozen, picklable data that planning, engines and the commit exchange.

Nothing here reads or writes storage. A task has everything that an engine needs to run it on any worker, except source
rows, which it references by row number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.choices import Codec, Timestamps, check_choice
from fsspeckit.common.int96 import int96_columns, without_int96
from fsspeckit.core.expressions.tree import Expression

RowNumbers = npt.NDArray[np.int64]
Action = Literal["rewrite", "insert", "delete", "keep"]
PartitionValues = tuple[str | None, ...]
_ROW_BYTES = 64
_SAME_CODEC = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Raw statistics of one column, one entry per row group, of type ``native``; ``None`` means unknown."""

    lower: tuple[Any, ...]
    upper: tuple[Any, ...]
    nulls: tuple[int | None, ...]
    native: pa.DataType | None


BoundValue = int | bytes | None
FileBounds = tuple[tuple[BoundValue, ...], tuple[BoundValue, ...]]
"""Lowest and highest values of some columns, in sortable form; null is above all other values."""


@dataclass(frozen=True, slots=True)
class SortNote:
    """The footer metadata of a file that `optimize` wrote: the order of its rows. Files of one run do not overlap.

    A file that `compact` wrote for another target than the default has a note without columns.

    Attributes:
        run: The identifier of the run.
        bounds: The first and the last row in the linear order; for a curve, the lowest and highest value per column.
        target: The target size in bytes and in rows.
    """

    curve: str
    columns: tuple[str, ...]
    run: str
    rows: int
    bounds: FileBounds
    target: tuple[float | None, int | None] = (None, None)


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One data file: ``path`` is relative to the dataset, ``location`` is where its bytes are in the storage.

    ``version`` and ``modified`` are those of its entry in the listing; empty for a file that is not listed.
    """

    path: str
    location: str
    size: int
    stamp: str
    version: str = ""
    modified: float = field(default=0.0, repr=False, compare=False)


class KeptBytes(bytes):
    """Bytes that stay in this process: a pickle has None in their place."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Return the constructor of None."""
        return type(None), ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of a snapshot, with the facts of its footer that planning needs.

    Attributes:
        stats: Column statistics by column.
        blooms: Offset and length of the Bloom filter of each row group, by column.
        footer: The size of the footer in bytes.
        int96: Columns of INT96 timestamps, whose nanoseconds are not read.
        raw_footer: The bytes of the footer, if the snapshot keeps them.
        content: The whole file, if it is small and was read with its footer.
        from_index: Whether the facts come from the footer index, so that the file was not opened yet.
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
    version: str = ""
    content: KeptBytes | None = field(default=None, repr=False, compare=False)
    from_index: bool = field(default=False, repr=False, compare=False)

    @property
    def folder(self) -> str:
        """The folder in the dataset."""
        return self.path.rpartition("/")[0]

    @property
    def data(self) -> int:
        """Bytes without the footer."""
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
    """A file to scan: the row groups that may contain keys, and the number of the key set to look up."""

    file: DataFile
    row_groups: tuple[int, ...]
    group: int

    @property
    def rows(self) -> int:
        """Rows that the scan decodes."""
        return sum(self.file.row_groups[i] for i in self.row_groups)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Positions of the rows of one file whose key is in the source, ascending, and the source row of each."""

    positions: RowNumbers
    source_rows: RowNumbers

    @property
    def hits(self) -> int:
        """The number of matched rows."""
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class RemoteMatch:
    """The rows of one file whose positions only the workers know: their number, and two sums over them.

    ``hits`` get the values of a source row, ``drops`` are removed.
    """

    hits: int
    sums: tuple[int, int]
    drops: int = 0
    drop_sums: tuple[int, int] = (0, 0)


NO_ROWS: RowNumbers = np.empty(0, dtype=np.int64)
NO_MATCH = Match(NO_ROWS, NO_ROWS)


def whole_number(name: str, value: Any) -> int:
    """Return a parameter as an int. Raise if it is not a whole number above zero, of Python or numpy."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a whole number above zero.")
    return int(value)


def plain_codec(name: str) -> str:
    """Return the name of a codec as writers spell it."""
    return _SAME_CODEC.get(name.lower(), name.lower())


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written; ``None`` means: like the input file, or the default for a new file.

    ``timestamps`` are the 64-bit timestamps that INT96 columns become, ``renames`` new names of columns.
    """

    compression: str | None = None
    max_rows_per_file: int = 5_000_000
    row_group_size: int | None = None
    batch_rows: int | None = None
    memory_limit: int | None = None
    timestamps: Timestamps | None = None
    renames: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "row_group_size", "batch_rows", "memory_limit"):
            value = getattr(self, name)
            if value is not None or name == "max_rows_per_file":
                object.__setattr__(self, name, whole_number(name, value))
        if self.timestamps is not None:
            check_choice("timestamps", self.timestamps, get_args(Timestamps))
        if self.compression is not None:
            codec = plain_codec(self.compression) if isinstance(self.compression, str) else ""
            if codec not in get_args(Codec):
                check_choice("compression", self.compression, get_args(Codec))
            object.__setattr__(self, "compression", codec)

    def changes_times(self, file: DataFile) -> bool:
        """Return whether a file has INT96 columns that become 64-bit timestamps."""
        return self.timestamps is not None and bool(file.int96)

    def changes_names(self, file: DataFile) -> bool:
        """Return whether columns of a file get new names."""
        return any(name in file.schema.names for name, _ in self.renames)

    def schema_after(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of files with some schema after they are written."""
        return schema if self.timestamps is None else without_int96(schema)


@dataclass(frozen=True, slots=True, eq=False)
class RowChange:
    """A change to the rows of one file. Positions are row numbers in the file, ascending.

    Attributes:
        replaced: Positions of the rows that get the values of a source row.
        source_rows: The source row of each replaced row.
        dropped: Positions of the rows to remove. None of them is replaced.
        drop_others: Whether all rows that are not replaced are removed. Then ``dropped`` is empty.
        columns: The columns in which replaced rows get new values; ``None`` means all columns.
        computed: Expressions that compute the new values from the replaced row itself, instead of a source row.
        keep_for_null: Whether a replaced row keeps its value where the source row has NULL.
        remote: Stands for ``replaced``, ``source_rows`` and ``dropped`` until a worker gets them.
    """

    replaced: RowNumbers = field(default_factory=lambda: NO_ROWS)
    source_rows: RowNumbers = field(default_factory=lambda: NO_ROWS)
    dropped: RowNumbers = field(default_factory=lambda: NO_ROWS)
    drop_others: bool = False
    columns: tuple[str, ...] | None = None
    computed: Mapping[str, Expression] = field(default_factory=dict)
    keep_for_null: bool = False
    remote: RemoteMatch | None = None

    @property
    def hits(self) -> int:
        """The number of replaced rows."""
        return len(self.replaced) if self.remote is None else self.remote.hits

    @property
    def drops(self) -> int:
        """The number of dropped rows, without those of ``drop_others``."""
        return len(self.dropped) if self.remote is None else self.remote.drops

    def rows_left(self, rows: int) -> int:
        """Return the number of rows after the change of a file of ``rows`` rows."""
        return self.hits if self.drop_others else rows - self.drops

    def counts_by_group(self, row_groups: Sequence[int]) -> tuple[RowNumbers, RowNumbers]:
        """Return for each row group the number of replaced and of dropped rows."""
        starts = np.concatenate([[0], np.cumsum(row_groups)])
        replaced = np.diff(np.searchsorted(self.replaced, starts))
        if self.drop_others:
            return replaced, np.array(row_groups, dtype=np.int64) - replaced
        return replaced, np.diff(np.searchsorted(self.dropped, starts))

    def kept(self, start: int, stop: int) -> npt.NDArray[np.bool_] | None:
        """Return which rows from ``start`` to ``stop`` are not dropped, or ``None`` if all are kept."""
        mask = np.full(stop - start, not self.drop_others)
        positions = self.replaced if self.drop_others else self.dropped
        low, high = np.searchsorted(positions, [start, stop])
        mask[positions[low:high] - start] = self.drop_others
        return None if mask.all() else mask


@dataclass(frozen=True, slots=True, eq=False)
class RewriteTask:
    """Rewrite a file with some rows replaced or dropped.

    Attributes:
        schema: The schema of the new file.
        key_columns: Columns in which replaced rows and their source rows have equal keys.
        skip_unchanged: Whether the file is kept if no row changes.
    """

    file: DataFile
    change: RowChange
    schema: pa.Schema
    key_columns: tuple[str, ...]
    skip_unchanged: bool
    options: WriteOptions

    @property
    def recast(self) -> bool:
        """Whether the new file has another schema, or stores timestamps differently."""
        is_same = self.schema.equals(self.file.schema, check_metadata=False)
        return not is_same or int96_columns(self.schema) != self.file.int96

    @property
    def rows_in(self) -> int:
        """Rows that the task reads."""
        return self.file.rows

    @property
    def rows_out(self) -> int:
        """Rows of the new file."""
        return self.change.rows_left(self.file.rows)

    @property
    def weight(self) -> int:
        """Bytes that the task reads. Engines use it to balance tasks."""
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
        """Rows of the new file."""
        return len(self.rows)

    @property
    def weight(self) -> int:
        """Estimated bytes that the task reads."""
        return _ROW_BYTES * len(self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class CombineTask:
    """Write the rows of several files, in their order, as one new file; ``drops`` has dropped positions by path.

    ``target`` is the target size, in bytes and in rows, if it is to be noted in the file.
    """

    path: str
    files: tuple[DataFile, ...]
    schema: pa.Schema
    options: WriteOptions
    drops: Mapping[str, RowNumbers] = field(default_factory=dict)
    target: tuple[float | None, int | None] | None = None

    @property
    def rows_in(self) -> int:
        """Rows that the task reads."""
        return sum(file.rows for file in self.files)

    @property
    def rows_out(self) -> int:
        """Rows of the new file."""
        return self.rows_in - sum(len(self.drops[file.path]) for file in self.files if file.path in self.drops)

    @property
    def weight(self) -> int:
        """Bytes that the task reads."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, eq=False)
class MoveTask:
    """Write rows of several files, with new values, as one new file.

    Each part is a rewrite of one file that keeps only the moved rows. All parts have the schema of the task.
    """

    path: str
    parts: tuple[RewriteTask, ...]
    schema: pa.Schema
    options: WriteOptions

    @property
    def rows_in(self) -> int:
        """Rows that the task reads."""
        return self.rows_out

    @property
    def rows_out(self) -> int:
        """Rows of the new file."""
        return sum(part.rows_out for part in self.parts)

    @property
    def weight(self) -> int:
        """Estimated bytes that the task reads."""
        return sum(part.file.size * part.rows_out // max(1, part.file.rows) for part in self.parts)


NewFileTask = WriteTask | MoveTask
Task = RewriteTask | WriteTask | CombineTask | MoveTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task. ``staged`` is empty if the file does not change, or if rows were only compared."""

    staged: str
    rows: int
    size: int
    unchanged: int
    changed: bool


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One line of a plan: the action for a file, and the reason.

    ``bytes`` and ``stamp`` are the size and version of the existing file; a new file has none.
    """

    path: str
    action: Action
    reason: str
    rows: int
    bytes: int
    updated: int = 0
    deleted: int = 0
    stamp: str = field(default="", compare=False)

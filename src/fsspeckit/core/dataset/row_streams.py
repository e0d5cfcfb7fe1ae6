"""The rows that a caller passes, as a stream of Arrow batches: pyarrow, pandas, polars, ibis, DuckDB and others.

Lazy frames are read batch by batch, so their result is never complete in memory. Libraries are recognised by the names
of their classes, because none of them is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import ColumnNameError, UnsupportedDataError


def row_stream(data: Any) -> pa.RecordBatchReader:
    """Return a reader of the rows of an object; raise `UnsupportedDataError` if it has none."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if _is(data, "pandas", "DataFrame"):
        return _pandas_rows(data).to_reader()
    if hasattr(data, "to_pyarrow_batches"):  # a table of ibis; its Arrow stream holds all rows in memory
        batches: pa.RecordBatchReader = data.to_pyarrow_batches()
        return batches
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    scanner = getattr(data, "scanner", None)
    if scanner is not None and type(data).__module__.startswith("pyarrow."):
        return scanner().to_reader()
    hint = " For a list of rows, use pa.Table.from_pylist(rows)." if isinstance(data, (list, tuple)) else ""
    raise UnsupportedDataError(
        f"cannot read rows from {type(data).__name__}. Pass a pyarrow Table, RecordBatch, RecordBatchReader or "
        f"Dataset, a path, or an object with __arrow_c_stream__ (polars, pandas, DuckDB).{hint}"
    )


def with_batches(data: Any) -> Any:
    """Return a lazy frame of polars as a reader, and any other data as it is.

    A lazy frame has attributes that compute something, so it is replaced before anything else looks at it.
    """
    return _lazy_polars(data) if _is(data, "polars", "LazyFrame") else data


def _is(data: Any, library: str, name: str) -> bool:
    return any(base.__name__ == name and base.__module__.partition(".")[0] == library for base in type(data).__mro__)


def _pandas_rows(frame: Any) -> pa.Table:
    """Return the columns and the named levels of the index, which pyarrow leaves out if it is a range of numbers."""
    named = [str(name) for name in frame.index.names if name is not None]
    names = [*map(str, frame.columns), *named]
    repeated = [name for name in named if names.count(name) > 1]
    if repeated:
        raise ColumnNameError(
            f"the index {repeated[0]!r} of the pandas frame has the name of another column or level. "
            "Rename one of them, or reset the index."
        )
    return pa.Table.from_pandas(_without_row_numbers(frame), preserve_index=True if named else None)


def _without_row_numbers(frame: Any) -> Any:
    """Drop the levels of the index of a pandas frame that are integers without a name: numbers of rows.

    pandas keeps such numbers when it filters, sorts or joins rows. A named level is a column of the caller.
    """
    index = frame.index
    unnamed = [i for i in range(index.nlevels) if index.names[i] is None]
    numbers = [i for i in unnamed if index.get_level_values(i).dtype.kind in "iu"]
    return frame.reset_index(level=numbers, drop=True) if numbers else frame


def _lazy_polars(frame: Any) -> pa.RecordBatchReader:
    schema = pa.RecordBatchReader.from_stream(frame.limit(0).collect()).schema

    def batches() -> Iterator[pa.RecordBatch]:
        # Before polars 1.34 a lazy frame has no batches.
        frames = frame.collect_batches() if hasattr(frame, "collect_batches") else [frame.collect(engine="streaming")]
        for each in frames:
            yield from pa.RecordBatchReader.from_stream(each)

    return pa.RecordBatchReader.from_batches(schema, batches())

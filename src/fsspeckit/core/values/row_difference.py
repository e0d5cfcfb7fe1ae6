"""Compare two tables as multisets of rows: which rows of each are not in the other.

Rows are found by a hash and then compared by value, so a row that is left out of the result is in both tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import binary_array
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.equality import columns_equal
from fsspeckit.core.values.hashing import hash_keys
from fsspeckit.core.values.keys import comparable
from fsspeckit.core.values.take import take_rows


def row_difference(old: pa.Table, new: pa.Table) -> tuple[RowNumbers, RowNumbers]:
    """Return the positions of the rows of ``old`` and of ``new`` that have no equal row in the other table.

    The tables have one schema. An equal row cancels one row: three equal rows and one leave two. Rows that are in the
    same order in both tables are found in one pass.

    Examples:
        >>> old, new = pa.table({"id": [1, 2, 2, 3]}), pa.table({"id": [3, 2, 4]})
        >>> [rows.tolist() for rows in row_difference(old, new)]
        [[0, 2], [2]]
    """
    ours, theirs = _occurrences(_hashes(old), _hashes(new))
    _, left, right = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    equal = np.ones(len(left), dtype=bool)
    for column in columns_equal(take_rows(old, left), take_rows(new, right)):
        equal &= column
    return _others(old.num_rows, left[equal]), _others(new.num_rows, right[equal])


def _hashes(table: pa.Table) -> npt.NDArray[np.uint64]:
    columns = [_hashable(column) for column in table.columns]
    return hash_keys(columns) if columns else np.zeros(table.num_rows, dtype=np.uint64)


def _hashable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a form in which equal values have equal bits. Nested values become text."""
    type_ = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if not pa.types.is_nested(type_):
        return comparable(column, type_)
    shown = (repr(value).replace("-0.0", "0.0") for value in column.to_pylist())
    texts: Sequence[bytes | None] = [text.encode("utf-8", "replace") for text in shown]
    return pa.chunked_array([binary_array(texts, pa.binary())])


def _occurrences(
    one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a number for each row that is unique in its table: equal if hash and occurrence of the hash are equal."""
    _, codes = np.unique(np.concatenate([one, other]), return_inverse=True)
    size = max(len(one), len(other), 1)
    parts = codes[: len(one)], codes[len(one) :]
    first, second = (part.astype(np.int64) * size + _counted(part) for part in parts)
    return first, second


def _counted(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how often the code of each row occurred before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counted = np.empty(len(codes), dtype=np.int64)
    counted[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    return counted


def _others(count: int, rows: RowNumbers) -> RowNumbers:
    mask = np.ones(count, dtype=bool)
    mask[rows] = False
    return np.flatnonzero(mask)

"""Check that files which contain a partition column have the value of their folder. Statistics prove most files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.errors import PartitionError
from fsspeckit.common.partitions import typed_values
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.folder_values import FolderValueCheck
from fsspeckit.core.model import ColumnStats, DataFile
from fsspeckit.core.planning.statistics import KeySet, Mask, bound_values, candidate_row_groups, ordered
from fsspeckit.core.progress import Reporter
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.keys import key_type


def check_folder_values(
    engine: Engine,
    storage: Storage,
    files: Sequence[DataFile],
    columns: Sequence[str],
    names: Iterable[str],
    reporter: Reporter,
) -> None:
    """Raise if a file has another value of a partition column than its folder.

    Only columns of files that statistics do not prove are read.

    Args:
        engine: Reads the columns.
        storage: The storage of the files.
        files: The files to check.
        columns: The partition columns of the dataset.
        names: The columns to check.
        reporter: Reports the files that are read.

    Raises:
        PartitionError: The message has the file and both values.
    """
    unproven: dict[int, dict[str, str | None]] = {}
    for name in names:
        for number, text in _unproven(files, columns.index(name), name):
            unproven.setdefault(number, {})[name] = text
    items = [(files[number], texts) for number, texts in sorted(unproven.items())]
    if items:
        engine.map(FolderValueCheck(storage), items, reporter.stage("check folders", len(items)))


def may_have_rows_of(file: DataFile, partitions: Mapping[str, KeySet]) -> bool:
    """Return whether a file outside partition folders may have rows with some partition values.

    A column that the file does not have is null.
    """
    stored = {name: values for name, values in partitions.items() if name in file.schema.names}
    return all(values.has_null for name, values in partitions.items() if name not in stored) and any(
        candidate_row_groups([file], stored)
    )


def _unproven(files: Sequence[DataFile], at: int, name: str) -> list[tuple[int, str | None]]:
    """Return the files for which statistics do not prove that all values are equal to the folder's text."""
    unproven: list[tuple[int, str | None]] = []
    by_type: dict[tuple[pa.DataType, pa.DataType], list[tuple[int, Any, Any, str]]] = {}
    for number, file in enumerate(files):
        if not file.rows or file.partition is None or name not in file.schema.names:
            continue
        text, stats = file.partition[at], file.stats.get(name)
        bounds = None if stats is None else _bounds(file, stats)
        if stats is not None and text is None and stats.nulls == file.row_groups:
            continue
        if stats is None or stats.native is None or text is None or bounds is None:
            unproven.append((number, text))
            continue
        by_type.setdefault((file.schema.field(name).type, stats.native), []).append((number, *bounds, text))
    for (type_, native), known in by_type.items():
        _, lower, upper, texts = zip(*known, strict=True)
        proven = _are_equal(lower, upper, texts, native, type_)
        unproven += [(item[0], item[3]) for i, item in enumerate(known) if proven is None or not proven[i]]
    return unproven


def _bounds(file: DataFile, stats: ColumnStats) -> tuple[Any, Any] | None:
    """Return the bounds of a file whose row groups all have the same bounds and no nulls."""
    groups = zip(file.row_groups, stats.lower, stats.upper, stats.nulls, strict=True)
    known = {(lower, upper, nulls) for rows, lower, upper, nulls in groups if rows}
    if len(known) != 1:
        return None
    lower, upper, nulls = known.pop()
    return None if lower is None or upper is None or nulls != 0 else (lower, upper)


def _are_equal(
    lower: Sequence[Any], upper: Sequence[Any], texts: Sequence[str], native: pa.DataType, type_: pa.DataType
) -> Mask | None:
    """Return where both bounds are the folder's value, or ``None`` if it is not known. Bounds do not show NaN."""
    if pa.types.is_floating(native):
        return None
    try:
        own = key_type(type_)
        folder = ordered(typed_values(texts, own), own)
    except (PartitionError, ValueError, pa.ArrowException):
        return None
    low, high = bound_values(lower, native, own), bound_values(upper, native, own)
    if folder is None or low is None or high is None:
        return None
    if isinstance(folder, np.ndarray):
        return np.asarray((low == folder) & (high == folder))
    return np.asarray(to_numpy(pc.and_(pc.equal(low, folder), pc.equal(high, folder))))

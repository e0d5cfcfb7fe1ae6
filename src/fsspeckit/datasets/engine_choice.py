"""Choose the engine of an operation: ``engine="auto"``.

1. A Spark DataFrame is the work of Spark, a DuckDB relation that of DuckDB.
2. Else bytes decide: those of the rows, if they are known, and those of the dataset's files. Up to `SMALL_BYTES`,
   PyArrow runs the operation in this process; beyond, Spark, if it is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from fsspeckit.common.choices import EngineName
from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import single_file_view
from fsspeckit.core.dataset.text_source import TextFiles, text_files
from fsspeckit.core.ext.inputs import find_files
from fsspeckit.core.formats import ENDINGS

SMALL_BYTES = 4 * 1024**3
"""Bytes up to which starting Spark takes longer than the work."""
_LIBRARIES: dict[tuple[str, str], EngineName] = {
    ("pyspark", "DataFrame"): "spark",
    ("duckdb", "DuckDBPyRelation"): "duckdb",
    ("_duckdb", "DuckDBPyRelation"): "duckdb",
}


def choose_engine(
    data: Any, path: Any, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> EngineName:
    """Return the engine for an operation on a dataset; ``data`` are its rows, or None.

    Examples:
        >>> import pyarrow as pa
        >>> choose_engine(pa.table({"id": [1]}), "memory://doc/choice")
        'pyarrow'
    """
    for base in type(data).__mro__:
        found = _LIBRARIES.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    view = Place.of(path, filesystem, storage_options).journal.view()
    total = sum(file.size for file in view.files) + _size(data, filesystem, storage_options)
    return "spark" if total > SMALL_BYTES and find_spec("pyspark") is not None else "pyarrow"


def _size(data: Any, filesystem: Any, storage_options: Mapping[str, Any] | None) -> int:
    """Return the bytes of rows: of a table in memory, or of the files at a path; 0 where they are not known."""
    text = data if isinstance(data, TextFiles) else text_files(data)
    try:
        if text is not None:
            found = find_files(text.path, ENDINGS[text.format], "merge", filesystem, storage_options)
            return sum(file.size for file in found)
        if isinstance(data, (str, os.PathLike)):
            place = Place.of(data, filesystem, storage_options)
            view = single_file_view(place.storage, place.root) or place.journal.view()
            return sum(file.size for file in view.files)
    except DatasetNotFoundError:
        return 0  # the operation raises this error with its own words
    size = getattr(data, "nbytes", None)
    return size if isinstance(size, int) else 0

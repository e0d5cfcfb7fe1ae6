"""What older versions of pyarrow lack: functions with the same results, or an error that names the version needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.errors import VersionTooOldError

INSTALLED = int(pa.__version__.partition(".")[0])
"""The installed major version of pyarrow."""

BLOOM_FILTERS, EXTENSION_TYPES, VIEWS = 24, 21, 21
"""The first versions that write Bloom filters, that read and write UUID and JSON columns, and that write views."""
_SEARCH_SORTED, _CSV_DEFAULT_TYPE, _TIMESTAMP_CHECKS, _CONCAT_BATCHES, _VIEW_CASTS = 26, 25, 23, 19, 18
_WRITER_OPTIONS = {"bloom_filter_options": BLOOM_FILTERS}


def require(version: int, feature: str) -> None:
    """Raise if the installed pyarrow is older than a feature, named in the plural."""
    if version > INSTALLED:
        raise VersionTooOldError(
            f"{feature} need pyarrow {version} or later ({pa.__version__} is installed): "
            f"pip install 'pyarrow>={version}'"
        )


def require_extensions(names: Iterable[str], where: str) -> None:
    """Raise if logical or extension types, by name, are not stored as such by the installed version."""
    for name in names:
        if name.removeprefix("arrow.").upper() in ("UUID", "JSON"):
            require(EXTENSION_TYPES, f"{where}: UUID and JSON columns")


def writer_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of the Parquet writer without those that the installed version does not know."""
    return {name: value for name, value in options.items() if _WRITER_OPTIONS.get(name, 0) <= INSTALLED}


def reader_options() -> dict[str, Any]:
    """Return the options that make pyarrow read UUID and JSON columns as such."""
    return {"arrow_extensions_enabled": True} if INSTALLED >= EXTENSION_TYPES else {}


def cast_view(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast an array of string or binary views to another type."""
    if INSTALLED >= _VIEW_CASTS:
        return array.cast(target)
    is_string = pa.types.is_string_view(array.type)
    plain = pa.array(array.to_pylist(), pa.large_string() if is_string else pa.large_binary())
    return plain.cast(target)


def cast_text(texts: Any, type_: pa.DataType) -> Any:
    """Cast an array of texts, or one text. Older versions overflow if a time is not in the range of nanoseconds."""
    parsed = texts.cast(type_)
    if INSTALLED >= _TIMESTAMP_CHECKS or not pa.types.is_timestamp(type_) or type_.unit != "ns":
        return parsed
    if isinstance(texts, pa.Scalar):
        texts, times = pa.array([texts.as_py()], pa.large_string()), pa.array([parsed.value], pa.int64())
    else:
        times = parsed.cast(pa.int64())
    days = pc.utf8_slice_codeunits(texts, 0, len("2026-01-01")).cast(pa.timestamp("s")).cast(pa.int64())
    distance = pc.abs(pc.subtract(pc.divide(times, 10**9), days))
    if pc.any(pc.greater(distance, 3 * 24 * 3600)).as_py():
        raise pa.ArrowInvalid(f"a text is not in the range of {type_}")
    return parsed


def read_texts(stream: pa.NativeFile, read: Any, parse: Any, convert: dict[str, Any]) -> pa.Table:
    """Read a CSV file with all cells as text. The options are those of `pyarrow.csv`."""
    import pyarrow.csv as pacsv

    if INSTALLED >= _CSV_DEFAULT_TYPE:
        types = {"default_column_type": pa.string()}
    else:
        with pacsv.open_csv(stream, read, parse) as opened:
            types = {"column_types": dict.fromkeys(opened.schema.names, pa.string())}
        stream.seek(0)
    return pacsv.read_csv(stream, read, parse, pacsv.ConvertOptions(**types, **convert))


def search_sorted(values: pa.Array, wanted: pa.Array, side: Any) -> pa.Array:
    """Return the positions at which texts or bytes belong into sorted ones; null for null."""
    if INSTALLED >= _SEARCH_SORTED:
        return pc.search_sorted(values, wanted, side=side)
    found = np.searchsorted(_objects(values), _objects(wanted.drop_null()), side)
    positions = np.zeros(len(wanted), dtype=np.uint64)
    is_null = wanted.is_null().to_numpy(zero_copy_only=False)
    positions[~is_null] = found
    return pa.array(positions, mask=is_null)


def _objects(values: pa.Array) -> npt.NDArray[np.object_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.object_)


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches of one schema as one."""
    if INSTALLED >= _CONCAT_BATCHES:
        return pa.concat_batches(batches)
    table = pa.Table.from_batches(batches).combine_chunks()
    (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return batch

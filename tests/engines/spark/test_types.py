"""Every Arrow type that Parquet can hold goes through an upsert on Spark as it was: schema, metadata, values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from inside import by_shuffle

_DAY, _NOON = dt.date(1969, 7, 20), dt.datetime(1900, 1, 1, 12, 0, 0, 1)  # noqa: DTZ001 - plain timestamps are a type
_NESTED = [{"a": 1, "b": ["x", None]}, {"a": None, "b": []}, None]


def _samples() -> dict[pa.DataType, list[Any]]:
    found: dict[pa.DataType, list[Any]] = {pa.null(): [None, None, None], pa.bool_(): [True, False, None]}
    for bits in (8, 16, 32, 64):
        found[getattr(pa, f"int{bits}")()] = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, None]
        found[getattr(pa, f"uint{bits}")()] = [0, 2**bits - 1, None]
    found |= {pa.float16(): [np.float16(0.5), np.float16("nan"), None]}
    found |= {kind: [0.5, float("-inf"), None] for kind in (pa.float32(), pa.float64())}
    for make, digits in ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)):
        found[make(digits, 2)] = [Decimal("-0.01"), Decimal("99999.99"), None]
    found |= {kind: ["", "ü" * 40, None] for kind in (pa.string(), pa.large_string(), pa.string_view())}
    found |= {kind: [b"", b"\x00\xff", None] for kind in (pa.binary(), pa.large_binary(), pa.binary_view())}
    found |= {pa.binary(4): [b"abcd", b"\x00\x00\x00\x00", None]}
    found |= {pa.date32(): [_DAY, dt.date(2400, 1, 1), None]}
    found |= {pa.time32("ms"): [1, 86_399_999, None], pa.time64("us"): [1, 86_399_999_999, None]}
    found |= {pa.time64("ns"): [1, 86_399_999_999_999, None]}
    for zone in (None, "UTC", "America/Sao_Paulo"):
        found |= {pa.timestamp(unit, zone): [-1, 10**12, None] for unit in ("ms", "us", "ns")}
    found |= {pa.duration(unit): [-1, 10**12, None] for unit in ("s", "ms", "us", "ns")}
    found |= {pa.dictionary(pa.int8(), pa.string()): ["a", "b", None]}
    found |= {pa.dictionary(pa.int32(), pa.large_string()): ["a", "b", None]}
    found |= {pa.list_(pa.int16()): [[1, None], [], None], pa.large_list(pa.string()): [["x"], [], None]}
    found |= {pa.list_(pa.float64(), 2): [[1.0, None], [2.0, 3.0], None]}
    found |= {pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.string()))]): _NESTED}
    found |= {pa.map_(pa.string(), pa.timestamp("ns")): [[("k", 1)], [], None]}
    found |= {
        pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.date32())))])): [[{"m": [(1, [_DAY])]}], [], None]
    }
    found |= {pa.uuid(): [b"\x01" * 16, b"\xff" * 16, None], pa.json_(): ['{"a": 1}', "[]", None]}
    return found


_SAMPLES = _samples()


def _table(rows: list[int], ids: list[int], *, note: bytes) -> pa.Table:
    fields, columns = [pa.field("id", pa.int64(), nullable=False)], [pa.array(ids, pa.int64())]
    for number, (type_, values) in enumerate(_SAMPLES.items()):
        fields.append(pa.field(f"c{number}", type_, metadata={b"note": note}))
        columns.append(pa.array([values[row] for row in rows], type_))
        if type_ != pa.null():
            fields.append(pa.field(f"c{number}_required", type_, nullable=False))
            columns.append(pa.array([values[row % 2] for row in rows], type_))
    return pa.table(columns, schema=pa.schema(fields, {b"owner": b"finance"}))


@pytest.mark.parametrize("way", ["job", "exchange", "shuffle"])
def test_every_type_survives_an_upsert(spark: Any, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsspeckit.datasets.spark.engine.LOCAL_ROWS", -1)
    path = tmp_path / "d" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(_table([0, 1, 2, 0], [1, 2, 3, 4], note=b"old"), path)
    before = pq.ParquetFile(path)
    schema, order = before.schema_arrow, before.schema
    io = SparkDatasetIO(spark, share_limit=None if way == "job" else 0)
    io = by_shuffle(io) if way == "shuffle" else io
    source = _table([2, 1, 0], [1, 3, 9], note=b"new")
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns="id")
    assert (result.inserted, result.updated) == (1, 2)
    [path_after] = result.rewritten_files
    after = pq.ParquetFile(path_after)
    assert after.schema_arrow.equals(schema, check_metadata=True)
    assert after.schema.equals(order)
    expected = pa.concat_tables(
        [source.slice(0, 1), _table([1], [2], note=b"old"), source.slice(1, 1), _table([0], [4], note=b"old")],
        promote_options="permissive",
    )
    assert str(after.read().to_pylist()) == str(expected.cast(schema).to_pylist())
    (inserted,) = [pq.ParquetFile(file) for file in result.inserted_files]
    assert inserted.schema_arrow.equals(schema, check_metadata=False)
    assert str(inserted.read().to_pylist()) == str(source.slice(2, 1).cast(schema).to_pylist())


_MAINTENANCE: dict[str, Callable[..., Any]] = {
    "compact": lambda io, folder: io.compact_parquet_dataset(folder, target_rows_per_file=100),
    "optimize": lambda io, folder: io.optimize_parquet_dataset(folder, ["id"], target_rows_per_file=4),
    "zorder": lambda io, folder: io.optimize_parquet_dataset(folder, ["id", "c2"], curve="zorder"),
    "deduplicate": lambda io, folder: io.deduplicate_parquet_dataset(folder, "id", "-id"),
}


@pytest.mark.parametrize("operation", _MAINTENANCE)
def test_every_type_survives_maintenance(spark: Any, tmp_path: Path, operation: str) -> None:
    """Executors make the same files as the engine of this process."""
    found = []
    for number, io in enumerate([PyarrowDatasetIO(), SparkDatasetIO(spark), by_shuffle(SparkDatasetIO(spark))]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, ids in {"a": [1, 2, 3, 4], "b": [3, 9, 1, 5]}.items():
            pq.write_table(_table([0, 1, 2, 0], ids, note=b"old"), folder / f"{name}.parquet", row_group_size=2)
        _MAINTENANCE[operation](io, str(folder))
        files = [pq.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
        found.append([(str(file.schema_arrow), str(file.read().to_pylist())) for file in files])
    assert found[1] == found[0]
    assert found[2] == found[0]

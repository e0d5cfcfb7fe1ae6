"""Row groups with more decoded bytes than fit into memory: the same results as at once, and bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.engine import read
from fsspeckit.core.kernels import match_keys
from fsspeckit.core.parquet import batches
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = 600
NEW: dict[str, Any] = {"id": [3, 150, 299, 9000], "text": ["new", None, "x" * 300, "y"], "v": [1, 2, 3, 4]}
NEW["tags"] = [["z"], None, [], ["a", None]]
CALLS: dict[str, Callable[[Any, str], Any]] = {
    "update": lambda io, path: io.update(path, set={"v": "v + 1", "text": "'changed'"}, where="id % 100 = 7"),
    "update of nothing": lambda io, path: io.update(path, set={"v": "v"}, where="id % 100 = 7"),
    "update of the order": lambda io, path: io.update(path, set={"id": "0 - id"}, where="id % 100 = 7"),
    "delete": lambda io, path: io.delete(path, where="v = 3 AND text IS NOT NULL"),
    "delete in one row group": lambda io, path: io.delete(path, where="id IN (170, 299)"),
    "upsert": lambda io, path: io.merge(pa.table(NEW), path, strategy="upsert", key_columns=["id"]),
    "upsert by text": lambda io, path: io.merge(
        pa.table(NEW), path, strategy="upsert", key_columns=["id", "v"], null_keys="match"
    ),
    "full merge": lambda io, path: io.merge(pa.table(NEW), path, strategy="full_merge", key_columns=["id"]),
    "deduplicate": lambda io, path: io.deduplicate_parquet_dataset(path, ["v", "text"], null_keys="match"),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=10_000),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, ["text", "id"], target_rows_per_file=400),
    "optimize without statistics": lambda io, path: io.optimize_parquet_dataset(path, ["v", "id"], curve="zorder"),
    "read": lambda io, path: io.read_parquet(path, filters="v = 3 AND id > 120"),
    "read with tuples": lambda io, path: io.read_parquet(path, columns=["text"], filters=[("v", "=", 3)]),
}


def write(folder: Path) -> None:
    """Two files with row groups of 150 rows: texts of few values, some very long, and nested values."""
    ids = np.arange(ROWS)
    texts = [None if i % 7 == 0 else "t" * (500 if i % 50 == 0 else i % 5) for i in range(ROWS)]
    tags = [[f"g{i % 3}"] * (i % 4) for i in range(ROWS)]
    table = pa.table({"id": ids, "text": texts, "v": ids % 6, "tags": tags})
    folder.mkdir(parents=True)
    for number, part in enumerate((table.slice(0, 400), table.slice(400))):
        sorting = [pq.SortingColumn(0)]
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=150, sorting_columns=sorting)


def outcome(io: Any, call: Callable[[Any, str], Any], folder: Path) -> tuple[Any, pa.Table]:
    result = call(io, str(folder))
    rows = io.read_parquet(str(folder))
    if isinstance(result, pa.Table):
        return result.combine_chunks(), rows.combine_chunks()
    return result.stats() if hasattr(result, "stats") else result["after_file_count"], rows.combine_chunks()


@pytest.mark.parametrize("make_io", [PyarrowDatasetIO, DuckDBDatasetIO])
@pytest.mark.parametrize("name", CALLS)
def test_batches_give_the_same_rows_in_the_same_order(
    make_io: Callable[[], Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "whole")
    write(tmp_path / "parts")
    expected = outcome(make_io(), CALLS[name], tmp_path / "whole")
    for module, constant, value in (
        (batches, "_FEW_ROWS", 0),
        (batches, "WHOLE_BYTES", 0),
        (batches, "BATCH_BYTES", 900),
        (batches, "_SAMPLE_ROWS", 10),
        (match_keys, "BATCH_BYTES", 900),
        (read, "_MOST_SCANNED", 0),
    ):
        monkeypatch.setattr(module, constant, value)
    found = outcome(make_io(), CALLS[name], tmp_path / "parts")
    assert found[0] == expected[0]
    assert found[1].equals(expected[1])
    for file in (tmp_path / "parts").glob("*.parquet"):
        check_declared_order(pq.ParquetFile(file))


def check_declared_order(stored: pq.ParquetFile) -> None:
    for group in range(stored.num_row_groups):
        columns = [by.column_index for by in stored.metadata.row_group(group).sorting_columns]
        rows = stored.read_row_group(group).to_pydict()
        ranks = list(zip(*([(v is None, v) for v in list(rows.values())[at]] for at in columns), strict=True))
        assert ranks == sorted(ranks)


PROGRAM = """
import resource, sys
import pyarrow as pa
from fsspeckit import Dataset
path = sys.argv[1]
data = Dataset(path, engine="pyarrow", key="id")
assert data.update({"v": "v + 1"}, "id = 2").updated == 1
assert data.delete("id = 1").deleted == 1
row = {"id": [2], "v": [5], "text": ["new"]}
assert data.merge(pa.table(row)).updated == 1
assert data.compact(target_rows_per_file=10**9, compression="zstd").compacted_file_count == 1
assert data.read(filters="id = 2").to_pylist() == [{"id": 2, "v": 5, "text": "new"}]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_small_file_of_many_rows_takes_little_memory(tmp_path: Path) -> None:
    """Its 24 million rows take more than a gigabyte at once."""
    rows = 24_000_000
    ids = np.zeros(rows, dtype=np.int64)
    ids[[5, rows // 2]] = 1, 2
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), ["a text that all rows have"])
    table = pa.table({"id": ids, "v": np.full(rows, 7), "text": text})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows, store_schema=False)
    assert (tmp_path / "a.parquet").stat().st_size < 2**20
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1000, "MiB"

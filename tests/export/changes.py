"""A small dataset, and one change of each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

ROWS = pa.table({"id": [1, 2, 3, 4], "v": ["a", "b", "c", None], "day": ["mon", "mon", "tue", "a b/c"]})
CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda io, path: io.write_dataset(ROWS.slice(0, 1), path),
    "overwrite": lambda io, path: io.write_dataset(ROWS.slice(1), path, mode="overwrite"),
    "merge": lambda io, path: io.merge(ROWS.slice(1, 2).set_column(1, "v", [["x", "y"]]), path, key_columns="id"),
    "update": lambda io, path: io.update(path, set={"v": "'z'"}, where="id > 2"),
    "delete": lambda io, path: io.delete(path, where="id = 1"),
    "delete all": lambda io, path: io.delete(path, where="true"),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_mb_per_file=1),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, "id"),
    "deduplicate": lambda io, path: io.deduplicate_parquet_dataset(path, key_columns="v", null_keys="match"),
}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows in one order."""
    return sorted(table.to_pylist(), key=lambda row: (row["id"], str(row)))

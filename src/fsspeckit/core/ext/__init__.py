"""Readers of plain files: Parquet, CSV and JSON to one `pa.Table`.

They read what stands at the given paths. A dataset that may have a commit in flight is read with `DatasetIO`.
"""

from __future__ import annotations

from fsspeckit.core.ext.csv import read_csv
from fsspeckit.core.ext.json import read_json
from fsspeckit.core.ext.parquet import read_parquet

__all__ = ["read_csv", "read_json", "read_parquet"]

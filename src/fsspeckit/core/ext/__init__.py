"""Readers of files that are not datasets: read Parquet, CSV and JSON files into one `pa.Table`.

Must not: change a value without an error, or read a dataset that may have a commit in progress (`DatasetIO` does that).
Read first: inputs.py, then csv.py.
"""

from __future__ import annotations

from fsspeckit.core.ext.csv import read_csv
from fsspeckit.core.ext.json import read_json
from fsspeckit.core.ext.parquet import read_parquet

__all__ = ["read_csv", "read_json", "read_parquet"]

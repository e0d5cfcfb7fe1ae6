"""The allowed values of options, defined once for the library, the command line and pipelines. Imports nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Codec = Literal["snappy", "zstd", "gzip", "lz4", "brotli", "none"]
Curve = Literal["linear", "zorder", "hilbert"]
EngineName = Literal["spark", "duckdb", "pyarrow"]
NullKeys = Literal["error", "match"]
OnDuplicate = Literal["error", "first", "last"]
PartitionMove = Literal["check", "unchecked", "move"]
SchemaMode = Literal["strict", "evolve"]
SourceFormat = Literal["parquet", "csv", "json"]
StrategyName = Literal["upsert", "insert", "update", "full_merge", "deduplicate"]
WriteMode = Literal["append", "overwrite", "overwrite_partitions", "error", "ignore"]

DEFAULT_ENGINE: EngineName = "spark"


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise `ValueError` if an option does not have one of the allowed values.

    Example:
        >>> check_choice("curve", "linear", ("linear", "zorder"))
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")

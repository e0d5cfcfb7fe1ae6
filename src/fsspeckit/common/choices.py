"""The allowed values of options, defined once for the library, the command line and pipelines. Imports nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Codec = Literal["snappy", "zstd", "gzip", "lz4", "brotli", "none"]
Curve = Literal["linear", "zorder", "hilbert"]
Timestamps = Literal["micros"]
CatalogName = Literal["glue", "hive"]
EngineName = Literal["spark", "duckdb", "pyarrow"]
EngineChoice = Literal["spark", "duckdb", "pyarrow", "auto"]
EvolveFiles = Literal["touched", "all"]
ExportFormat = Literal["delta", "iceberg"]
ForeignChange = Literal["keep", "discard"]
NullKeys = Literal["error", "match"]
OnDuplicate = Literal["error", "first", "last"]
PartitionMove = Literal["check", "unchecked", "move"]
SchemaMode = Literal["strict", "widen", "evolve"]
SourceFormat = Literal["parquet", "csv", "json"]
StrategyName = Literal["upsert", "insert", "update", "full_merge", "deduplicate"]
PublishMode = Literal["replace", "new_names", "exchange"]
WriteMode = Literal["append", "overwrite", "overwrite_partitions", "error", "ignore"]

DEFAULT_ENGINE: EngineName = "spark"
DEFAULT_TARGET_MB = 128.0
"""Size of compacted files where the caller names no size and no number of rows; 1 MB is 1024 x 1024 bytes."""
DEFAULT_STRATEGY: StrategyName = "upsert"
DEFAULT_PUBLISH: PublishMode = "new_names"
DEFAULT_RETRIES = 3
"""How often an operation is planned again after a conflict."""


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise `ValueError` if an option does not have one of the allowed values.

    Examples:
        >>> check_choice("curve", "linear", ("linear", "zorder"))
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")

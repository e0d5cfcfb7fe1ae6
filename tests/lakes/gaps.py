"""What does not work yet on lakes of others: tests fail when one of these works, and docs/engines.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True, slots=True)
class Gap:
    """Verbs that fail on lakes, and why. Names can have ``*``."""

    lakes: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str
    engines: tuple[str, ...] = ("pyarrow", "duckdb", "spark")


_WIDER = "columns of the source have wider types than those of the files, and widen them or are refused"
_CATEGORY = "DataFusion reads no category of a new file beside categories with 64-bit offsets"
_FOLDER = "refused: Iceberg writes `region=a+b` for `a b`, which readers of hive partitions take for another value"
_MIXED = "refused: precisions of decimals differ between files"
_IDS = "refused: files have field ids of another table"
_SIGN = "pyiceberg does not find files with `#` in their path"
GAPS: tuple[Gap, ...] = (
    Gap(("pandas/by-*", "pandas/decimals", "pandas/index"), ("merge", "append", "apply_changes"), _WIDER),
    Gap(("polars/defaults", "polars/enum"), ("merge", "append"), _CATEGORY),
    Gap(("pyiceberg/by-region",), ("merge", "apply_changes", "Delta", "Iceberg"), _FOLDER),
    Gap(("pandas/decimals",), ("Delta", "Iceberg"), _MIXED),
    Gap(("pyiceberg/files",), ("Iceberg",), _IDS),
    Gap(("polars/by-region",), ("Iceberg",), _SIGN),
)


def gap(lake: str, verb: str, engine: str) -> str:
    """Why a verb does not work on a lake; nothing if it does."""
    for each in GAPS:
        if engine in each.engines and any(fnmatch(lake, name) for name in each.lakes) and verb in each.verbs:
            return each.reason
    return ""

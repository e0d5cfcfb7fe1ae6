"""What does not work on lakes of others: a test fails when one of these works, and docs/engines.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch

from lakes.readers import INSTALLED


@dataclass(frozen=True, slots=True)
class Gap:
    """Verbs that fail on lakes, and why. Names can have ``*``. A reason ``refused: ...`` is a choice."""

    lakes: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str
    reader: str = ""
    """The only reader that sees it."""


_CATEGORY = "DataFusion reads no category of a new file beside categories with 64-bit offsets"
_FOLDER = "refused: Iceberg writes `region=a+b` for `a b`, which readers of hive partitions take for another value"
_MIXED = "refused: types differ between files"
_IDS = "refused: files have field ids of another table"
GAPS: tuple[Gap, ...] = (
    Gap(("spark-*/widths", "pandas/decimals"), ("Delta", "Iceberg"), _MIXED),
    Gap(("polars/defaults", "polars/enum"), ("merge", "append"), _CATEGORY, "datafusion"),
    Gap(("pyiceberg/by-region",), ("merge", "apply_changes", "Delta", "Iceberg"), _FOLDER),
    Gap(("pyiceberg/files",), ("Iceberg",), _IDS),
)


def gap(lake: str, verb: str) -> str:
    """Why a verb does not work on a lake; nothing if it does, as far as the installed readers see."""
    for each in GAPS:
        is_seen = not each.reader or each.reader in INSTALLED
        if is_seen and any(fnmatch(lake, name) for name in each.lakes) and verb in each.verbs:
            return each.reason
    return ""


def gaps(lake: str) -> dict[str, list[str]]:
    """Reasons and verbs that do not work on a lake."""
    return {each.reason: list(each.verbs) for each in GAPS if any(fnmatch(lake, name) for name in each.lakes)}

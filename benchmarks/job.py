"""The input of a contender, and the lookup of contenders.

A contender is a function of a job. The call itself is not timed (imports, connections). It returns the timed work as a
function without parameters, which may return facts for the report. The result is at ``job.target``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

KEY = "id"
CLUSTERED_BY = ("customer", "ts")


class Where(NamedTuple):
    """The rows to delete or to update: those with a value of a column in a range."""

    column: str
    low: int
    high: int

    @property
    def sql(self) -> str:
        return f"{self.column} BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True, slots=True)
class Job:
    """A new copy of the target, the source in memory, and the files and rows that are known to change.

    ``full`` is another source for the same rows, in which every column is new.
    """

    target: Path
    source: pa.Table
    strategy: str
    affected: tuple[str, ...]
    where: Where | None = None
    full: pa.Table | None = None

    @property
    def condition(self) -> Where:
        """Return the rows that a delete or an update is about."""
        assert self.where is not None
        return self.where

    def files(self) -> list[str]:
        """Return all data files of the target."""
        return [str(path) for path in sorted(self.target.glob("*.parquet"))]

    def scratch(self) -> Path:
        """Create a folder next to the target for new files."""
        place = self.target.with_name(self.target.name + ".new")
        place.mkdir()
        return place

    def swap(self, scratch: Path) -> None:
        """Replace the target with a completely rewritten folder, as a hand-written job does."""
        old = self.target.with_name(self.target.name + ".old")
        self.target.rename(old)
        scratch.rename(self.target)


Work = Callable[[], Mapping[str, Any] | None]
Contender = Callable[[Job], Work]


def find_contender(name: str) -> Contender:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    found: Contender = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), function)
    return found

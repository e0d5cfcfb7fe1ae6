"""What a contender is given, and how contenders are found.

A contender is a function of a job. What it does when called is not timed (imports, connections); it returns the work as
a function without parameters, which is. That may return facts to report; the result stands at ``job.target``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

KEY = "id"
CLUSTERED_BY = ("customer", "ts")


@dataclass(frozen=True, slots=True)
class Job:
    """A fresh copy of the target, the source in memory, and what an oracle knows about the two."""

    target: Path
    source: pa.Table
    strategy: str
    affected: tuple[str, ...]

    def files(self) -> list[str]:
        """All data files of the target."""
        return [str(path) for path in sorted(self.target.glob("*.parquet"))]

    def scratch(self) -> Path:
        """A place beside the target for new files."""
        place = self.target.with_name(self.target.name + ".new")
        place.mkdir()
        return place

    def swap(self, scratch: Path) -> None:
        """Put a completely rewritten folder in the place of the target, as one does by hand."""
        old = self.target.with_name(self.target.name + ".old")
        self.target.rename(old)
        scratch.rename(self.target)


Work = Callable[[], Mapping[str, Any] | None]
Contender = Callable[[Job], Work]


def find_contender(name: str) -> Contender:
    """The function behind ``module:function``."""
    module, _, function = name.partition(":")
    found: Contender = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), function)
    return found

"""The part of a dataset's changes that a step reads in a run, and the terms on which the step commits.

The position of a step is stored in its commit, so that changes are processed exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsspeckit.core.dataset.place import Place
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline.model import AnyStep, PipelineFile
from fsspeckit.pipeline.order import changes_behind


@dataclass(frozen=True, slots=True)
class Window:
    """The changes that a step reads: those after ``since``, or all rows if it is None, up to a version and its time.

    ``reader`` is the name under which the position of the step is stored.
    """

    reader: str
    since: int | None
    until: int
    at: str

    @property
    def terms(self) -> dict[str, Any]:
        """The key of the commit of the step, and the position that it stores.

        The key names the position before the commit, so that of two runs that process the same changes one commits.
        """
        since = "start" if self.since is None else self.since
        return {"key": f"{self.reader}/since/{since}", "positions": {self.reader: self.until}}

    @property
    def quarantine_key(self) -> str:
        """The key of the commit to a quarantine: a repetition with more changes has more rows to set aside."""
        return f"{self.terms['key']}/until/{self.until}/quarantine"


def window_of(step: AnyStep, file: PipelineFile, datasets: Mapping[str, SparkDatasetIO], place: Place) -> Window | None:
    """Return the changes that a step reads; None if no source behind it has changes. ``place`` is its own dataset."""
    sources = changes_behind(step, file)
    if not sources:
        return None
    dataset = file.sources[sources[0]].dataset or ""
    newest = datasets[dataset].history(file.datasets[dataset].path)[0]
    reader = f"{file.name}/{step.name}"
    return Window(reader, place.journal.position(reader), newest.version, newest.at)

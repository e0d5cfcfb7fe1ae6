"""The function of a Spark task, as a Python worker of Spark runs it."""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from posixpath import basename
from typing import Any

_SPARK_ARCHIVES = ("pyspark.zip", "py4j-", "spark-core_")


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Runs a function over the batches of a task."""

    body: Callable[[Iterable[Any]], Iterator[Any]]

    @property
    def __name__(self) -> str:
        """The name of the function in Spark's plans."""
        return type(self.body).__name__

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of the function."""
        try:
            yield from self.body(batches)
        finally:
            _forget_importers()


def _forget_importers() -> None:
    """Discard the importers of Spark's own archives; Python makes them again, from a cache, when it needs them.

    Before each task Spark invalidates all importers, and an importer of an archive then reads its directory again: for
    these archives that takes 0.1 to 0.2 s, more than many tasks take.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter) and basename(importer.archive).startswith(_SPARK_ARCHIVES):
            del sys.path_importer_cache[path]

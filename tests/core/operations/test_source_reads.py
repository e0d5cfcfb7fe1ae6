"""How often a merge reads columns of its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.model import Outcome
from fsspeckit.core.operations.merge import merge
from fsspeckit.core.planning.merge_request import MergeRequest
from fsspeckit.core.storage import Storage

REQUESTS = {
    "newer_by": MergeRequest("upsert", ("id",), newer_by="n", partition_move="move"),
    "update_when": MergeRequest("upsert", ("id",), update_when="source.n > target.n", partition_move="move"),
    "insert_when": MergeRequest("upsert", ("id",), insert_when="source.n > 0", partition_move="move"),
    "partial moves": MergeRequest("upsert", ("id",), update_columns=("n",), partition_move="move"),
}


@dataclass(frozen=True, slots=True)
class CountingSource(Source):
    """Counts reads of columns."""

    reads: list[Sequence[str]] = field(default_factory=list)

    def columns(self, names: Sequence[str]) -> pa.Table:
        self.reads.append(names)
        return Source.columns(self, names)


class CountingEngine(LocalEngine):
    """The engine of this process with such a source. Reads of tasks that write files are not counted."""

    def __init__(self) -> None:
        self.reads: list[Sequence[str]] = []

    @contextmanager
    def open_source(self, given: Input, *_: Any) -> Iterator[Source]:
        yield CountingSource(given.data, self.reads)

    def run(self, storage: Storage, source: Source, *arguments: Any) -> list[Outcome]:
        return super().run(storage, Source(source.table), *arguments)


def reads_of_plan(folder: Path, request: MergeRequest, days: int) -> int:
    for day in range(days):
        path = folder / f"day={day}" / "a.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [2 * day, 2 * day + 1], "n": [0, 0]}), path)
    ids = list(range(3 * days))
    source = pa.table({"id": ids, "n": [1] * len(ids), "day": [(number // 2 + number % 2) % days for number in ids]})
    engine = CountingEngine()
    merge(engine, Input(source), Place.of(str(folder), None, None), request, dry_run=True)
    return len(engine.reads)


@pytest.mark.parametrize("name", REQUESTS)
def test_reads_of_the_source_do_not_grow_with_files(tmp_path: Path, name: str) -> None:
    few, many = (reads_of_plan(tmp_path / str(days), REQUESTS[name], days) for days in (3, 12))
    assert few == many

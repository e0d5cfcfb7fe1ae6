"""The inside of the program, as far as tests outside tests/core need it: they import it from here and nowhere else.

Fault injection needs the storage, some tests the thresholds above which an index or an exchange is worth its while,
and conformance a distributed engine in one process. A change of the inside changes this file.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest import mock

import pyarrow as pa
import pytest

from fsspeckit.common.arrow_versions import BLOOM_FILTERS, EXTENSION_TYPES, INSTALLED, VIEWS
from fsspeckit.core.commit import history as history_module
from fsspeckit.core.commit import log as log_module
from fsspeckit.core.commit import new_record
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.memory import Memory
from fsspeckit.core.commit.publishing import PublishFiles
from fsspeckit.core.commit.record import new_id
from fsspeckit.core.commit.replay import Recovery, Replayer
from fsspeckit.core.commit.seen_files import SeenFiles
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.tombstones import mark_of
from fsspeckit.core.commit.transaction import Changes, Publish, Transaction
from fsspeckit.core.dataset import snapshot as snapshot_module
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, Source, open_source
from fsspeckit.core.dataset.text_source import TextFiles
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.engine.protocol import OnDone, Scratch
from fsspeckit.core.ext.arrow_ipc import read_ipc
from fsspeckit.core.file_names import is_data_file, name_stem
from fsspeckit.core.kernels.match_keys import batches
from fsspeckit.core.model import KeySetSpec, Match, Outcome, Scan, SortNote, Task
from fsspeckit.core.operations import attempts
from fsspeckit.core.parquet import footer_chunk
from fsspeckit.core.parquet.bytes.format_fields import ChunkField, FileField, GroupField, MetaField, StatisticsField
from fsspeckit.core.parquet.bytes.thrift import I32, I64, Struct, read_struct, write_struct
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.planning import tombstones as tombstones_module
from fsspeckit.core.results import MergePlan
from fsspeckit.core.storage import Entry, Handle, LocalStorage, Storage, Tree, folders, join, local, parent, resolve
from fsspeckit.core.storage import disk as disk_calls
from fsspeckit.core.storage import fsspec as fsspec_storage
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.core.values.views import plain_schema
from fsspeckit.datasets.engine_choice import choose_engine
from fsspeckit.datasets.spark.exchange import _GatherBody, _read_ipc, _SplitBody
from fsspeckit.datasets.spark.java import ensure_java
from fsspeckit.datasets.spark.jobs import _Body, pack, place_results, unpack
from fsspeckit.datasets.spark.shared_source import SharedSource, share_inline, share_table
from fsspeckit.datasets.spark.tasks import Runner, Scanner, Scans

__all__ = [
    "BLOOM_FILTERS", "EXTENSION_TYPES", "I32", "I64", "INSTALLED", "VIEWS", "Changes", "ChunkField", "Emptied",
    "Entry", "FileField", "FsspecStorage", "GroupField", "Handle", "LocalStorage", "MergePlan", "MetaField", "Place",
    "Publish", "PublishFiles", "Snapshot", "SortNote", "StatisticsField", "Storage", "Struct", "TextFiles", "Tree",
    "choose_engine", "disk_calls", "ensure_java", "folders", "footer_chunk", "fsspec_storage", "is_data_file",
    "join", "local", "log_module", "name_stem", "new_id", "parent", "plain_schema", "read_ipc", "read_struct",
    "report_damage", "resolve", "snapshot_module", "tombstones_module", "write_struct",
]  # fmt: skip

THRESHOLDS = {
    "files of an index": (
        "fsspeckit.core.dataset.indexed_files.MIN_FILES",
        "fsspeckit.core.dataset.indexed_files.MIN_LOCAL_FILES",
        "fsspeckit.core.commit.file_kinds.MIN_FILES",
        "fsspeckit.core.commit.file_kinds.MIN_LOCAL_FILES",
        "fsspeckit.core.planning.pruned_files.MIN_FILES",
        "fsspeckit.core.commit.listing.MANY_FILES",
    ),
    "footers of a job": ("fsspeckit.core.dataset.indexed_files.MANY_FOOTERS",),
    "rows of a part": ("fsspeckit.core.kernels.find_duplicates._PART_ROWS",),
    "rows of an item": ("fsspeckit.core.kernels.find_duplicates._ITEM_ROWS",),
    "bytes of a range": ("fsspeckit.core.operations.optimize.RANGE_BYTES",),
    "bytes of a part of a file": ("fsspeckit.core.dataset.parquet_source._PART_BYTES",),
    "pieces in memory": ("fsspeckit.core.engine.local._PIECES_IN_MEMORY",),
    "bytes of a small dataset": ("fsspeckit.datasets.engine_choice.SMALL_BYTES",),
    "bytes of a small file": ("fsspeckit.datasets.spark.file_source.SMALL_BYTES",),
}


def lower(patch: pytest.MonkeyPatch, threshold: str, value: int = 1) -> None:
    """Set a threshold, so that a small dataset takes the way of a large one."""
    for name in THRESHOLDS[threshold]:
        patch.setattr(name, value)


SMALL = {
    "fsspeckit.core.kernels.exchange.table_files._CHUNK_BYTES": 200,
    "fsspeckit.core.kernels.exchange.route_rows._RUN_BYTES": 100,
    "fsspeckit.core.kernels.exchange.split_keys._SKEW_ROWS": 3,
    "fsspeckit.core.kernels.exchange.change_histories._PIECE_BYTES": 200,
    "fsspeckit.core.kernels.exchange.change_histories._OLD_ROWS": 3,
    "fsspeckit.core.kernels.changed_rows._ROWS_AT_ONCE": 3,
    "fsspeckit.core.kernels.find_duplicates._PART_ROWS": 11,
    "fsspeckit.core.planning.exchange.source_summary._MOST_RANGES": 5,
    "fsspeckit.core.planning.exchange.source_summary._SCAN_ROWS": 5,
    "fsspeckit.core.values.keys._MAX_CODE": 3,
    "fsspeckit.core.values.keys.FEW_TEXTS": 0,
    "fsspeckit.core.kernels.match_keys.FEW_TEXTS": 0,
    "fsspeckit.core.values.text_table._MIN_VALUES": 1,
    "fsspeckit.core.values.text_table._BLOCK_ROWS": 3,
    "fsspeckit.core.planning.statistics._MAX_SORTED_TEXTS": 1,
    "fsspeckit.datasets.duckdb.matching.MAX_BATCH_ROWS": 8,
}
"""Limits so low that a few rows are very many: they come in many pieces, and keys go into the larger structures."""


def few_rows_are_many(patch: pytest.MonkeyPatch) -> None:
    """Lower all limits of `SMALL`, and let DuckDB join all keys."""
    for name, value in SMALL.items():
        patch.setattr(name, value)
    patch.setattr("fsspeckit.datasets.duckdb.engine.is_searched", lambda *_: False)


def publish_by(patch: pytest.MonkeyPatch, mode: str) -> None:
    """Let all commits publish in one mode."""
    patch.setattr(Journal, "publish", mode)


@contextmanager
def before_commit(act: Callable[[], Any]) -> Iterator[None]:
    """Act once, when the next operation has staged its change and begins to commit, or to remove versions."""
    left = [act]

    def late(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if left:
                left.pop()()
            return method(*arguments, **options)

        return call

    with (
        mock.patch.object(Transaction, "commit", late(Transaction.commit)),
        mock.patch.object(Journal, "expire", late(Journal.expire)),
        mock.patch.object(attempts, "_FIRST_WAIT_SECONDS", 0.001),
    ):
        yield


def by_shuffle(io: Any) -> Any:
    """The same `SparkDatasetIO`, whose keys and packets go through Spark's shuffle, as on a cluster.

    One machine would scan keys in the driver, and keep packets in files.
    """
    io.engine.scans_here, io.engine.packets = (lambda _: False), nullcontext
    return io


# A distributed engine in one process: tasks get and return pickled bytes, and every source is exchanged. The bodies of
# tasks are those of the Spark engine. What Spark does, to move bytes between processes, is done by a loop.

_TASKS = 3
_SLOTS = 2


def run_items(function: Callable[[Any], Any], items: Sequence[Any], on_done: OnDone) -> list[Any]:
    """Apply a function to all items in tasks that get nothing but bytes."""
    count = min(_TASKS, len(items))
    body = _Body(function, dict(enumerate(pack(items, count))))
    results: list[Any] = [None] * len(items)
    given = [[pa.record_batch({"number": pa.array([number])})] for number in range(count)]
    answers = {number: _run(body, batch)[0]["result"][0].as_py() for number, batch in enumerate(given)}
    place_results(answers, results, count)
    on_done(len(items))
    return results


def exchange(
    split: Callable[..., Any], items: Sequence[Any], gather: Callable[..., Any], parts: int, on_done: OnDone
) -> list[Any]:
    """Split items and gather parts in tasks that get nothing but bytes; the last task's cells arrive first."""
    count = max(1, min(_TASKS, len(items)))
    body = _SplitBody(split, pack(list(enumerate(items)), count), parts, None)
    numbers = [[pa.record_batch({"number": pa.array([number])})] for number in reversed(range(count))]
    cells = pa.Table.from_batches([cell for batch in numbers for cell in _run(body, batch)])
    results: list[Any] = []
    for part in range(parts):
        mine = cells.filter(pa.compute.equal(cells["part"], part))
        failed = [cell for cell in cells.to_pylist() if cell["item"] == -2]
        if failed:
            unpack(failed[0]["blob"])
        (answer,) = _run(_GatherBody(gather, _read_ipc), mine.to_batches())
        results += unpack(answer["result"][0].as_py())
    on_done(len(items) + parts)
    return results


def _run(body: Callable[..., Iterator[pa.RecordBatch]], given: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Run the body of a task as a worker gets it: as bytes."""
    from pyspark import cloudpickle

    return list(pickle.loads(cloudpickle.dumps(body))(given))


class ExchangingEngine(LocalEngine):
    """See `fsspeckit.core.engine.protocol.Engine`; no source is small enough to be shared."""

    name = "exchange"
    distributes = True
    share_limit = 0

    def distribute(self, storage: Storage, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Apply a function to batches of items."""
        half = -(-len(items) // 2)
        lots = [lot for lot in (items[:half], items[half:]) if lot]
        return [result for results in run_items(function, lots, lambda _: None) for result in results]

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        """Write the rows of the source to files in a folder of the machine, as executors of one machine share them."""
        table = open_source(given).table
        if table.num_rows == 0:
            yield share_inline(table)
            return
        with TemporaryDirectory(prefix="fsspeckit-") as folder:
            yield share_table(table, *resolve(os.path.realpath(folder)), 0)

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Scan key columns in tasks."""
        assert isinstance(source, SharedSource)
        wanted = [(len(spec.rows), spec.keys) for spec in specs]
        work = [Scans(specs[batch[0].group], tuple(batch)) for batch in batches(scans, wanted, _SLOTS)]
        found = run_items(Scanner(storage, source.handle), work, lambda _: None)
        on_done(len(scans))
        return [match for matches in found for match in matches]

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run the file kernel in tasks."""
        assert isinstance(source, SharedSource)
        return run_items(Runner(storage, source.handle, staging), tasks, on_done)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], on_done: OnDone) -> list[Any]:
        """Apply a function to all items in tasks."""
        return run_items(function, items, on_done)

    def exchange(
        self,
        split: Callable[[Any], Iterable[tuple[int, pa.Table]]],
        items: Sequence[Any],
        gather: Callable[[int, Iterator[pa.Table]], Any],
        parts: int,
        on_done: OnDone,
    ) -> list[Any]:
        """Shuffle rows from items to parts."""
        return exchange(split, items, gather, parts, on_done)

    def committed(self, place: Place) -> None:
        """Do nothing: nothing is cached."""


def by_exchange(io: Any) -> Any:
    """The same `DatasetIO` on this engine."""
    io.engine = ExchangingEngine()
    return io


# What the sweeps of faults ask a dataset after a fault.


def recover(storage: Storage, root: str) -> Recovery:
    """Recover as every operation does at its start. A user's `recover` would also end live writers on object stores."""
    return Journal(storage, root).recover()


def files_of(storage: Storage, root: str) -> list[str]:
    """Where the files are that a reader of the program would read."""
    return [file.location for file in Journal(storage, root).view().files]


def tombstones_of(storage: Storage, root: str) -> list[str]:
    """Where the files with the keys are that change feeds have deleted."""
    journal = Journal(storage, root)
    return [file.location for file in journal.tombstones(journal.view()).located]


def versions_of(storage: Storage, root: str) -> list[list[str]]:
    """Where the files of each readable version are, oldest first."""
    journal = Journal(storage, root)
    versions = journal.versions(journal.view(), root)
    readable = [each.version for each in versions.history if each.readable]
    return [[file.location for file in versions.view_of(number).files] for number in reversed(readable)]


def left_behind(storage: Storage, root: str) -> set[str]:
    """Everything beside a dataset that is no part of its journal, and what a recovery would work on."""
    sidecar = SidecarLocations(storage, root).find()
    if sidecar is None:
        return set()
    log = Log(storage, sidecar)
    state = log.state()
    known = {join(log.folder, f"{seq:020d}.{kind}") for seq in state.records for kind in ("json", "done")}
    marks = [
        name
        for name in storage.list_names(log.folder)
        if name.startswith(("retain-", "floor-", "probed-", "late-", "gone-", "types-"))
    ]
    known |= {log.lock_path, log.staging_lock_path, *(join(log.folder, name) for name in marks)}
    known |= {join(log.kept_folder, item.name) for seq in state.records for item in log.read(seq).kept}
    deleted = log.tombstones(state)
    known |= {join(log.tombstones_folder, file.name) for file in deleted.files}
    known |= {join(log.folder, mark_of(deleted.slot, len(deleted.files)))}
    listed = {entry.path for entry in storage.list_tree(sidecar).files}
    stray = {join(sidecar, path) for path in listed if not path.startswith("index/")} - known  # the index is a cache
    return (
        stray | {*log.stagings()} | {*map(str, state.leftovers)} | ({"a pending commit"} if state.is_pending else set())
    )


@contextmanager
def short_journals(records: int = 4, slack: int = 1, joined: int = 2) -> Iterator[None]:
    """Let commits fold their records early."""
    with (
        mock.patch.multiple(log_module, KEPT_RECORDS=records, _PRUNE_SLACK=slack),
        mock.patch.object(history_module, "_JOINED", joined),
    ):
        yield


def half_a_start(storage: LocalStorage, root: str, crash: type[BaseException]) -> None:
    """Create a sidecar, and crash before it is synced."""
    with mock.patch.object(LocalStorage, "sync_dirs", side_effect=crash), pytest.raises(crash):
        SidecarLocations(storage, root).create()


@contextmanager
def commit_at(when: datetime) -> Iterator[None]:
    """Let commits have another time than that of the clock."""
    clock = mock.Mock(wraps=datetime)
    clock.now.return_value = when
    with mock.patch.object(new_record, "datetime", clock):
        yield


@contextmanager
def failing_commits(*, of_positions: bool = False) -> Iterator[None]:
    """Let the storage fail in commits; only in those that keep the position of a reader."""
    original = Transaction.commit

    def commit(self: Transaction, *changes: Any) -> Any:
        if self._terms.seen or not of_positions:
            raise OSError("the disk is gone")
        return original(self, *changes)

    with mock.patch.object(Transaction, "commit", commit):
        yield


@contextmanager
def dying_commits(when: Literal["before", "after"], error: type[BaseException]) -> Iterator[None]:
    """Crash before or after the record of a commit."""
    target, name = (Transaction, "_claim") if when == "before" else (Replayer, "publish_all")
    with mock.patch.object(target, name, side_effect=error):
        yield


@contextmanager
def forgetting_positions() -> Iterator[None]:
    """Let readers of changes and new files see no position."""
    with (
        mock.patch.object(Memory, "position", return_value=None),
        mock.patch.object(Memory, "seen_files", return_value=SeenFiles()),
    ):
        yield


def commit_without_export(path: str) -> None:
    """Remove a file as a process does that ends before it exports its commit."""
    journal = Journal(LocalStorage(), path)
    view = journal.view()
    with journal.begin(view, "clear") as transaction:
        transaction.commit(Changes(retire=(view.files[0].path,), complete_view=True))

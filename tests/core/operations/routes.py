"""Runs one call by every route of a source: in memory, on each engine of this process, and exchanged between parts.

Everything that a caller can see is compared: rows of every file, counts, plans, dry runs, and errors with their texts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset.source import Input, Source, open_source
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.engine.protocol import Scratch
from fsspeckit.core.kernels import changed_rows, find_duplicates
from fsspeckit.core.kernels.exchange import change_histories, route_rows, split_keys, table_files
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.planning.exchange import source_summary
from fsspeckit.core.storage import Storage, resolve
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import by_exchange

Call = Callable[..., Any]
"""Runs an operation of a dataset: its arguments are the engine, the path and ``dry_run``."""
_MEASURED = ("seconds", "commit_seconds", "source_route", "share_limit", "settings", "path", "stamp")


@dataclass(frozen=True)
class Piece:
    """A part of a table."""

    table: pa.Table
    names: tuple[str, ...]
    first_row: int

    def read(self) -> pa.Table:
        return self.table.select(list(self.names))

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.read().to_batches(max_chunksize=7))


@dataclass(frozen=True)
class UnorderedSource(Source):
    """A table whose rows count as the result of a shuffle."""

    @property
    def ordered(self) -> bool:
        return False


class UnorderedEngine(LocalEngine):
    """An engine of this process whose sources have no order."""

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        yield UnorderedSource(open_source(given).table)


@dataclass(frozen=True)
class ExchangedSource(Source):
    """A table in three parts that counts as too large to share."""

    folder: str
    is_ordered: bool = True

    @property
    def ordered(self) -> bool:
        return self.is_ordered

    @property
    def exchange_folder(self) -> TableFolder:
        return TableFolder(*resolve(self.folder))

    def pieces(self, names: Any) -> list[Piece]:
        cuts = sorted({0, self.rows // 3, self.rows // 3 + 1, self.rows})
        return [Piece(self.table.slice(a, b - a), tuple(names), a) for a, b in pairwise(cuts)]

    def chunks(self) -> list[Source]:
        return [Source(piece.table) for piece in self.pieces(self.schema.names)]


class ExchangingEngine(LocalEngine):
    """An engine of this process that treats every source as too large to share."""

    def __init__(self, folder: Path, *, ordered: bool = True) -> None:
        self.folder, self.ordered = folder, ordered

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        source = open_source(given)
        yield ExchangedSource(source.table, str(self.folder), self.ordered) if source.rows else source


def many_pieces(patch: pytest.MonkeyPatch) -> None:
    """Rows are sent in many runs, read row group by row group, and keys that occur several times are joined early."""
    patch.setattr(table_files, "_CHUNK_BYTES", 200)
    patch.setattr(route_rows, "_RUN_BYTES", 100)
    patch.setattr(changed_rows, "_ROWS_AT_ONCE", 3)
    patch.setattr(split_keys, "_SKEW_ROWS", 3)
    patch.setattr(change_histories, "_PIECE_BYTES", 200)
    patch.setattr(change_histories, "_OLD_ROWS", 3)
    patch.setattr(find_duplicates, "_PART_ROWS", 11)
    patch.setattr(source_summary, "_MOST_RANGES", 5)
    patch.setattr(source_summary, "_SCAN_ROWS", 5)


def in_memory(*, ordered: bool = True) -> PyarrowDatasetIO:
    """An engine that decides about the rows of every source in memory."""
    io = PyarrowDatasetIO()
    if not ordered:
        io.engine = UnorderedEngine()
    return io


def exchanging(folder: Path, *, ordered: bool = True) -> PyarrowDatasetIO:
    """An engine that exchanges the rows of every source, by files in a folder."""
    folder.mkdir(exist_ok=True)
    io = PyarrowDatasetIO()
    io.engine = ExchangingEngine(folder, ordered=ordered)
    return io


@dataclass
class Routes:
    """Runs calls by every route, each on a copy of one dataset.

    ``rows_in_order`` is false for operations for which the order of rows in files is not defined.
    """

    folder: Path
    ordered: bool = True
    rows_in_order: bool = True
    ios: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ios = self.ios or {
            "memory": in_memory(ordered=self.ordered),
            "exchange": exchanging(self.folder / "scratch", ordered=self.ordered),
            **({"duckdb": DuckDBDatasetIO(), "tasks": by_exchange(PyarrowDatasetIO())} if self.ordered else {}),
        }

    @property
    def target(self) -> str:
        """The dataset to write before the first call; it may stay absent."""
        return str(self.folder / "target")

    def outcome(self, call: Call) -> Any:
        """Return what all routes give: a list with the dry run and the result, or errors instead, and the files."""
        found = {name: self._outcome(name, io, call) for name, io in self.ios.items()}
        (first, expected), *others = found.items()
        for name, each in others:
            differences = [f"{a}\n  {b}" for a, b in zip(expected, each, strict=True) if a != b]
            assert not differences, f"{first} and {name} differ:\n  " + "\n  ".join(differences)
        return expected

    def _outcome(self, name: str, io: Any, call: Call) -> Any:
        path = str(self.folder / name)
        for folder in (path, str(self.folder / f".{name}.fsspeckit")):
            shutil.rmtree(folder, ignore_errors=True)
        if os.path.exists(self.target):
            shutil.copytree(self.target, path)
        before = self._files(path)
        found: list[Any] = []
        for dry_run in (True, False):
            try:
                result = call(io, path, dry_run=dry_run)
            except Exception as error:  # noqa: BLE001 - the same on each route
                found.append((type(error), str(error).replace(path, "PATH")))
                assert self._files(path) == before, "an error changes nothing"
            else:
                shown = _plain(result.to_dict(), path, set(before))
                for file in () if self.rows_in_order else shown.get("files", ()):
                    file.pop("size_bytes")
                found.append(shown)
        return [*found, self._contents(path)]

    def _files(self, path: str) -> dict[str, float]:
        files = (file for file in Path(path).rglob("*.parquet") if ".fsspeckit" not in str(file))
        return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in files}

    def _contents(self, path: str) -> list[tuple[str, str]]:
        found = []
        for name in self._files(path):
            table = pq.read_table(os.path.join(path, name), partitioning=None)
            rows = [str(row) for row in table.to_pylist()]
            found.append(
                (os.path.dirname(name), f"{table.schema.names} {rows if self.rows_in_order else sorted(rows)}")
            )
        return sorted(found)


def failure(outcome: Sequence[Any]) -> tuple[type, str]:
    """Return the error of an outcome, which is the same in the dry run."""
    dry, real, _ = outcome
    assert isinstance(real, tuple), f"no error: {real}"
    assert dry == real
    return real


def succeeded(outcome: Sequence[Any]) -> Mapping[str, Any]:
    """Return the result of an outcome without an error."""
    dry, real, _ = outcome
    assert isinstance(dry, dict)
    assert isinstance(real, dict), real
    return real


def _plain(value: Any, path: str, before: set[str]) -> Any:
    """Return a value without what differs from run to run: times, names of new files, and the path of the copy."""
    if isinstance(value, dict):
        shown = {key: _plain(each, path, before) for key, each in value.items() if key not in _MEASURED}
        return shown | ({"reason": _why(shown["reason"])} if "reason" in shown else {})
    if isinstance(value, list | tuple):
        return sorted((_plain(each, path, before) for each in value), key=str)
    if isinstance(value, str) and value.endswith(".parquet"):
        name = os.path.relpath(value, path) if os.path.isabs(value) else value
        return name if name in before else f"{os.path.dirname(name)}/new"
    return value


def _why(reason: str) -> str:
    """A reason without the step that excluded a file: an exchange prunes with ranges of keys and not with all keys."""
    return "searched" if reason in ("partition", "statistics", "key scan", "empty", "bloom") else reason

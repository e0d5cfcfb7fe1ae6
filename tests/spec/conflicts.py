"""Which operations conflict with which: tries every pair on local disk and S3, and writes the table of guarantees.

One operation plans and stages its change of partition `a`, row 1. Before it commits, another one commits: a change of
the same row, of another file of the same partition, or of another partition. `make conflicts` writes the table.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import CommitConflictError, DatasetNotFoundError, VersionNotFoundError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import before_commit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"
_START, _END = "<!-- conflicts: begin -->", "<!-- conflicts: end -->"


@dataclass(frozen=True, slots=True)
class Where:
    """What an operation changes: a partition, a row of it, and a key that no row has."""

    day: str
    key: int
    new: int


MINE = Where("a", 1, 101)
DISTANCES = {"same rows": Where("a", 1, 101), "same partition": Where("a", 5, 102), "always": Where("b", 11, 103)}
"""How far away the other change is. The name is what the table says if that is the farthest one with a conflict."""
_VERSION = 2
"""The version that a restore wants: that before the last change of :func:`start`."""
Call = Callable[[PyarrowDatasetIO, str, Where, int], Any]


def _row(where: Where, v: str, key: int | None = None) -> pa.Table:
    return pa.table({"id": [where.key if key is None else key], "v": [v], "n": [1], "day": [where.day]})


def _merge(strategy: str, **options: Any) -> Call:
    def call(io: PyarrowDatasetIO, path: str, at: Where, retries: int) -> Any:
        rows = pa.concat_tables([_row(at, strategy), _row(at, strategy, at.new)])
        return io.merge(rows, path, strategy=strategy, key_columns="id", retries=retries, **options)

    return call


def _scoped(io: PyarrowDatasetIO, path: str, at: Where, retries: int) -> Any:
    options: dict[str, Any] = {"strategy": "full_merge", "scope": f"id = {at.key}", "key_columns": "id"}
    return io.merge(_row(at, "scoped"), path, retries=retries, **options)


def _write(mode: Any, **options: Any) -> Call:
    def call(io: PyarrowDatasetIO, path: str, at: Where, retries: int) -> Any:
        return io.write_dataset(_row(at, mode), path, mode=mode, retries=retries, **options)

    return call


def _replace(io: PyarrowDatasetIO, path: str, at: Where, retries: int) -> Any:
    condition = f"id = {at.key}"
    return io.write_dataset(_row(at, "r"), path, mode="overwrite", replace_where=condition, retries=retries)


def _changes(io: PyarrowDatasetIO, path: str, at: Where, retries: int) -> Any:
    return io.apply_changes(_row(at, "changed"), path, key_columns="id", sequence_by="n", retries=retries)


OPERATIONS: Mapping[str, Call] = {
    "append": _write("append"),
    "upsert": _merge("upsert"),
    "insert": _merge("insert"),
    "full merge": _merge("full_merge"),
    "full merge, scope": _scoped,
    "apply_changes": _changes,
    "update": lambda io, path, at, retries: io.update(
        path, set={"v": "v || '!'"}, where=f"id = {at.key}", retries=retries
    ),
    "delete": lambda io, path, at, retries: io.delete(path, where=f"id = {at.key}", retries=retries),
    "replace_where": _replace,
    "overwrite partitions": _write("overwrite_partitions"),
    "overwrite": _write("overwrite"),
    "compact": lambda io, path, at, retries: io.compact_parquet_dataset(
        path, target_rows_per_file=100, partition_filter=f"day={at.day}", retries=retries
    ),
    "optimize": lambda io, path, at, retries: io.optimize_parquet_dataset(
        path, "v", partition_filter=f"day={at.day}", force=True, retries=retries
    ),
    "deduplicate": lambda io, path, at, retries: io.deduplicate_parquet_dataset(
        path, "id", partition_filter=f"day={at.day}", retries=retries
    ),
    "restore": lambda io, path, at, retries: io.restore(path, version=_VERSION, retries=retries),
    "keep_history": lambda io, path, at, retries: io.keep_history(path, "3d"),
    "vacuum": lambda io, path, at, retries: io.vacuum(path, older_than="0s"),
}


def start(io: PyarrowDatasetIO, path: str) -> None:
    """Two partitions of two files each; one key of each partition is in both files. Versions are kept."""
    ids = [1, 2, 9, 5, 6, 9]
    both = {"id": [*ids, *(key + 10 for key in ids)], "v": ["old"] * 12, "n": [0] * 12, "day": [*"aaaaaa", *"bbbbbb"]}
    io.write_dataset(pa.table(both), path, partition_by="day", max_rows_per_file=3)
    assert io.keep_history(path, "7d") == _VERSION
    io.update(path, set={"v": "'new'"}, where="id in (2, 12)")


def conflicts(io: PyarrowDatasetIO, path: str, name: str, other: str, distance: str, *, is_remote: bool) -> bool:
    """Return whether an operation has a conflict with another one that commits before it.

    On local disk, the rows are compared with those of running both one after the other.
    """
    mine, theirs = OPERATIONS[name], OPERATIONS[other]
    orders = () if is_remote else (0, 1)
    allowed = [rows(io, _serial(io, f"{path}/{order}", name, other, distance, order)) for order in orders]

    def run(copy: str, retries: int) -> bool:
        start(io, copy)
        try:
            with before_commit(lambda: _call(theirs, io, copy, DISTANCES[distance], 0)):
                _call(mine, io, copy, MINE, retries)
        except CommitConflictError:
            return True
        assert is_remote or rows(io, copy) in allowed, (
            f"{name} during {other}, {distance}: {rows(io, copy)}, not one of {allowed}"
        )
        return False

    found = run(f"{path}/once", 0)
    if found:
        assert not run(f"{path}/again", 3), f"{name} during {other}, {distance}: a conflict after retries"
    return found


def _serial(io: PyarrowDatasetIO, path: str, name: str, other: str, distance: str, order: int) -> str:
    start(io, path)
    calls = [(OPERATIONS[name], MINE), (OPERATIONS[other], DISTANCES[distance])]
    for call, at in calls[:: 1 if order else -1]:
        _call(call, io, path, at, 0)
    return path


def _call(call: Call, io: PyarrowDatasetIO, path: str, at: Where, retries: int) -> None:
    """Call an operation. If another one has removed all its files or its version, it has nothing to do."""
    with suppress(DatasetNotFoundError, VersionNotFoundError):
        call(io, path, at, retries)


def rows(io: PyarrowDatasetIO, path: str) -> list[tuple[Any, ...]]:
    """All rows, in the order of their values."""
    try:
        found = io.read_parquet(path).select(["id", "v", "n", "day"]).to_pylist()
    except DatasetNotFoundError:
        return []
    return sorted(tuple(row.values()) for row in found)


def cell(found: Mapping[str, bool]) -> str:
    """Return what the table says: the farthest change with a conflict."""
    names = [distance for distance in DISTANCES if found[distance]]
    assert names == list(DISTANCES)[: len(names)], found
    return names[-1] if names else "no"


def pairs() -> list[tuple[str, str]]:
    """Every operation with every other one that commits before it."""
    return list(product(OPERATIONS, OPERATIONS))


def try_pair(io: PyarrowDatasetIO, base: str, name: str, other: str) -> str:
    """Try a pair at all distances and return its cell."""
    folder = f"{base}/{uuid.uuid4().hex}"
    is_remote = "://" in base
    paths = {distance: f"{folder}/{distance.replace(' ', '-')}" for distance in DISTANCES}
    return cell({each: conflicts(io, path, name, other, each, is_remote=is_remote) for each, path in paths.items()})


def render(cells: Mapping[tuple[str, str], str]) -> str:
    """The table: a row for each operation, a column for what commits before it."""
    lines = ["| during its run commits | " + " | ".join(OPERATIONS) + " |", "|---|" + "---|" * len(OPERATIONS)]
    lines += [f"| {name} | " + " | ".join(cells[name, other] for other in OPERATIONS) + " |" for name in OPERATIONS]
    return "\n".join(lines)


def page_with(table: str) -> str:
    """The page with a new table."""
    text = PAGE.read_text("utf-8")
    head, tail = text.partition(_START)[0], text.partition(_END)[2]
    return f"{head}{_START}\n\n{table}\n\n{_END}{tail}"


def table_of_page() -> dict[tuple[str, str], str]:
    """The cells of the page as it is."""
    lines = PAGE.read_text("utf-8").partition(_START)[2].partition(_END)[0].strip().splitlines()
    grid = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    return {(row[0], other): value for row in grid[2:] for other, value in zip(grid[0][1:], row[1:], strict=True)}


def main(arguments: Iterable[str]) -> None:
    """Try all pairs on local disk and on S3, which must agree, and write the table."""
    import tempfile

    from moto.server import ThreadedMotoServer

    with tempfile.TemporaryDirectory() as base:
        local = {pair: try_pair(PyarrowDatasetIO(), base, *pair) for pair in pairs()}
    if "--local" not in arguments:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            options = {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
            import s3fs

            s3fs.S3FileSystem(**options).mkdir("conflicts")
            io = PyarrowDatasetIO(storage_options=options)
            remote = {pair: try_pair(io, "s3://conflicts", *pair) for pair in pairs()}
        finally:
            server.stop()
        assert remote == local, {pair: (local[pair], remote[pair]) for pair in local if local[pair] != remote[pair]}
    PAGE.write_text(page_with(render(local)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

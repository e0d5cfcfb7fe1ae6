"""The merge cases: their data, their contenders, and the bars that must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.data import (
    KEY_STEP,
    Size,
    build_delta,
    build_small_files,
    build_target,
    rows,
    save_source,
    sorted_ids,
    uuids,
)
from benchmarks.job import Where

OURS = "fsspeckit"
DUCKDB = "fsspeckit, DuckDB"
LIMITED = "fsspeckit, DuckDB, 1 GB"
LIMIT = "limit"
_TARGET = Size(100, 100_000)
_UUIDS = Size(50, 100_000)
_SYNC = Size(20, 100_000)
_SMALL_ROWS = 20
_NEW_SHARE = 10


@dataclass(frozen=True, slots=True)
class Inputs:
    """The folders of a case, and the files that are known to change."""

    target: Path
    source: Path
    affected: tuple[str, ...]
    delta: Path | None = None
    where: Where | None = None
    full: Path | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit for the number of one contender, relative to another contender or to a constant."""

    metric: str
    factor: float
    base: str | None = None
    base_case: str | None = None
    of: str = OURS

    def text(self) -> str:
        who = "" if self.of == OURS else f" of {self.of}"
        if self.base is None:
            return f"{self.metric}{who} at most {self.factor:g}"
        where = f" of '{self.base_case}'" if self.base_case else ""
        return f"{self.metric}{who} at most {self.factor:g} x {self.base}{where}"


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark with its contenders (label to ``module:function``) and the bars for fsspeckit.

    Contenders in ``unchecked`` are there for comparison and have another result.
    """

    name: str
    title: str
    strategy: str
    build: Callable[[Path, float, bool], Inputs]
    contenders: Mapping[str, str]
    bars: tuple[Bar, ...]
    checked: bool = True
    cold: bool = True
    base: str = LIMIT
    most_repeats: int | None = None
    unchecked: tuple[str, ...] = ()


def sorted_target(data: Path, size: Size) -> Path:
    folder = data / f"target-{size.files}x{size.rows_per_file}"
    build_target(folder, size, sorted_ids)
    return folder


def delta_of(target: Path, wanted: bool) -> Path | None:
    if not wanted:
        return None
    folder = target.with_name(target.name + "-delta")
    build_delta(folder, target)
    return folder


def names(files: range | list[int]) -> tuple[str, ...]:
    return tuple(f"part-{index:05d}.parquet" for index in files)


def changes(positions: npt.NDArray[np.int64], seed: int) -> pa.Table:
    """Return rows for these row numbers of a target; one in ten has a new key."""
    ids = positions * KEY_STEP
    ids[::_NEW_SHARE] += 1
    return rows(pa.array(ids), 1_000_000 + seed)


def clustered(data: Path, scale: float, delta: bool) -> Inputs:
    size = _TARGET.scaled(scale)
    target, first = sorted_target(data, size), size.files // 2
    start, count = first * size.rows_per_file - size.rows_per_file // 2, 2 * size.rows_per_file
    step = max(1, count // max(1, round(10_000 * scale**0.5)))
    source = data / f"{target.name}-clustered"
    save_source(source, lambda: changes(np.arange(start, start + count, step), 1))
    return Inputs(target, source, names(range(first - 1, first + 2)), delta_of(target, delta))


def scattered(data: Path, scale: float, delta: bool) -> Inputs:
    size = _TARGET.scaled(scale)
    target, step = sorted_target(data, size), 100
    source = data / f"{target.name}-scattered"
    save_source(source, lambda: changes(np.arange(7, size.rows, step), 2))
    return Inputs(target, source, names(range(size.files)), delta_of(target, delta))


def _random_keys(data: Path, scale: float, delta: bool) -> Inputs:
    size = _UUIDS.scaled(scale)
    target = data / f"uuids-{size.files}x{size.rows_per_file}"
    build_target(target, size, uuids)
    hit = [size.files // 3, size.files // 2]
    count = max(10, round(1_000 * scale**0.5))
    source = data / f"{target.name}-few"

    def make() -> pa.Table:
        half, new = (count - count // _NEW_SHARE) // 2, count // _NEW_SHARE
        old = [uuids(file * size.rows_per_file + 5, half) for file in hit]
        return rows(pa.concat_arrays([*old, uuids(size.rows, new)]), 1_000_003)

    save_source(source, make)
    return Inputs(target, source, names(hit), delta_of(target, delta))


def full_sync(data: Path, scale: float, delta: bool) -> Inputs:
    """Of every twenty rows, delete one, change two, add one and keep the rest."""
    size = _SYNC.scaled(scale)
    target = sorted_target(data, size)
    source = data / f"{target.name}-sync"

    def make() -> pa.Table:
        import pyarrow.parquet as pq

        old = pa.concat_tables([pq.read_table(path) for path in sorted(target.glob("*.parquet"))])
        number = np.arange(size.rows)
        changed, gone = number[number % 10 == 3], number % 20 == 0
        order = number.copy()
        order[changed] = size.rows + np.arange(len(changed))
        fresh = rows(pa.array(changed * KEY_STEP), 1_000_004)
        kept = pa.concat_tables([old, fresh]).take(pa.array(order[~gone]))
        new = rows(sorted_ids(size.rows, size.rows // 20), 1_000_005)
        return pa.concat_tables([kept, new]).combine_chunks()

    save_source(source, make)
    return Inputs(target, source, names(range(size.files)), delta_of(target, delta))


def _planning(files: int) -> Callable[[Path, float, bool], Inputs]:
    def build(data: Path, scale: float, _delta: bool) -> Inputs:
        count = max(20, round(files * scale))
        target = data / f"small-{count}x{_SMALL_ROWS}"
        build_small_files(target, count, _SMALL_ROWS)
        source = data / f"{target.name}-few"
        first = count // 2
        number = np.arange(first * _SMALL_ROWS, (first + max(1, count // 200)) * _SMALL_ROWS)
        save_source(source, lambda: changes(number, 6))
        return Inputs(target, source, ())

    return build


MERGES: tuple[Case, ...] = (
    Case(
        "clustered",
        "Small upsert: 10,000 rows in a narrow key range, 3 of 100 files (10M rows) affected",
        "upsert",
        clustered,
        {
            OURS: "ours:merge",
            DUCKDB: "ours:merge_duckdb",
            LIMIT: "limit:upsert",
            "limit, default writer": "limit:upsert_default_writer",
            "DuckDB, per file": "duckdb_hand:upsert_per_file",
            "DuckDB, whole": "duckdb_hand:upsert_whole",
            "polars, whole": "polars_hand:upsert",
            "delta-rs": "delta_rs:upsert",
        },
        (Bar("wall", 2.0, LIMIT),),
    ),
    Case(
        "scattered",
        "Scattered upsert: 100,000 rows over all of 100 files (10M rows)",
        "upsert",
        scattered,
        {
            OURS: "ours:merge",
            DUCKDB: "ours:merge_duckdb",
            LIMIT: "limit:upsert",
            "polars, whole": "polars_hand:upsert",
            "limit, default writer": "limit:upsert_default_writer",
            "DuckDB, per file": "duckdb_hand:upsert_per_file",
            "DuckDB, whole": "duckdb_hand:upsert_whole",
            "delta-rs": "delta_rs:upsert",
        },
        (
            Bar("wall", 1.3, LIMIT),
            Bar("wall", 1.2, "polars, whole"),
            Bar("peak_mb", 600),
            Bar("wall", 1.2, OURS, of=DUCKDB),
        ),
    ),
    Case(
        "again",
        "The scattered upsert a second time: nothing is rewritten",
        "upsert",
        scattered,
        {OURS: "ours:merge_again", "read the affected files": "limit:compare"},
        (Bar("rewritten_files", 0), Bar("written_mb", 0.1)),
        checked=False,
        cold=False,
        base="read the affected files",
    ),
    Case(
        "uuid",
        "Random uuid keys: 1,000 rows that hit 2 of 50 files (5M rows)",
        "upsert",
        _random_keys,
        {
            OURS: "ours:merge",
            DUCKDB: "ours:merge_duckdb",
            "keys + limit": "limit:scan_keys_and_upsert",
            LIMIT: "limit:upsert",
            "DuckDB, per file": "duckdb_hand:upsert_per_file_by_keys",
            "DuckDB, whole": "duckdb_hand:upsert_whole",
            "polars, whole": "polars_hand:upsert",
            "delta-rs": "delta_rs:upsert",
        },
        (Bar("wall", 1.3, "keys + limit"),),
        base="keys + limit",
    ),
    Case(
        "full_merge",
        "full_merge of 2M rows into 2M: 10 % changed, 5 % gone, 5 % new (DuckDB and polars only write the source)",
        "full_merge",
        full_sync,
        {
            OURS: "ours:merge",
            DUCKDB: "ours:merge_duckdb",
            LIMIT: "limit:full_sync",
            "DuckDB, no counts": "duckdb_hand:full_sync",
            "polars, no counts": "polars_hand:full_sync",
            "delta-rs": "delta_rs:full_sync",
        },
        (Bar("wall", 1.3, LIMIT),),
    ),
    Case(
        "plan-1k",
        "Planning only: 1,000 small files",
        "upsert",
        _planning(1_000),
        {OURS: "ours:plan", "footers": "limit:footers"},
        (Bar("wall", 3.0, "footers"),),
        checked=False,
        base="footers",
    ),
    Case(
        "plan-10k",
        "Planning only: 10,000 small files",
        "upsert",
        _planning(10_000),
        {OURS: "ours:plan", "footers": "limit:footers"},
        (Bar("wall", 3.0, "footers"), Bar("wall", 12.0, OURS, "plan-1k")),
        checked=False,
        base="footers",
    ),
    Case(
        "plan-50k",
        "Planning only: 50,000 small files, with a current footer index",
        "upsert",
        _planning(50_000),
        {OURS: "ours:plan_with_index", "without an index": "ours:plan"},
        (Bar("wall", 0.2, "without an index"),),
        checked=False,
        cold=False,
        base="without an index",
        most_repeats=2,
    ),
)

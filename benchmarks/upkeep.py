"""The maintenance cases: compact, optimize and deduplicate, how they scale, and how much sorted files save readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cases import DUCKDB, LIMITED, OURS, Bar, Case, Inputs
from benchmarks.data import Size, build_small_files, build_target, once, rows, save_source, sorted_ids

_SMALL = Size(2_000, 2_500)
_LARGE = Size(100, 100_000)
_DOUBLED = Size(60, 100_000)
_BEYOND_MEMORY = Size(58, 1_000_000)
_GROWTH = 1.2
_BARE = "pyarrow, all at once"
_SORT = "DuckDB, ORDER BY"
Build = Callable[[Path, float, bool], Inputs]


def _part(size: Size, share: float, scale: float) -> Size:
    whole = size.scaled(scale)
    return Size(max(4, round(whole.files * share)), whole.rows_per_file)


def nothing(data: Path) -> Path:
    """Return an empty source, because maintenance has none."""
    folder = data / "no-source"
    save_source(folder, lambda: pa.table({"id": pa.array([], pa.int64())}))
    return folder


def fragments(data: Path, size: Size) -> Path:
    """Build many small files."""
    target = data / f"fragments-{size.files}x{size.rows_per_file}"
    build_small_files(target, size.files, size.rows_per_file)
    return target


def doubled(data: Path, size: Size) -> Path:
    """Build a dataset in which one row in five has the key of another row."""
    target = data / f"doubled-{size.files}x{size.rows_per_file}"

    def write(partial: Path) -> None:
        random, distinct = np.random.default_rng(5), size.rows - size.rows // 5
        again = random.choice(distinct, size.rows - distinct, replace=False)
        ids = np.concatenate([np.arange(distinct), again])
        random.shuffle(ids)
        for i in range(size.files):
            part = ids[i * size.rows_per_file : (i + 1) * size.rows_per_file]
            pq.write_table(rows(pa.array(part), i), partial / f"part-{i:05d}.parquet")

    once(target, write)
    return target


def _small(share: float) -> Build:
    def build(data: Path, scale: float, _delta: bool) -> Inputs:
        return Inputs(fragments(data, _part(_SMALL, share, scale)), nothing(data), ())

    return build


def _large(share: float) -> Build:
    def build(data: Path, scale: float, _delta: bool) -> Inputs:
        size = _part(_LARGE, share, scale)
        target = data / f"target-{size.files}x{size.rows_per_file}"
        build_target(target, size, sorted_ids)
        return Inputs(target, nothing(data), ())

    return build


def _doubled(share: float, whole: Size = _DOUBLED) -> Build:
    def build(data: Path, scale: float, _delta: bool) -> Inputs:
        return Inputs(doubled(data, _part(whole, share, scale)), nothing(data), ())

    return build


def _family(
    name: str,
    title: str,
    strategy: str,
    build: Callable[[float], Build],
    contender: str,
    others: dict[str, str],
    bars: tuple[Bar, ...],
) -> list[Case]:
    """Return the case with its full, half and quarter size, to measure how it scales."""
    quarter, ours = f"{name}-quarter", {OURS: contender}
    half_bar, whole_bar = (Bar("wall", times * _GROWTH, OURS, quarter) for times in (2, 4))
    return [
        Case(quarter, f"{title}: a quarter of it", strategy, build(0.25), ours, (), cold=False, base=OURS),
        Case(f"{name}-half", f"{title}: half of it", strategy, build(0.5), ours, (half_bar,), cold=False, base=OURS),
        Case(name, title, strategy, build(1.0), ours | others, (*bars, whole_bar), base=bars[0].base or OURS),
    ]


_CLUSTER = "Clustering of 10M rows in 100 files by (customer, ts)"
_CLUSTER_BARS = (Bar("wall", 1.5, _SORT), Bar("peak_mb", 1000))
MAINTENANCE: tuple[Case, ...] = (
    *_family(
        "compact",
        "Compaction of 2,000 files of 2,500 rows",
        "same rows",
        _small,
        "ours:compact",
        {
            DUCKDB: "ours:compact_duckdb",
            _BARE: "bare:read_and_write",
            "polars": "polars_hand:compact",
            "DuckDB": "duckdb_hand:compact",
        },
        (Bar("wall", 1.3, _BARE), Bar("peak_mb", 500), Bar("wall", 1.2, "DuckDB", of=DUCKDB)),
    ),
    *_family(
        "cluster",
        f"{_CLUSTER}, linear",
        "same rows",
        _large,
        "ours:cluster_linear",
        {DUCKDB: "ours:cluster_duckdb", _SORT: "duckdb_hand:cluster", "polars, sort": "polars_hand:cluster"},
        _CLUSTER_BARS,
    ),
    *_family(
        "deduplicate",
        "Deduplication of 6M rows in 60 files, one row in five a duplicate",
        "newest row",
        _doubled,
        "ours:deduplicate",
        {
            DUCKDB: "ours:deduplicate_duckdb",
            "polars": "polars_hand:deduplicate",
            "DuckDB": "duckdb_hand:deduplicate",
        },
        (Bar("wall", 1.3, "polars"), Bar("wall", 1.3, "DuckDB"), Bar("wall", 1.2, "DuckDB", of=DUCKDB)),
    ),
    *(
        Case(
            f"cluster-{curve}",
            f"{_CLUSTER}, {curve}",
            "same rows",
            _large(1.0),
            {OURS: f"ours:cluster_{curve}", _SORT: "duckdb_hand:cluster"},
            _CLUSTER_BARS,
            base=_SORT,
        )
        for curve in ("zorder", "hilbert")
    ),
    *(
        Case(
            f"memory-{name}",
            f"{title} of 4 GB in 58 files of a million rows, memory_limit 1 GB",
            strategy,
            _doubled(1.0, _BEYOND_MEMORY),
            {LIMITED: f"ours:{name}_in_1gb"},
            (Bar("peak_mb", 1500, of=LIMITED),),
            checked=False,
            cold=False,
            base=LIMITED,
            most_repeats=1,
        )
        for name, title, strategy in (
            ("cluster", "Clustering", "same rows"),
            ("deduplicate", "Deduplication", "newest row"),
        )
    ),
    Case(
        "skipping",
        "Range queries for one row in a hundred, on customer, on ts and on both (fsspeckit: the Hilbert order)",
        "same rows",
        _large(1.0),
        {
            OURS: "skipping:hilbert",
            "linear": "skipping:linear",
            "zorder": "skipping:zorder",
            "as written": "skipping:as_written",
        },
        (Bar("ts_mb", 0.5, "linear"),),
        cold=False,
        base="as written",
    ),
)

"""The cases of the Spark engine: their data, their contenders, and the bars that must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.cases import Inputs as PlainInputs
from benchmarks.cases import changes, clustered, full_sync, scattered, sorted_target
from benchmarks.data import Size, build_parquet_source, build_target, rows, save_source, sorted_ids, uuids
from benchmarks.job import Where
from benchmarks.row_changes import ROW_CHANGES
from benchmarks.spark import contenders as who
from benchmarks.spark import formats, upkeep
from benchmarks.spark import row_changes as spark_rows
from benchmarks.upkeep import doubled, fragments, nothing

OURS = "fsspeckit"
EXCHANGE = "fsspeckit, exchange"
SHUFFLE = "fsspeckit, shuffle"
QUERY = "fsspeckit, query as source"
ARROW = "fsspeckit, Arrow source"
FOLDER = "fsspeckit, path as source"
PYARROW = "fsspeckit, PyArrow engine"
PEERS = ("by hand", "by hand, shuffled", "full outer join", *upkeep.NATIVE, formats.DELTA, formats.ICEBERG)
FORMATS = "formats"
"""The prefix of the cases beside table formats; as the name of a case, all of them."""
CLUSTER = "cluster"
"""The prefix of the cases on a cluster of two processes; as the name of a case, all of them."""
OTHERS = ("touched files", "touched files, shuffled")
_TARGET = Size(100, 100_000)
_UUIDS = Size(50, 100_000)
_FRAGMENTS = Size(5_000, 1_000)
_DOUBLED = Size(60, 100_000)
_SPARK_FILES = 4
_CLUSTER_TARGET = Size(40, 500_000)
_CLUSTER_ROWS = {"1m": 1_000_000, "4m": 4_000_000, "10m": 10_000_000}
CLUSTER_SETTINGS = {
    "spark.master": "local-cluster[2,1,3072]",
    "spark.driver.memory": "2g",
    "spark.executor.memory": "2g",
    "spark.sql.shuffle.partitions": "16",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The folders of a case: the target, the source as an Arrow file and the source as Parquet files."""

    target: Path
    source: Path
    files: Path
    affected: tuple[str, ...] = ()
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit for the number of one contender, relative to the minimum or the sum of others."""

    metric: str
    factor: float
    whose: str
    against: tuple[str, ...]
    summed: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark; a contender has its own inputs, or uses those named ``all``."""

    name: str
    title: str
    build: Callable[[Path, float], Mapping[str, Inputs]]
    contenders: Mapping[str, who.Contender]
    bars: tuple[Bar, ...]
    strategy: str = "upsert"


def _with_files(target: Path, source: Path, affected: tuple[str, ...] = ()) -> Inputs:
    files = source.with_name(source.name + "-parquet")
    build_parquet_source(files, source, _SPARK_FILES)
    return Inputs(target, source, files, affected)


def _scattered(data: Path, scale: float) -> Mapping[str, Inputs]:
    built = scattered(data, scale, False)
    return {"all": _with_files(built.target, built.source)}


def _full(data: Path, scale: float) -> Mapping[str, Inputs]:
    built = full_sync(data, scale, False)
    return {"all": _with_files(built.target, built.source)}


def _clustered(data: Path, scale: float) -> Mapping[str, Inputs]:
    built = clustered(data, scale, False)
    return {"all": _with_files(built.target, built.source)}


def _large(data: Path, scale: float) -> Mapping[str, Inputs]:
    """Build a source with random keys of the whole target; one in ten is new."""
    size = _UUIDS.scaled(scale)
    return _random_keys(data, size, size.rows * 2 // 5, "large")


def _growing(name: str) -> Callable[[Path, float], Mapping[str, Inputs]]:
    """Return a function that builds a source of the given size for a larger target."""

    def built(data: Path, scale: float) -> Mapping[str, Inputs]:
        return _random_keys(data, _CLUSTER_TARGET.scaled(scale), round(_CLUSTER_ROWS[name] * scale), name)

    return built


def _random_keys(data: Path, size: Size, count: int, name: str) -> Mapping[str, Inputs]:
    target = data / f"uuids-{size.files}x{size.rows_per_file}"
    build_target(target, size, uuids)
    source = data / f"{target.name}-{name}"

    def make() -> pa.Table:
        old = np.random.default_rng(7).permutation(size.rows)[: count - count // 10]
        new = np.arange(size.rows, size.rows + count // 10)
        keys = uuids(0, size.rows + count // 10).take(pa.array(np.concatenate([old, new])))
        return rows(keys, 1_000_007)

    save_source(source, make)
    return {"all": _with_files(target, source)}


def _small(data: Path, scale: float) -> Mapping[str, Inputs]:
    size = _TARGET.scaled(scale)
    target, first = sorted_target(data, size), size.files // 2
    source = data / f"{target.name}-small"
    count = min(1_000, size.rows_per_file // 2)
    start = first * size.rows_per_file + size.rows_per_file // 4
    save_source(source, lambda: changes(np.arange(start, start + count), 8))
    return {"all": _with_files(target, source)}


def _growth(data: Path, scale: float) -> Mapping[str, Inputs]:
    """Build targets of three sizes with one source for their first files, and one source that affects more files."""
    whole = _TARGET.scaled(scale)
    found = {}
    for name, part, hit in (("1x", 4, 3), ("2x", 2, 3), ("4x", 1, 3), ("4x, 12 files hit", 1, 12)):
        size = Size(max(12, whole.files // part), whole.rows_per_file)
        target = data / f"target-{size.files}x{size.rows_per_file}"
        build_target(target, size, sorted_ids)
        source = data / f"growth-{hit}x{size.rows_per_file}"
        save_source(source, lambda hit=hit, size=size: changes(np.arange(5, hit * size.rows_per_file, 10 * hit), 9))
        found[f"{OURS}, {name}"] = _with_files(target, source)
    return found


def _fragments(data: Path, scale: float) -> Mapping[str, Inputs]:
    target = fragments(data, _FRAGMENTS.scaled(scale))
    return {"all": _with_files(target, nothing(data))}


def _sorted(data: Path, scale: float) -> Mapping[str, Inputs]:
    return {"all": _with_files(sorted_target(data, _TARGET.scaled(scale)), nothing(data))}


def _doubled(data: Path, scale: float) -> Mapping[str, Inputs]:
    return {"all": _with_files(doubled(data, _DOUBLED.scaled(scale)), nothing(data))}


def _rows(build: Callable[[Path, float, bool], PlainInputs]) -> Callable[[Path, float], Mapping[str, Inputs]]:
    def built(data: Path, scale: float) -> Mapping[str, Inputs]:
        found = build(data, scale, False)
        return {"all": replace(_with_files(found.target, found.source), where=found.where)}

    return built


_PEERS: dict[str, who.Contender] = {
    "by hand": who.by_hand,
    "full outer join": who.full_outer,
    "touched files": who.touched_files_broadcast,
}
_SHUFFLING: dict[str, who.Contender] = {
    "by hand, shuffled": who.by_hand_shuffled,
    "touched files, shuffled": who.touched_files,
}
_BEST = "the best peer's"

CASES: tuple[Case, ...] = (
    Case(
        "scattered",
        "Scattered upsert: 100,000 rows over all of 100 files (10M rows)",
        _scattered,
        {OURS: who.ours, ARROW: who.ours_arrow, PYARROW: who.pyarrow_engine, **_PEERS},
        (
            Bar("wall", 1 / 3, OURS, PEERS, text=_BEST),
            Bar("wall", 1.5, OURS, (PYARROW,)),
        ),
    ),
    Case(
        "clustered",
        "Clustered upsert: 10,000 rows, 3 of 100 files (10M rows) affected",
        _clustered,
        {OURS: who.ours, ARROW: who.ours_arrow, PYARROW: who.pyarrow_engine, **_PEERS},
        (Bar("wall", 0.1, OURS, PEERS, text=_BEST),),
    ),
    Case(
        "large",
        "Large source: 2M rows into 5M, uuid keys, all of 50 files hit",
        _large,
        {
            OURS: who.ours,
            QUERY: who.ours_query,
            FOLDER: who.ours_path,
            ARROW: who.ours_arrow,
            EXCHANGE: who.ours_exchange,
            SHUFFLE: who.ours_shuffle,
            PYARROW: who.pyarrow_engine,
            **_PEERS,
            **_SHUFFLING,
        },
        (
            Bar("wall", 0.4, OURS, PEERS, text=_BEST),
            Bar("wall", 0.4, QUERY, PEERS, text=_BEST),
            Bar("wall", 0.4, FOLDER, PEERS, text=_BEST),
            Bar("wall", 0.4, EXCHANGE, PEERS, text=_BEST),
            Bar("wall", 0.4, SHUFFLE, PEERS, text=_BEST),
            Bar("shuffle_mb", 0.6, SHUFFLE, PEERS, text="the best shuffling peer's"),
        ),
    ),
    Case(
        "small",
        "Warm small merge: 1,000 rows, one of 100 files (10M rows) affected",
        _small,
        {
            OURS: who.ours,
            ARROW: who.ours_arrow,
            PYARROW: who.pyarrow_engine,
            "three empty jobs": who.three_empty_jobs,
            "three empty jobs, no Python": who.three_empty_java_jobs,
        },
        (
            Bar("wall", 1.5, OURS, ("three empty jobs", PYARROW), summed=True),
            Bar("wall", 1.5, ARROW, ("three empty jobs", PYARROW), summed=True),
        ),
    ),
    Case(
        "growth",
        "Growth: the same 10,000 rows into 3 files of a target of 2.5M, 5M and 10M rows; and 10,000 rows into 12 files",
        _growth,
        {f"{OURS}, {name}": who.ours for name in ("1x", "2x", "4x", "4x, 12 files hit")},
        (
            Bar("rewrite_s", 1.25, f"{OURS}, 2x", (f"{OURS}, 1x",)),
            Bar("rewrite_s", 1.25, f"{OURS}, 4x", (f"{OURS}, 1x",)),
        ),
    ),
    *(
        Case(name, title, build, contenders, (Bar("wall", 0.5, OURS, upkeep.NATIVE, text=_BEST),), strategy)
        for name, title, build, contenders, strategy in (
            ("compact", "Compaction of 5,000 files of 1,000 rows", _fragments, upkeep.COMPACT, "same rows"),
            (
                "clustering",
                "Clustering of 10M rows in 100 files by (customer, ts)",
                _sorted,
                upkeep.CLUSTER,
                "same rows",
            ),
            (
                "deduplicate",
                "Deduplication of 6M rows in 60 files, one row in five a duplicate",
                _doubled,
                upkeep.DEDUPLICATE,
                "newest row",
            ),
        )
    ),
    *(
        Case(
            case.name,
            case.title,
            _rows(case.build),
            spark_rows.CONTENDERS[case.strategy],
            (Bar("wall", 0.4, OURS, (formats.DELTA,)),),
            case.strategy,
        )
        for case in ROW_CHANGES
    ),
    *(
        Case(
            f"{FORMATS}-{name}",
            title,
            build,
            contenders,
            (Bar("wall", 1, OURS, tuple(formats.FORMATS), text=_BEST),),
            strategy,
        )
        for name, title, build, contenders, strategy in (
            ("clustered", "Beside table formats: upsert into 3 of 100 files", _clustered, formats.UPSERT, "upsert"),
            ("scattered", "Beside table formats: upsert into all of 100 files", _scattered, formats.UPSERT, "upsert"),
            ("large", "Beside table formats: upsert of 2M rows into 5M", _large, formats.UPSERT, "upsert"),
            ("full-merge", "Beside table formats: full merge", _full, formats.FULL_MERGE, "full_merge"),
            ("compact", "Beside table formats: compaction of 5,000 files", _fragments, formats.COMPACT, "same rows"),
            ("zorder", "Beside table formats: z-order of 10M rows", _sorted, formats.ZORDER, "same rows"),
            ("deduplicate", "Beside table formats: deduplication", _doubled, formats.DEDUPLICATE, "newest row"),
        )
    ),
    *(
        Case(
            f"{CLUSTER}-{name}",
            f"On a cluster of two processes: upsert of {count:,} rows into 20M, uuid keys, all of 40 files hit",
            _growing(name),
            {**formats.UPSERT, "by hand, shuffled": who.by_hand_shuffled},
            (Bar("wall", 0.8, OURS, ("by hand, shuffled",)), Bar("wall", 0.4, OURS, (formats.DELTA,))),
        )
        for name, count in _CLUSTER_ROWS.items()
    ),
)

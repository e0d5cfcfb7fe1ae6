"""What readers without fsspeckit see while a dataset on a local disk changes all the time.

A writer merges, compacts and optimizes without a pause. Every merge updates some rows of every file and inserts one
row in every partition, so each state of the dataset is known: all marked rows have the same generation, and the
generation tells the number of rows. A read that shows another state and raises no error is an anomaly.

    python -m benchmarks.readers --publish exchange --layout partitioned --seconds 60 pyarrow duckdb polars
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROWS, MARKED, PARTITIONS, FILES = 20_000, 50, 4, 8
MODES = ("replace", "new_names", "exchange with old names", "exchange")
Read = Callable[[str], tuple[int, list[int]]]
"""Returns the number of rows, and the generations of the marked rows."""


def rows(ids: list[int], generation: int) -> pa.Table:
    """Rows with the partition of their id."""
    part = [f"p{number % PARTITIONS}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "part": part, "generation": [generation] * len(ids)})


def marked() -> list[int]:
    """Ids that every merge updates; those of one partition lie in all of its files."""
    step = ROWS // (MARKED * PARTITIONS)
    return list(range(0, ROWS, step))


def new_ids(generation: int) -> list[int]:
    """Ids that the merge of a generation inserts, one for each partition."""
    first = ROWS + generation * PARTITIONS
    return list(range(first, first + PARTITIONS))


def anomaly(count: int, generations: list[int]) -> str | None:
    """Return what is wrong with a read that shows a state that the dataset never had, or None."""
    if len(generations) != len(marked()):
        return "rows missing" if len(generations) < len(marked()) else "rows twice"
    is_mixed = len(set(generations)) != 1 or count != ROWS + PARTITIONS * generations[0]
    return "two generations" if is_mixed else None


def write(path: str, mode: str, layout: str, seconds: float, ready: Any, start: Any, done: Any) -> None:
    """Change the dataset until the time is over."""
    from fsspeckit.core.dataset.place import Place
    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

    if mode == "exchange with old names":  # a candidate that was measured and is not offered
        Place.keeps_names = property(lambda _: True)  # type: ignore[assignment]
    publish: Any = "exchange" if mode.startswith("exchange") else mode
    io = PyarrowDatasetIO(publish=publish)
    partition_by = ["part"] if layout == "partitioned" else None
    io.write_dataset(rows(list(range(ROWS)), 0), path, partition_by=partition_by, max_rows_per_file=ROWS // FILES)
    ready.set()
    start.wait()
    counts: Counter[str] = Counter()
    end, generation = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        generation += 1
        source = pa.concat_tables([rows(marked(), generation), rows(new_ids(generation), generation)])
        io.merge(source, path, strategy="upsert", key_columns=["id"])
        counts["merges"] += 1
        if generation % 10 == 0:
            io.compact_parquet_dataset(path, target_rows_per_file=ROWS // FILES)
            counts["compactions"] += 1
        if generation % 15 == 5:
            io.optimize_parquet_dataset(path, zorder_columns=["id"], target_rows_per_file=ROWS // FILES)
            counts["optimizes"] += 1
    done.put(("writer", dict(counts)))


def read_pyarrow() -> Read:
    """All rows by a dataset of pyarrow."""
    import pyarrow.dataset as ds

    def read(path: str) -> tuple[int, list[int]]:
        return state(ds.dataset(path, partitioning="hive").to_table(columns=["id", "generation"]))

    return read


def read_duckdb() -> Read:
    """All rows by a query of DuckDB."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})

    def read(path: str) -> tuple[int, list[int]]:
        return state(connection.sql(f"SELECT id, generation FROM read_parquet('{path}/**/*.parquet')").to_arrow_table())

    return read


def read_polars() -> Read:
    """All rows by a lazy frame of polars."""
    import polars as pl

    def read(path: str) -> tuple[int, list[int]]:
        return state(pl.scan_parquet(f"{path}/**/*.parquet").select("id", "generation").collect().to_arrow())

    return read


def read_spark() -> Read:
    """All rows by a DataFrame of Spark."""
    from fsspeckit.datasets.spark.session import get_session

    spark = get_session()
    spark.conf.set("spark.sql.shuffle.partitions", "2")

    def read(path: str) -> tuple[int, list[int]]:
        found = spark.read.parquet(path).select("id", "generation").toPandas()
        return state(pa.Table.from_pandas(found))

    return read


READERS = {"pyarrow": read_pyarrow, "duckdb": read_duckdb, "polars": read_polars, "spark": read_spark}


def state(table: pa.Table) -> tuple[int, list[int]]:
    """Return the rows and the generations of marked rows of a table."""
    wanted = table.filter(pc.is_in(table["id"], pa.array(marked(), pa.int64())))
    return table.num_rows, wanted["generation"].to_pylist()


def watch(name: str, path: str, start: Any, end: Any, done: Any) -> None:
    """Read until the writer has finished."""
    read, found = READERS[name](), Counter({"reads": 0, "anomalies": 0, "not found": 0})
    read(path)
    start.wait()
    while not end.is_set():
        found["reads"] += 1
        try:
            count, generations = read(path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - what a reader raises is the result; polars panics
            found["not found" if is_missing(error) else f"error: {type(error).__name__}: {str(error)[:80]}"] += 1
        else:
            if wrong := anomaly(count, generations):
                found["anomalies"] += 1
                found[f"of these {wrong}"] += 1
    done.put((name, dict(found)))


def is_missing(error: BaseException) -> bool:
    """Return whether an error says that a file is missing, so that the reader has to list again."""
    text = f"{type(error).__name__} {error}".lower()
    return any(words in text for words in ("no such file", "not found", "not exist", "not_exist", "notfound"))


def soak(mode: str, layout: str, readers: list[str], seconds: float, base: str | None = None) -> dict[str, Any]:
    """Run the writer and the readers, and return what each of them did."""
    context = multiprocessing.get_context("spawn")
    folder = tempfile.mkdtemp(prefix="readers-", dir=base)
    path = os.path.join(folder, "data")
    ready, end, done = context.Event(), context.Event(), context.Queue()
    start = context.Barrier(1 + len(readers), timeout=300)
    writer = context.Process(target=write, args=(path, mode, layout, seconds, ready, start, done))
    processes = [context.Process(target=watch, args=(name, path, start, end, done)) for name in readers]
    try:
        writer.start()
        ready.wait(300)
        for process in processes:
            process.start()
        writer.join()
        end.set()
        found = dict(done.get(timeout=120) for _ in range(1 + len(processes)))
        for process in processes:
            process.join(60)
    finally:
        for process in (writer, *processes):
            with suppress(AttributeError, ValueError):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return {"publish": mode, "layout": layout, **found}


def main() -> None:
    """Run the soak of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="pyarrow, duckdb, polars, spark; by default the first three")
    parser.add_argument("--publish", choices=MODES, default="exchange")
    parser.add_argument("--layout", choices=["flat", "partitioned"], default="partitioned")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--base", type=Path)
    given = parser.parse_args()
    print(
        json.dumps(
            soak(
                given.publish, given.layout, given.readers or ["pyarrow", "duckdb", "polars"], given.seconds, given.base
            )
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()

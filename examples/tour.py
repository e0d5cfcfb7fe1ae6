"""Run pipelines on Spark over a month of order events, with a quarantine, a join, a change feed and history.

Then compare the layout and four readers before and after maintenance.

`make demo` runs it with three million rows. `python examples/tour.py [folder] [rows]` writes all files to the folder.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.cli.app import main as fsspeckit
from fsspeckit.core.result_view import columns, readable_bytes
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline import Pipeline

PIPELINES = Path(__file__).with_name("tour")
START = np.datetime64("2026-10-01T00:00:00", "us")
DAY = np.timedelta64(24 * 60 * 60 * 1_000_000, "us")
DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")
STATUS = np.array(["new", "paid", "sent", "back"])
REGIONS = np.array(["north", "south", "east", "west"])
CUSTOMERS = 200_000
QUARANTINE = ["order_id", "cents", "quarantine_reason", "quarantine_run"]


def events(rng: np.random.Generator, ids: Any, first: float, days: float) -> pa.Table:
    """Return an event for each order id: few customers have most orders, and 1 percent of events are late."""
    rows = len(ids)
    late = np.where(rng.random(rows) < 0.01, rng.random(rows) * 9, 0.0)
    at = START + (np.maximum(0.0, first + rng.random(rows) * days - late) * DAY.astype(int)).astype("timedelta64[us]")
    customer = np.minimum(rng.zipf(1.3, rows), CUSTOMERS)
    return pa.table(
        {
            "order_id": ids,
            "customer": customer.astype("int64"),
            "status": pa.array(STATUS[rng.integers(0, 4, rows)]),
            "cents": rng.integers(100, 50_000, rows),
            "at": pa.array(at.astype("datetime64[us]")),
        }
    )


def make_inputs(folder: Path, rows: int) -> None:
    """Write a month of events with duplicates, three days of old and new orders, and the regions of customers.

    Some events of the days have no price, and those of the second have a new column.
    """
    rng = np.random.default_rng(7)
    target = folder / "in"
    target.mkdir(parents=True)
    repeated = rng.integers(0, rows, rows // 100)
    pq.write_table(events(rng, np.concatenate([np.arange(rows), repeated]), 0.0, 31.0), target / "month.parquet")
    for number, day in enumerate(DAYS):
        known = rng.integers(max(0, rows - rows // 5), rows, rows // 200)
        new = np.arange(rows // 200) + rows + number * (rows // 200)
        table = events(rng, np.concatenate([known, new, new[:50]]), 31.0 + number, 1.0)
        cents = np.where(np.arange(len(table)) % 97 == 0, 0, table["cents"].to_numpy())
        table = table.set_column(table.column_names.index("cents"), "cents", pa.array(cents))
        if number == 1:
            table = table.append_column("channel", pa.array(np.where(rng.random(len(table)) < 0.5, "web", "shop")))
        pq.write_table(table, target / f"{day}.parquet")
    ids = np.arange(1, CUSTOMERS, dtype="int64")  # one customer has no region
    pq.write_table(pa.table({"id": ids, "region": REGIONS[ids % len(REGIONS)]}), target / "customers.parquet")


def run(name: str, folder: Path, **variables: str) -> None:
    """Run one of the pipelines and print its result."""
    result = Pipeline.load(PIPELINES / f"{name}.toml", {"folder": str(folder), **variables}).run()
    print(f"\n{result}")


def show_rows(title: str, path: Path, **options: Any) -> None:
    """Print the first rows of a dataset."""
    table = PyarrowDatasetIO().read_parquet(str(path), **options)
    print(f"\n{title}: {table.num_rows:,} rows")
    print(
        columns([tuple(table.column_names), *(tuple(map(str, row.values())) for row in table.slice(0, 4).to_pylist())])
    )


def show_history(lake: Path) -> None:
    """Print the versions of the orders, and compare the first day with the newest version."""
    history = PyarrowDatasetIO().history(str(lake))
    print(f"\nThe versions of the orders\n{history}")
    first = min(version.version for version in history if version.readable and version.files)
    for version in (first, history[0].version):
        rows = PyarrowDatasetIO().read_parquet(str(lake), columns=["cents"], version=version)
        print(f"  version {version}: {rows.num_rows:,} orders")


def inspect(lake: Path, *options: str) -> None:
    """Run `fsspeckit inspect` on the dataset."""
    assert fsspeckit(["inspect", str(lake), "--key", "customer", "--key", "at", "--quiet", *options]) == 0


def bytes_of_query(lake: Path, customers: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes of the row groups that can contain these customers, and of all row groups."""
    needed = total = 0
    for path in lake.glob("*.parquet"):
        footer = pq.read_metadata(path)
        column = footer.schema.to_arrow_schema().get_field_index("customer")
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            statistics = group.column(column).statistics
            total += size
            needed += size if statistics.min <= customers[1] and statistics.max >= customers[0] else 0
    return needed, total


def query_readers(lake: Path, customers: tuple[int, int]) -> list[tuple[str, tuple[int, int], float]]:
    """Run one query with four readers, without fsspeckit; return reader, result and seconds."""
    low, high = customers
    spark = SparkDatasetIO().spark
    query = f"SELECT count(*), sum(cents) FROM {{}} WHERE customer BETWEEN {low} AND {high}"
    files = f"{lake}/*.parquet"

    def of_pandas() -> tuple[int, int]:
        filters = [("customer", ">=", low), ("customer", "<=", high)]
        cents = pd.read_parquet(lake, columns=["cents"], filters=filters)["cents"]
        return len(cents), int(cents.sum())

    def of_polars() -> tuple[int, int]:
        rows = pl.scan_parquet(files, missing_columns="insert", extra_columns="ignore")
        rows = rows.filter(pl.col("customer").is_between(low, high))
        count, cents = rows.select(pl.len(), pl.col("cents").sum()).collect().row(0)
        return int(count), int(cents)

    def of_duckdb() -> tuple[int, int]:
        relation = duckdb.sql(query.format(f"read_parquet('{files}', union_by_name = true)"))
        assert relation is not None
        ((count, cents),) = relation.fetchall()
        return int(count), int(cents)

    def of_spark() -> tuple[int, int]:
        row = spark.sql(query.format(f"parquet.`file://{lake}`")).first()
        assert row is not None
        return int(row[0]), int(row[1])

    readers: dict[str, Callable[[], tuple[int, int]]] = {
        "DuckDB": of_duckdb,
        "pandas": of_pandas,
        "polars": of_polars,
        "Spark": of_spark,
    }
    results = []
    for name, read in readers.items():
        start = time.perf_counter()
        results.append((name, read(), time.perf_counter() - start))
    assert len({result for _, result, _ in results}) == 1, results
    return results


def tour(folder: Path, rows: int) -> None:
    """Run all steps."""
    start = time.perf_counter()
    lake, per_file = folder / "lake" / "orders", str(max(1_000, rows // 24))
    make_inputs(folder, rows)
    print(f"A month of {rows:,} orders with duplicates, and three days with late events and a new column: {folder}/in")

    run("month", folder, rows_per_file=per_file)
    for day in DAYS:
        run("daily", folder, day=day)
        run("regions", folder)
    show_rows("Orders without a price are in the quarantine", folder / "lake" / f"wrong-{DAYS[0]}", columns=QUARANTINE)
    show_rows("Orders joined with regions, by a feed of the changes", folder / "lake" / "totals")
    show_history(lake)
    print("\nRun the last day again, as a scheduler may do: committed steps are skipped.")
    run("daily", folder, day=DAYS[-1])

    customers = (1_000, 1_200)
    inspect(lake, "--html", str(folder / "before.html"))
    save_layout(lake, folder / "before.json")
    before = bytes_of_query(lake, customers)
    run("maintain", folder, rows_per_file=per_file)
    inspect(lake, "--html", str(folder / "after.html"), "--compare", str(folder / "before.json"))
    after = bytes_of_query(lake, customers)

    print("\nOne query with four readers: orders and cents of the customers 1,000 to 1,200")
    results = query_readers(lake, customers)
    print(columns([("reader", "orders", "cents", "seconds"), *(row_of(result) for result in results)]))
    print("\nBytes that a reader must read for this query:")
    for name, (needed, total) in (("before", before), ("after", after)):
        print(f"  {name:6}  {readable_bytes(needed)} of {readable_bytes(total)} ({needed / total:.0%})")
    print(f"\nReports:\n  {(folder / 'before.html').as_uri()}\n  {(folder / 'after.html').as_uri()}")
    print(f"\nTotal time: {time.perf_counter() - start:.0f} seconds")


def row_of(result: tuple[str, tuple[int, int], float]) -> tuple[str, ...]:
    """Return a row of the table of results."""
    name, (count, cents), seconds = result
    return name, f"{count:,}", f"{cents:,}", f"{seconds:.2f}"


def save_layout(lake: Path, path: Path) -> None:
    """Write the output of `fsspeckit inspect --json` to a file."""
    with path.open("w", encoding="utf-8") as sink, contextlib.redirect_stdout(sink):
        assert fsspeckit(["inspect", str(lake), "--key", "customer", "--key", "at", "--json"]) == 0


def main() -> None:
    """Run the tour in the folder of the command line, or in a new temporary folder that is not deleted."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="fsspeckit-tour-"))
    tour(folder.absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)


if __name__ == "__main__":
    main()

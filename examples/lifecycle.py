"""The life of a small dataset: write, dry run, upsert, the same again, full merge, read back.

Run it with `make demo`, or `python examples/lifecycle.py [folder]` to keep the files.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

DAYS = [date(2026, 3, 1) + timedelta(days=i) for i in range(4)]


def readings(ids: range, temperature: float) -> pa.Table:
    """One row per sensor id, spread over the days."""
    rows = [
        {"id": i, "day": DAYS[i % len(DAYS)].isoformat(), "sensor": f"s-{i:05d}", "celsius": temperature + i % 7}
        for i in ids
    ]
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("sensor", pa.string()), ("celsius", pa.float64())])
    return pa.Table.from_pylist(rows, schema=schema)


def show(title: str, outcome: object) -> None:
    """Print one step."""
    print(f"\n== {title}\n{outcome}")


def run(folder: Path) -> None:
    """Walk through the life cycle in the given folder."""
    io = PyarrowDatasetIO()
    path = str(folder / "readings")

    show(
        "Write 10,000 rows, one folder per day",
        io.write_dataset(readings(range(10_000), 15.0), path, partition_by=["day"]),
    )

    # Sensors of one day report again, and a hundred new ones appear.
    first_day = pa.concat_tables([readings(range(0, 4_000, 4), 21.0), readings(range(10_000, 10_400, 4), 21.0)])
    plan = io.merge(first_day, path, strategy="upsert", key_columns=["id"], dry_run=True)
    show("Dry run of an upsert: nothing is written, every file has its reason", plan)

    show("The upsert itself", io.merge(first_day, path, strategy="upsert", key_columns=["id"]))
    show(
        "The same upsert again: no file is rewritten", io.merge(first_day, path, strategy="upsert", key_columns=["id"])
    )

    # The source is now the whole truth: what it lacks is deleted.
    truth = readings(range(9_000), 15.0)
    show(
        "Full merge: the dataset becomes equal to the source",
        io.merge(truth, path, strategy="full_merge", key_columns=["id"]),
    )

    back = io.read_parquet(path, columns=["id", "celsius"], filters=[("day", "=", DAYS[0].isoformat())])
    show(f"Read one day back: {back.num_rows:,} rows, the first three", back.slice(0, 3).to_pylist())

    whole = io.read_parquet(path)
    assert whole.select(truth.column_names).sort_by("id").equals(truth.sort_by("id"))
    print("\nThe dataset holds exactly the rows of the last source.")


def main() -> None:
    """Use the folder given on the command line, or a temporary one."""
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="fsspeckit-demo-") as folder:
            run(Path(folder))


if __name__ == "__main__":
    main()

"""The life of a small dataset on Spark: write, dry run, upsert, the same again, full merge, read back.

Run it with `make demo`, or `python examples/lifecycle.py [folder]` to keep the files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fsspeckit.datasets.spark import SparkDatasetIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def readings(spark: SparkSession, ids: range, celsius: float) -> DataFrame:
    """One row per sensor id, spread over four days."""
    return spark.range(ids.start, ids.stop, ids.step).selectExpr(
        "id",
        "cast(date_add(DATE'2026-03-01', cast(id % 4 AS int)) AS string) AS day",
        "format_string('s-%05d', id) AS sensor",
        f"{celsius} + cast(id % 7 AS double) AS celsius",
    )


def show(title: str, outcome: object) -> None:
    """Print one step."""
    print(f"\n== {title}\n{outcome}")


def run(folder: Path) -> None:
    """Walk through the life cycle in the given folder."""
    io = SparkDatasetIO()
    spark = io.spark
    print(f"Spark {spark.version}")
    path = str(folder / "readings")

    show(
        "Write 10,000 rows, one folder per day",
        io.write_dataset(readings(spark, range(10_000), 15.0), path, partition_by=["day"]),
    )

    # Sensors of one day report again, and a hundred new ones appear.
    first_day = readings(spark, range(0, 4_000, 4), 21.0).union(readings(spark, range(10_000, 10_400, 4), 21.0))
    plan = io.merge(first_day, path, strategy="upsert", key_columns=["id"], dry_run=True)
    show("Dry run of an upsert: nothing is written, every file has its reason", plan)

    show("The upsert itself", io.merge(first_day, path, strategy="upsert", key_columns=["id"]))
    show(
        "The same upsert again: no file is rewritten", io.merge(first_day, path, strategy="upsert", key_columns=["id"])
    )

    # The source is now the whole truth: what it lacks is deleted.
    truth = readings(spark, range(9_000), 15.0)
    show(
        "Full merge: the dataset becomes equal to the source",
        io.merge(truth, path, strategy="full_merge", key_columns=["id"]),
    )

    day = io.read(path, columns=["id", "celsius"], filters=[("day", "=", "2026-03-01")])
    show(f"Read one day back: {day.count():,} rows, the first three", day.orderBy("id").limit(3).toArrow().to_pylist())

    whole = io.read(path).select(truth.columns)
    assert whole.exceptAll(truth).isEmpty()
    assert truth.exceptAll(whole).isEmpty()
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

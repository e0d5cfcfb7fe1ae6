"""A program that lives the life of a dataset on the session it gets, beside the PyArrow engine, and says so."""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.versions import to_arrow_table


def settings(spark):
    """What a session is configured with."""
    return {row.key: row.value for row in spark.sql("SET").collect()}, sorted(spark.getTags())


def live(spark, folder: str) -> None:
    """Write, dry run, upsert, full merge, read: the same rows and counts on both engines."""
    before = settings(spark)
    io, twin = SparkDatasetIO(spark), PyarrowDatasetIO()
    ours, theirs = f"{folder}/ds", f"{folder}/twin"
    events = spark.range(0, 1000, 1, 3).selectExpr("id", "cast(id % 3 as string) as day", "id * 2 as v")
    updates = spark.range(990, 1010).selectExpr("id", "cast(id % 3 as string) as day", "cast(0 as bigint) as v")
    table = to_arrow_table(updates)
    io.write_dataset(events, ours, partition_by=["day"], max_rows_per_file=100)
    twin.write_dataset(to_arrow_table(events), theirs, partition_by=["day"], max_rows_per_file=100)
    told = []
    for source, strategy in ((updates, "upsert"), (table, "upsert"), (updates, "full_merge")):
        options = {"strategy": strategy, "key_columns": ["id"]}
        expected = twin.merge(table, theirs, **options)
        if source is updates:
            assert io.merge(source, ours, dry_run=True, **options).stats() == expected.stats()
        result = io.merge(source, ours, progress=told.append, **options)
        assert result.stats() == expected.stats(), (result.stats(), expected.stats())
        assert len(result.rewritten_files) == len(expected.rewritten_files)
        assert twin.read_parquet(ours).sort_by("id").equals(twin.read_parquet(theirs).sort_by("id"))
    frame = io.read(ours, columns=["id", "v"], filters=[("id", ">=", 995)])
    assert sorted(map(tuple, frame.collect())) == [(i, 0) for i in range(995, 1010)]
    assert told[-1].done == told[-1].total
    cached = spark.read.parquet(f"file://{ours}").cache()
    assert cached.count() == 20
    io.merge(pa.table({"id": [1], "day": ["1"], "v": [1]}), ours, strategy="insert", key_columns="id")
    assert cached.count() == 21
    cached.unpersist()
    assert settings(spark) == before, "the caller's session was changed"
    assert spark.range(3).count() == 3, "the caller's session was stopped"
    print("lived", flush=True)

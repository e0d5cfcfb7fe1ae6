"""A program of its own that reads tables of a Hive metastore with Spark: `python hive_reader.py URI FOLDER QUERY...`.

It prints one line of JSON for each query: its rows as texts.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from inside import ensure_java


def main(uri: str, folder: str, *queries: str) -> None:
    """Run the queries in one session."""
    ensure_java()
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.hadoop.hive.metastore.uris": uri,
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for query in queries:
        print(json.dumps([[str(value) for value in row] for row in spark.sql(query).collect()]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

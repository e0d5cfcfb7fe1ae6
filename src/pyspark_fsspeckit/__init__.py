"""Make the format "fsspeckit" known to every session of Spark 4.0 and later.

Spark imports the installed modules whose names start with ``pyspark_`` and registers the source that each defines, so a
program or `spark-pipelines` can use the format without a call of `register_data_source`.
"""

from fsspeckit.datasets.spark.data_source import FsspeckitDataSource as DefaultSource

__all__ = ["DefaultSource"]

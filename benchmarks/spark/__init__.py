"""Benchmarks of the Spark engine and of hand-written PySpark jobs, in one Spark session.

Not part of the library. `python -m benchmarks.spark --help` lists the options;
`docs/benchmarks-spark.md` explains it.
"""

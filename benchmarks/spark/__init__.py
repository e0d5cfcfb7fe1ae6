"""Benchmarks of the Spark engine: all contenders in one Spark session, next to what a Spark user writes by hand.

Not part of the library. `python -m benchmarks.spark --help` lists what it can do;
`docs/benchmarks-spark.md` explains it.
"""

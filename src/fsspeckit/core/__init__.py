"""The operations on a dataset: plan, run, commit. This package does not depend on an engine.

Must not: import DuckDB, Spark, pandas or the command line.
Read first: operations/merge.py, then model.py for the data that it uses.
"""

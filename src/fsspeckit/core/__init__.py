"""The operations on a dataset: plan, run, commit. Everything that does not depend on one engine.

Must not: import DuckDB, Spark or pandas, or know of the command line.
Read first: operations/merge.py, then model.py for the data that it passes on.
"""

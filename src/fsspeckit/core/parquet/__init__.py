"""Parquet files: open and verify them, read footers and statistics, choose writer options, write.

Must not: know of datasets. Every number of a footer is checked here before another package uses it.
Read first: reader.py, then footer.py.
"""

"""Parquet files: open and verify them, read footers and statistics, choose writer options, write.

Every number of a footer is checked here before another package uses it.
Must not: depend on datasets.
Read first: reader.py, then footer.py.
"""

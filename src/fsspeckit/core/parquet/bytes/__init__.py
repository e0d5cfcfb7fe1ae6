"""Parquet below pyarrow: footers, pages and column chunks as bytes, so that unchanged chunks can be copied.

Must not: be imported from outside the parquet package and the kernels.
Read first: splice.py.
"""

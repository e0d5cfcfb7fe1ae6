"""Footers, pages and column chunks of Parquet as bytes, so that unchanged chunks can be copied without decoding.

Only the parquet package and the kernels may import this package. Read first: splice.py.
"""

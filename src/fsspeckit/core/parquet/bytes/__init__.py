"""Footers, pages and column chunks of Parquet as bytes, so that unchanged chunks can be copied without decoding.

Must not: be imported from outside the parquet package and the kernels.
Read first: splice.py.
"""

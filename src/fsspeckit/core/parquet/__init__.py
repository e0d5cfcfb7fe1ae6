"""Parquet files: opening, footers, writing."""

"""Parquet below pyarrow: bytes of footers, pages and column chunks."""

"""Describe the files of a dataset as a table of Delta Lake or Apache Iceberg.

Must not: read data files, or decide when an export is written; `fsspeckit.core.dataset.exported` does that.
Read first: table.py.
"""

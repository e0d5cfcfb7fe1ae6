"""Functions that run on a worker: on one file, or on one part of an exchange.

Must not: import dataset, commit or planning. A kernel gets a task, reads files and stages files.
Read first: replace_rows.py, which rewrites one file of a merge.
"""

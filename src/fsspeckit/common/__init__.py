"""Functions that every package uses: errors, types and casts, schemas, hive partition folders, logging.

Must not: import another package of fsspeckit, or access a file.
Read first: errors.py.
"""

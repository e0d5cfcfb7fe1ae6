"""A dataset and a source of rows: where they are, their files, schemas and keys.

Must not: decide what an operation changes.
Read first: snapshot.py for the dataset, source.py for the source.
"""

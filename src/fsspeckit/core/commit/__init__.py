"""The commit protocol: staging, journal records, publishing, recovery, and the listing that readers use.

It is the only package that writes to a dataset folder. Must not: know of rows, schemas or operations.
Read first: transaction.py, then replay.py.
"""

"""The commit protocol: staging, journal records, publishing, recovery, and the listing that readers use.

This is the only package that writes to a dataset folder.
Must not: depend on rows, schemas or operations.
Read first: journal.py, then transaction.py and replay.py.
"""

"""Values in memory: keys, equality, hashing, sort orders, taking and replacing rows.

It works on Arrow and numpy arrays.
Must not: depend on files or datasets.
Read first: keys.py, which defines when two keys are equal.
"""

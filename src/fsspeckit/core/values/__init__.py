"""Values in memory: keys, equality, hashing, sort orders, taking and replacing rows.

Must not: know of files or datasets. It works on Arrow and numpy arrays.
Read first: keys.py, which defines when two keys are equal.
"""

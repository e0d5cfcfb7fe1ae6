"""Plans of operations whose source is too large for one process: the planner gets counts for files and partitions.

Must not: hold a number for each row, or rows of the source except a few examples for errors.
Read first: merge.py.
"""

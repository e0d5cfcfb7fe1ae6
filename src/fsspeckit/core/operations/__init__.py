"""One module for each operation: validate, snapshot, plan, run, commit.

Must not: contain a loop over rows (kernels do that) or write to a dataset folder (the commit does that).
Read first: merge.py.
"""

"""One module for each command: its options, and one call of the library.

Must not: contain logic that the library lacks.
Read first: merge.py.
"""

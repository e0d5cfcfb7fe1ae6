"""The layout of a dataset as its footers describe it: facts, a score, recommendations, an HTML page.

Must not: read rows or change anything.
Read first: layout.py.
"""

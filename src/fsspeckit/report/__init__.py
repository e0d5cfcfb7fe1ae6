"""Describe the layout of a dataset from its footers: facts, a score, recommendations, an HTML page.

Must not: read rows or change anything.
Read first: layout.py.
"""

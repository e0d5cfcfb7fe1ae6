"""Describe the layout of a dataset from its footers: facts, a score, recommendations, an HTML page.

Must not: change anything. Rows are read only by the planner whose prediction a report shows.
Read first: layout.py.
"""

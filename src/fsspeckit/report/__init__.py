"""The layout of a dataset as its footers tell it: facts, a score, and what to do about it."""

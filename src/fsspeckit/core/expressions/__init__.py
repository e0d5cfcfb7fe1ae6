"""The expression language of conditions and computed values: one tree, one parser, one evaluator.

Must not: read files. sqlglot is imported only when text is parsed, never in executors.
Read first: tree.py, then parse.py.
"""

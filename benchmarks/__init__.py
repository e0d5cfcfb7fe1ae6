"""Compare the cost of a merge with a bare copy of the changed files, and with other tools.

Not part of the library. `python -m benchmarks --help` lists the options; `docs/benchmarks.md` explains the rules.
"""

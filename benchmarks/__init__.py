"""Benchmarks: what a merge costs against merely copying the files that must change, and against the peers.

Not part of the library. `python -m benchmarks --help` lists what it can do; `docs/benchmarks.md` explains the rules.
"""

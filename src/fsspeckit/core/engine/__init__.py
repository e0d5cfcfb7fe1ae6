"""The engine protocol, and the engine that runs in one process.

Must not: decide what to run. PyArrow uses the local engine unchanged, DuckDB extends it, Spark implements the protocol.
Read first: protocol.py.
"""

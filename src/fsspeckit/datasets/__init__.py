"""The classes that users call, with one package for each engine.

Must not: contain the logic of an operation; that is core.operations. Engines do not import each other.
Read first: io.py, which has every method of a dataset.
"""

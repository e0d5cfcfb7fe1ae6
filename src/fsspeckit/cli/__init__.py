"""The command line: options in, one operation of the library, a table or one line of JSON out.

Must not: import pyarrow, pandas or Spark before a command runs, so that help appears at once.
Read first: app.py, then commands/merge.py.
"""

"""The command line: each command runs one operation of the library and prints a table or one line of JSON.

Must not: import pyarrow, pandas or Spark before a command runs, so that help appears at once.
Read first: app.py, then commands/merge.py.
"""

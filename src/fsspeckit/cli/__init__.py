"""The command line `fsspeckit`: words and options in, one operation of the library, a table or one line of JSON out.

Help must be there at once, so no module here imports pyarrow, pandas or Spark before a command runs.
"""

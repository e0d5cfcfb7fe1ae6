"""Steps of an operation whose source is too large for one process: workers decide about rows and send them to tasks.

Must not: be imported by the other kernels. What many workers need is in files of a scratch folder (`table_files.py`).
Read first: split_keys.py and decide_keys.py for matching, then route_rows.py for the tasks.
"""

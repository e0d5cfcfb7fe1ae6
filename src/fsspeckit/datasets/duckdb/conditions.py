"""The database in which conditions are checked and applied: one of our own in memory.

A condition speaks of columns alone, so nothing of the caller's connection has a say in it: no function, macro, table or
setting. What would follow the machine is fixed here, and nothing can be changed, read or loaded from outside.
"""

from __future__ import annotations

from fsspeckit.datasets.duckdb.connection import Database, create_duckdb_connection
from fsspeckit.datasets.duckdb.failures import report_duckdb_errors

_SETTINGS = (
    # Files are looked at side by side already.
    ("threads", "1"),
    # Before the next, since it is one of the extension icu, which a build without it has to load.
    ("TimeZone", "'UTC'"),
    ("autoinstall_known_extensions", "false"),
    ("autoload_known_extensions", "false"),
    ("python_enable_replacements", "false"),
    ("enable_external_access", "false"),
    # Last, since no setting can be changed after it.
    ("lock_configuration", "true"),
)
_NO_FOLDER = ""  # a condition is applied to rows as they come, so there is nothing to spill


def condition_database() -> Database:
    """A new database for conditions."""
    connection = create_duckdb_connection(temp_directory=_NO_FOLDER)
    with report_duckdb_errors("opening the database for filters"):
        for name, value in _SETTINGS:
            connection.execute(f"SET GLOBAL {name} = {value}")
    return Database(connection)

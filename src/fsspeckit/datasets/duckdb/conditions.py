"""The in-memory database in which SQL conditions are checked and applied.

A condition refers only to columns, so functions, macros, tables and settings of the caller's connection have no effect.
Settings that depend on the machine are fixed, and access to files and extensions is disabled.
"""

from __future__ import annotations

from fsspeckit.datasets.duckdb.connection import Database, create_duckdb_connection
from fsspeckit.datasets.duckdb.failures import report_duckdb_errors

_SETTINGS = (
    # Files are already processed in parallel.
    ("threads", "1"),
    # Before loading is disabled: the setting belongs to the extension icu, which some builds must load.
    ("TimeZone", "'UTC'"),
    ("autoinstall_known_extensions", "false"),
    ("autoload_known_extensions", "false"),
    ("python_enable_replacements", "false"),
    ("enable_external_access", "false"),
    # Last: no setting can be changed after it.
    ("lock_configuration", "true"),
)
_NO_FOLDER = ""  # a condition is applied row by row, so nothing is spilled


def condition_database() -> Database:
    """Return a new database for conditions."""
    connection = create_duckdb_connection(temp_directory=_NO_FOLDER)
    with report_duckdb_errors("opening the database for filters"):
        for name, value in _SETTINGS:
            connection.execute(f"SET GLOBAL {name} = {value}")
    return Database(connection)

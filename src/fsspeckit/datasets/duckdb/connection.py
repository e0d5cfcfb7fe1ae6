"""The DuckDB database that the engine uses: the caller's, through cursors, or a new in-memory database.

Settings apply to a whole database, so those of a caller's connection are never changed. Its memory limit and its folder
for temporary files also apply to fsspeckit's own work. DuckDB is imported here, on first use.
"""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from fsspeckit.common.install import install_command
from fsspeckit.core.storage.urls import protocol_of, to_fsspec
from fsspeckit.core.values.spill import spilling
from fsspeckit.datasets.arguments import parse_bytes
from fsspeckit.datasets.duckdb.failures import DuckDBNotFoundError, report_duckdb_errors

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SHARE = 8  # the part of the memory limit for pieces of an exchange; the rest is for rows that threads process
_THREAD_BYTES = 384 * 1024 * 1024  # measured memory of a thread that decodes, sorts and encodes rows
_filesystems: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_OWN_FOLDER = "fsspeckit-duckdb-"
# With schema names, because the caller's database may have functions with the same names.
_SETTINGS = """
    SELECT system.main.current_setting('memory_limit'), system.main.current_setting('temp_directory'), path
    FROM system.main.duckdb_databases()"""


def create_duckdb_connection(
    filesystem: Any = None, *, memory_limit: int | str | None = None, temp_directory: Any = None
) -> DuckDBPyConnection:
    """Create an in-memory DuckDB database for `DuckDBDatasetIO`.

    Args:
        filesystem: An fsspec filesystem to register. SQL and a `DuckDBDatasetIO` on this connection read and write its
            URLs.
        memory_limit: The memory limit of DuckDB, in bytes or as a text such as ``"1GB"``. Data that does not fit is
            written to ``temp_directory``.
        temp_directory: The folder for temporary files; by default a folder in the system's temporary folder, which is
            removed when the connection is closed.

    Returns:
        The connection.

    Examples:
        >>> connection = create_duckdb_connection(memory_limit="1GB")
        >>> connection.sql("SELECT 6 * 7").fetchall()
        [(42,)]
        >>> connection.close()
    """
    if find_spec("duckdb") is None:
        raise DuckDBNotFoundError(f"the DuckDB engine needs DuckDB. Install it with `{install_command('duckdb')}`.")
    import duckdb

    folder = temp_directory if temp_directory is not None else _spill_folder()
    config: dict[str, str | bool | int | float | list[str]] = {"temp_directory": os.fspath(folder)}
    if memory_limit is not None:
        config["memory_limit"] = f"{parse_bytes(memory_limit)}B"
    with report_duckdb_errors("opening a DuckDB database"):
        connection = duckdb.connect(":memory:", config=config)
    if filesystem is not None:
        connection.register_filesystem(filesystem)
        _filesystems[connection] = filesystem
    return connection


def _spill_folder() -> str:
    """Return a new folder: databases in one folder remove each other's files. DuckDB creates it when needed."""
    return os.path.join(tempfile.gettempdir(), f"{_OWN_FOLDER}{uuid.uuid4().hex}")


def registered_filesystem(connection: DuckDBPyConnection | None, path: Any) -> Any:
    """Return the filesystem that `create_duckdb_connection` registered, if ``path`` is one of its URLs.

    Raises:
        ValueError: The connection has another filesystem for such URLs. DuckDB does not return it, and a new client
            might access another storage.
    """
    if connection is None or not isinstance(path, str) or "://" not in path:
        return None
    protocol, filesystem = protocol_of(to_fsspec(path)), _filesystems.get(connection)
    own = getattr(filesystem, "protocol", ())
    if protocol in ((own,) if isinstance(own, str) else own):
        return filesystem
    with report_duckdb_errors("listing the filesystems of the DuckDB connection"):
        if protocol in connection.list_filesystems():
            raise ValueError(
                f"the connection has a filesystem for {protocol}:// that DuckDB does not return. Pass it as "
                "filesystem= too, or use the connection that create_duckdb_connection returned."
            )
    return None


class Database:
    """Creates cursors of one database. Without a connection, a new database is opened on first use."""

    def __init__(
        self,
        connection: DuckDBPyConnection | None = None,
        memory_limit: int | str | None = None,
        temp_directory: Any = None,
    ) -> None:
        if connection is not None and not (memory_limit is None and temp_directory is None):
            raise ValueError(
                "memory_limit and temp_directory apply to a whole database, and the settings of a given connection "
                "are not changed. Set them on the connection, or omit connection."
            )
        if connection is not None and not hasattr(connection, "cursor"):
            raise TypeError(f"connection={connection!r} is not a DuckDB connection. Pass a result of duckdb.connect().")
        if temp_directory is not None and (not os.fspath(temp_directory) or os.path.isfile(temp_directory)):
            raise ValueError(f"temp_directory={temp_directory!r} is not a folder. Pass the path of a folder.")
        self._connection, self._is_given = connection, connection is not None
        self._limit = parse_bytes(memory_limit)
        self._folder = None if temp_directory is None else os.fspath(temp_directory)
        self._lock = threading.Lock()

    @property
    def connection(self) -> DuckDBPyConnection:
        """The connection of the caller, or of the new database."""
        with self._lock:
            if self._connection is None:
                self._connection = create_duckdb_connection(memory_limit=self._limit, temp_directory=self._folder)
            return self._connection

    @property
    def threads(self) -> int | None:
        """The number of threads whose rows fit into the memory limit; ``None`` without a limit."""
        limit, _ = self._bounds()
        return None if limit is None else max(1, limit // _THREAD_BYTES)

    @contextmanager
    def cursor(self) -> Iterator[DuckDBPyConnection]:
        """Open a separate connection to the same database. Views that it registers are private to it."""
        with report_duckdb_errors("opening a cursor of the DuckDB connection"):
            cursor = self.connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def spilling(self) -> AbstractContextManager[None]:
        """Limit fsspeckit's temporary files like those of the database: its folder, and a part of its memory limit."""
        limit, folder = self._bounds()
        return spilling(folder, None if limit is None else limit // _SHARE)

    def _bounds(self) -> tuple[int | None, str | None]:
        """Return the memory limit and the folder, if the caller set one: DuckDB's default may not be writable."""
        if not self._is_given:
            return self._limit, self._folder
        with self.cursor() as cursor, report_duckdb_errors("reading the settings of the DuckDB connection"):
            settings = cursor.execute(_SETTINGS).fetchall()
        limit, folder, _ = settings[0]
        defaults = ("", ".tmp", *(f"{path}.tmp" for *_, path in settings))
        is_default = folder in defaults or os.path.basename(folder).startswith(_OWN_FOLDER)
        return _as_bytes(limit), None if is_default else folder


def _as_bytes(setting: str) -> int | None:
    """Return the memory limit from the text that DuckDB returns, or ``None`` if it means no limit."""
    try:
        return parse_bytes(setting)
    except ValueError:
        return None

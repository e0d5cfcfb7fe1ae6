"""The DuckDB database that work runs in: the caller's, through a cursor, or one of our own in memory.

Settings belong to a whole database, so those of a caller's connection are never touched; its limit of memory and its
folder for what does not fit bind our own work too. DuckDB is imported here, when it is first used.
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
from fsspeckit.datasets.duckdb.failures import DuckDBNotFoundError, report_duckdb_errors
from fsspeckit.datasets.io import parse_bytes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SHARE = 8  # of the memory limit for pieces that wait; the rest is for rows in work
_FOR_A_THREAD = 384 * 1024 * 1024  # bytes of rows that a thread decodes, sorts and encodes, as measured
_filesystems: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_OWN_FOLDER = "fsspeckit-duckdb-"
# With the names of schemas, since the caller's database may have functions of the same names.
_SETTINGS = """
    SELECT system.main.current_setting('memory_limit'), system.main.current_setting('temp_directory'), path
    FROM system.main.duckdb_databases()"""


def create_duckdb_connection(
    filesystem: Any = None, *, memory_limit: int | str | None = None, temp_directory: Any = None
) -> DuckDBPyConnection:
    """A new DuckDB database in memory, ready for `DuckDBDatasetIO`.

    Args:
        filesystem: An fsspec filesystem to register: SQL reads and writes its URLs, and so does a `DuckDBDatasetIO`
            on this connection.
        memory_limit: The most memory that DuckDB uses, in bytes or as a text such as ``"1GB"``; what does not fit
            goes to ``temp_directory``.
        temp_directory: The folder for that; by default one below the system's, gone when the connection is closed.

    Returns:
        The connection.

    Example:
        >>> connection = create_duckdb_connection(memory_limit="1GB")
        >>> connection.sql("SELECT 6 * 7").fetchall()
        [(42,)]
        >>> connection.close()
    """
    if find_spec("duckdb") is None:
        raise DuckDBNotFoundError(f"the DuckDB engine needs DuckDB; install it with `{install_command('duckdb')}`")
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
    """A folder of its own for each database: they would clear away each other's files. DuckDB makes it when needed."""
    return os.path.join(tempfile.gettempdir(), f"{_OWN_FOLDER}{uuid.uuid4().hex}")


def registered_filesystem(connection: DuckDBPyConnection | None, path: Any) -> Any:
    """The filesystem that `create_duckdb_connection` registered, where ``path`` is one of its URLs.

    Raises:
        ValueError: One is registered for such URLs that only DuckDB knows; another client might see another storage.
    """
    if connection is None or not isinstance(path, str) or "://" not in path:
        return None
    protocol, filesystem = protocol_of(to_fsspec(path)), _filesystems.get(connection)
    own = getattr(filesystem, "protocol", ())
    if protocol in ((own,) if isinstance(own, str) else own):
        return filesystem
    with report_duckdb_errors("asking the DuckDB connection for its filesystems"):
        if protocol in connection.list_filesystems():
            raise ValueError(
                f"the connection has a filesystem for {protocol}:// that DuckDB does not hand out; pass it as "
                "filesystem= too, or use the very connection that create_duckdb_connection made"
            )
    return None


class Database:
    """Cursors of one database; without a connection of the caller, it is opened when first needed."""

    def __init__(
        self,
        connection: DuckDBPyConnection | None = None,
        memory_limit: int | str | None = None,
        temp_directory: Any = None,
    ) -> None:
        if connection is not None and not (memory_limit is None and temp_directory is None):
            raise ValueError(
                "memory_limit and temp_directory are settings of a whole database, and those of a given connection "
                "are left alone; set them on the connection, or leave connection out"
            )
        if connection is not None and not hasattr(connection, "cursor"):
            raise TypeError(f"connection={connection!r} is no DuckDB connection; pass what duckdb.connect() returns")
        if temp_directory is not None and (not os.fspath(temp_directory) or os.path.isfile(temp_directory)):
            raise ValueError(f"temp_directory={temp_directory!r} is no folder; pass one, which need not exist yet")
        self._connection, self._is_given = connection, connection is not None
        self._limit = parse_bytes(memory_limit)
        self._folder = None if temp_directory is None else os.fspath(temp_directory)
        self._lock = threading.Lock()

    @property
    def connection(self) -> DuckDBPyConnection:
        """The connection itself, which belongs to the caller."""
        with self._lock:
            if self._connection is None:
                self._connection = create_duckdb_connection(memory_limit=self._limit, temp_directory=self._folder)
            return self._connection

    @property
    def threads(self) -> int | None:
        """Threads whose rows together keep within the memory limit; none where there is no limit."""
        limit, _ = self._bounds()
        return None if limit is None else max(1, limit // _FOR_A_THREAD)

    @contextmanager
    def cursor(self) -> Iterator[DuckDBPyConnection]:
        """A connection of our own to the same database; views that it registers are seen by nobody else."""
        with report_duckdb_errors("opening a cursor of the DuckDB connection"):
            cursor = self.connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def spilling(self) -> AbstractContextManager[None]:
        """Our own temporary files under the limits of the database: its folder, and a share of its memory."""
        limit, folder = self._bounds()
        return spilling(folder, None if limit is None else limit // _SHARE)

    def _bounds(self) -> tuple[int | None, str | None]:
        """The memory limit and the folder, if any was named: what is DuckDB's own choice may not even be writable."""
        if not self._is_given:
            return self._limit, self._folder
        with self.cursor() as cursor, report_duckdb_errors("asking the DuckDB connection for its settings"):
            found = cursor.execute(_SETTINGS).fetchall()
        limit, folder, _ = found[0]
        usual = ("", ".tmp", *(f"{path}.tmp" for *_, path in found))
        is_own = folder in usual or os.path.basename(folder).startswith(_OWN_FOLDER)
        return _as_bytes(limit), None if is_own else folder


def _as_bytes(setting: str) -> int | None:
    """A limit as DuckDB tells it; it has units for limits that are none."""
    try:
        return parse_bytes(setting)
    except ValueError:
        return None

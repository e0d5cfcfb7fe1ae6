"""Write a dataset to a Hive metastore: the table, and the partitions that are missing, gone or changed.

The metastore is a Thrift service. Only descriptions are written: no call deletes data files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from urllib.parse import urlsplit

from fsspeckit.common.errors import CatalogError
from fsspeckit.common.install import install_command
from fsspeckit.core.export.catalog_table import (
    INPUT_FORMAT,
    OUTPUT_FORMAT,
    OWNER,
    SERDE,
    CatalogTable,
    TableName,
    Values,
    other_table,
)

OPTIONS = ("uri", "s3_scheme")
_PORT = 9083
_TIMEOUT_MS = 60_000
_AT_ONCE = 100
"""The most partitions of one request."""
_S3_SCHEMES = ("s3a", "s3", "s3n")


def check_options(options: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the addresses of the metastore. Raise if an option is unknown or missing."""
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise ValueError(f"Unknown options of the Hive metastore: {unknown}. Use {', '.join(OPTIONS)}.")
    if options.get("s3_scheme", _S3_SCHEMES[0]) not in _S3_SCHEMES:
        raise ValueError(f"s3_scheme={options['s3_scheme']!r} is unknown. Use {', '.join(_S3_SCHEMES)}.")
    uris = [uri.strip() for uri in options.get("uri", "").split(",") if uri.strip()]
    if not uris:
        raise ValueError("The Hive metastore needs the option uri, such as thrift://metastore:9083.")
    return [_address(uri) for uri in uris]


def _address(uri: str) -> tuple[str, int]:
    found = urlsplit(uri)
    if found.scheme != "thrift" or not found.hostname or found.path not in ("", "/"):
        raise ValueError(
            f"uri={uri!r} is not the address of a Hive metastore. Use one such as thrift://metastore:9083."
        )
    return found.hostname, found.port or _PORT


class HiveCatalog:
    """A Hive metastore."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._addresses = check_options(options)
        self._s3_scheme = options.get("s3_scheme", _S3_SCHEMES[0])
        try:
            from hive_metastore import ttypes
            from thrift.transport.TSocket import TSocket  # noqa: F401 - only whether it is installed
        except ImportError as error:
            command = install_command("pyiceberg", "thrift")
            raise ImportError(f"The Hive metastore needs pyiceberg and thrift. Run: {command}") from error
        self._types = ttypes

    def write(self, name: TableName, table: CatalogTable) -> tuple[int, int]:
        """Create or update a table and its partitions. Return how many partitions were added and removed.

        Raises:
            CatalogError: The metastore refuses it, or has another table with this name. Nothing was changed then.
        """
        table = self._in_hive(table)
        with self._connected("write", name) as client:
            found = self._table(client, name)
            if found is not None and (found.parameters or {}).get(OWNER) != table.location:
                raise other_table(name, table)
            self._write_table(client, name, table, found)
            return self._write_partitions(client, name, table) if table.partition_columns else (0, 0)

    def remove(self, name: TableName) -> None:
        """Delete a table that `write` created. A missing one is not an error."""
        with self._connected("delete", name) as client:
            found = self._table(client, name)
            if found is not None and OWNER in (found.parameters or {}):
                client.drop_table(name.database, name.table, False)

    def _table(self, client: Any, name: TableName) -> Any:
        try:
            return client.get_table(name.database, name.table)
        except self._types.NoSuchObjectException:
            return None

    def _write_table(self, client: Any, name: TableName, table: CatalogTable, found: Any) -> None:
        types, wanted = self._types, self._description(name, table)
        quiet = types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
        if found is not None and _pairs(found.partitionKeys) == _pairs(wanted.partitionKeys):
            if _pairs(found.sd.cols) == _pairs(wanted.sd.cols):
                return
            changed = deepcopy(found)
            changed.sd.cols = wanted.sd.cols
            try:
                client.alter_table_with_environment_context(name.database, name.table, changed, quiet)
                return
            except types.InvalidOperationException:
                pass  # a metastore refuses columns that it takes for incompatible: the table is created again
        if found is not None:
            client.drop_table(name.database, name.table, False)
        client.create_table_with_environment_context(wanted, quiet)

    def _write_partitions(self, client: Any, name: TableName, table: CatalogTable) -> tuple[int, int]:
        types, where = self._types, (name.database, name.table)
        known = {tuple(each.values): each for each in client.get_partitions(*where, -1)}
        described = {values: (_plain(each.sd.location), _pairs(each.sd.cols)) for values, each in known.items()}
        found = table.changes(described)

        def partitions(chosen: Sequence[Values]) -> list[Any]:
            return [self._partition(name, table, values) for values in chosen]

        for values in found.gone:
            try:
                client.drop_partition(*where, list(values), False)
            except types.NoSuchObjectException:
                continue
        for chosen in _batches(found.new):
            request = types.AddPartitionsRequest(*where, partitions(chosen), ifNotExists=True, needResult=False)
            client.add_partitions_req(request)
        for chosen in _batches(found.changed):
            client.alter_partitions(*where, partitions(chosen))
        return len(found.new), len(found.gone)

    def _description(self, name: TableName, table: CatalogTable) -> Any:
        return self._types.Table(
            dbName=name.database,
            tableName=name.table,
            tableType="EXTERNAL_TABLE",
            parameters={"EXTERNAL": "TRUE", OWNER: table.location},
            partitionKeys=self._columns(table.partition_columns),
            sd=self._storage(table, table.location),
        )

    def _partition(self, name: TableName, table: CatalogTable, values: Values) -> Any:
        return self._types.Partition(
            values=list(values),
            dbName=name.database,
            tableName=name.table,
            sd=self._storage(table, table.partitions[values]),
            parameters={},
        )

    def _storage(self, table: CatalogTable, location: str) -> Any:
        return self._types.StorageDescriptor(
            cols=self._columns(table.columns),
            location=location,
            inputFormat=INPUT_FORMAT,
            outputFormat=OUTPUT_FORMAT,
            serdeInfo=self._types.SerDeInfo(serializationLib=SERDE, parameters={}),
            parameters={},
        )

    def _columns(self, columns: Sequence[tuple[str, str]]) -> list[Any]:
        return [self._types.FieldSchema(name=name, type=kind) for name, kind in columns]

    def _in_hive(self, table: CatalogTable) -> CatalogTable:
        """Return a description with names as a metastore stores them, and addresses as Hadoop opens them."""

        def lower(columns: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
            return tuple((name.lower(), kind) for name, kind in columns)

        def address(url: str) -> str:
            return re.sub("^s3://", f"{self._s3_scheme}://", url)

        folders = {values: address(folder) for values, folder in table.partitions.items()}
        return CatalogTable(address(table.location), lower(table.columns), lower(table.partition_columns), folders)

    @contextmanager
    def _connected(self, verb: str, name: TableName) -> Iterator[Any]:
        """Connect to the first metastore that answers, and turn its errors into a `CatalogError`."""
        from thrift.Thrift import TException

        close: Callable[[], None] = lambda: None  # noqa: E731
        try:
            client, close = self._open()
            yield client
        except (TException, OSError) as error:
            reason = getattr(error, "message", None) or str(error) or type(error).__name__
            raise CatalogError(
                f"cannot {verb} the table {name} of the Hive metastore: {reason}. "
                "Correct that, and run `fsspeckit register` again."
            ) from error
        finally:
            close()

    def _open(self) -> tuple[Any, Callable[[], None]]:
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport, TTransportException

        _silence_thrift()
        failed: TTransportException | None = None
        for host, port in self._addresses:
            socket = TSocket(host, port)
            socket.setTimeout(_TIMEOUT_MS)
            transport = TBufferedTransport(socket)
            try:
                transport.open()
            except TTransportException as error:
                failed = error
                continue
            return Client(TBinaryProtocol(transport)), transport.close
        assert failed is not None
        raise failed


def _silence_thrift() -> None:
    """Keep Python from printing the messages of thrift where no logging is set up: its errors say the same."""
    logger = logging.getLogger("thrift")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _pairs(columns: Sequence[Any]) -> list[tuple[str, str]]:
    return [(each.name, each.type) for each in columns]


def _plain(location: str) -> str:
    """Return the address of a local folder as `fsspeckit` writes it: a metastore removes slashes."""
    return re.sub("^file:/+", "file:///", location)


def _batches(items: Sequence[Values]) -> Iterator[Sequence[Values]]:
    return (items[first : first + _AT_ONCE] for first in range(0, len(items), _AT_ONCE))

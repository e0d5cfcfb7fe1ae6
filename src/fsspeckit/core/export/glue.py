"""Write a dataset to the AWS Glue Data Catalog: the table, and the partitions that are missing or gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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

OPTIONS = ("region_name", "endpoint_url", "profile_name", "catalog_id")
_CREATED_AT_ONCE, _DELETED_AT_ONCE = 100, 25
"""The most partitions of one request."""
_FORMAT = {
    "InputFormat": INPUT_FORMAT,
    "OutputFormat": OUTPUT_FORMAT,
    "SerdeInfo": {"SerializationLibrary": SERDE},
}


def check_options(options: Mapping[str, str]) -> None:
    """Raise if an option of the catalog is unknown. Credentials come from the environment, not from options."""
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise ValueError(f"Unknown options of the Glue catalog: {unknown}. Use {', '.join(OPTIONS)}.")


class GlueCatalog:
    """A Glue Data Catalog."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options)
        try:
            import boto3
        except ImportError as error:
            raise ImportError(f"The Glue catalog needs boto3. Run: {install_command('boto3')}") from error
        with _reported("reach", None):
            session = boto3.Session(profile_name=options.get("profile_name"), region_name=options.get("region_name"))
            self._client = session.client("glue", endpoint_url=options.get("endpoint_url"))
        self._base = {"CatalogId": options["catalog_id"]} if "catalog_id" in options else {}

    def write(self, name: TableName, table: CatalogTable) -> tuple[int, int]:
        """Create or update a table and its partitions. Return how many partitions were added and removed.

        Raises:
            CatalogError: The catalog refuses it, or has another table with this name. Nothing was changed then.
        """
        with _reported("write", name):
            found = self._table(name)
            if found is not None and found.get("Parameters", {}).get(OWNER) != table.location:
                raise other_table(name, table)
            wanted = _table_input(name, table)
            where = {**self._base, "DatabaseName": name.database}
            if found is not None and found.get("PartitionKeys", []) != wanted["PartitionKeys"]:
                self._client.delete_table(**where, Name=name.table)  # Glue cannot change partition columns
                found = None
            if found is None:
                self._client.create_table(**where, TableInput=wanted)
            elif found["StorageDescriptor"]["Columns"] != wanted["StorageDescriptor"]["Columns"]:
                self._client.update_table(**where, TableInput=wanted)
            return self._write_partitions({**where, "TableName": name.table}, table)

    def remove(self, name: TableName) -> None:
        """Delete a table that `write` created. A missing one is not an error."""
        with _reported("delete", name):
            found = self._table(name)
            if found is not None and OWNER in found.get("Parameters", {}):
                self._client.delete_table(**self._base, DatabaseName=name.database, Name=name.table)

    def _table(self, name: TableName) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.get_table(**self._base, DatabaseName=name.database, Name=name.table)
        except self._client.exceptions.EntityNotFoundException:
            return None
        return dict(found["Table"])

    def _write_partitions(self, where: Mapping[str, Any], table: CatalogTable) -> tuple[int, int]:
        if not table.partition_columns:
            return 0, 0
        pages = self._client.get_paginator("get_partitions").paginate(**where)
        found = table.changes(dict(_described(each) for page in pages for each in page["Partitions"]))
        gone, new = [*found.gone, *found.changed], [*found.new, *found.changed]
        for batch in _batches(gone, _DELETED_AT_ONCE):
            done = self._client.batch_delete_partition(**where, PartitionsToDelete=[{"Values": [*v]} for v in batch])
            _check(done)
        for batch in _batches(new, _CREATED_AT_ONCE):
            inputs = [
                {"Values": [*values], "StorageDescriptor": _descriptor(table, table.partitions[values])}
                for values in batch
            ]
            _check(self._client.batch_create_partition(**where, PartitionInputList=inputs))
        return len(new), len(gone)


def _described(partition: Mapping[str, Any]) -> tuple[Values, tuple[str, list[tuple[str, str]]]]:
    """Return the values, the folder and the columns of a partition."""
    columns = [(each["Name"], each.get("Type", "")) for each in partition["StorageDescriptor"].get("Columns", [])]
    return tuple(partition["Values"]), (partition["StorageDescriptor"].get("Location", ""), columns)


def _check(done: Mapping[str, Any]) -> None:
    """Raise if a request failed for some partitions. One that is there, or gone, already is fine."""
    fine = ("AlreadyExistsException", "EntityNotFoundException")
    failed = [each for each in done.get("Errors", []) if each["ErrorDetail"]["ErrorCode"] not in fine]
    if failed:
        detail = failed[0]["ErrorDetail"]
        raise CatalogError(
            f"The catalog refused {len(failed)} partitions, such as {failed[0]['PartitionValues']} "
            f"({detail['ErrorCode']}). Correct that, and run `fsspeckit register` again."
        )


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _table_input(name: TableName, table: CatalogTable) -> dict[str, Any]:
    return {
        "Name": name.table,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", "classification": "parquet", OWNER: table.location},
        "PartitionKeys": _columns(table.partition_columns),
        "StorageDescriptor": _descriptor(table, table.location),
    }


def _descriptor(table: CatalogTable, location: str) -> dict[str, Any]:
    return {"Columns": _columns(table.columns), "Location": location, **_FORMAT}


def _columns(columns: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind} for name, kind in columns]


@contextmanager
def _reported(verb: str, name: TableName | None) -> Iterator[None]:
    """Turn errors of the AWS client into a `CatalogError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        what = "the Glue catalog" if name is None else f"the table {name} of the Glue catalog"
        raise CatalogError(
            f"cannot {verb} {what}: {error}. Correct that, and run `fsspeckit register` again."
        ) from error

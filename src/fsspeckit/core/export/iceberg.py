"""Iceberg metadata of a dataset: one snapshot of the current files, with field ids, partitions and statistics.

The metadata has the layout of a Hadoop table: ``v<N>.metadata.json`` and ``version-hint.text``. Earlier snapshots are
left out, because a commit removes the files that it replaces. Manifests are written by pyiceberg.
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import StorageError, UnsupportedDataError
from fsspeckit.common.install import install_command
from fsspeckit.common.int96 import int96_columns
from fsspeckit.core.export.iceberg_types import FieldIds, bound_bytes, name_mapping, partition_value, types_of
from fsspeckit.core.export.table import Table, TableFile

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

_FIRST_PARTITION_ID = 1000
FORMAT_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class IcebergState:
    """What a version of the metadata describes: the identity of the table, its ids, and a digest of its files.

    ``instants`` has size and time of each file with INT96 timestamps, whose values were checked.
    """

    identifier: str
    ids: Mapping[str, int]
    partition_ids: Mapping[str, int]
    schema: Mapping[str, Any]
    spec: Mapping[str, Any]
    digest: str
    instants: Mapping[str, tuple[int, int]]

    def has(self, file: TableFile) -> bool:
        """Return whether the version has a file with INT96 timestamps."""
        return self.instants.get(file.path) == (file.size, file.modified)

    def to_bytes(self) -> bytes:
        """Return the state as it is stored."""
        return json.dumps([getattr(self, name) for name in self.__slots__]).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> IcebergState:
        """Parse a stored state."""
        try:
            identifier, ids, partition_ids, schema, spec, digest, *more = parse_json(data)
            known, parts = ({str(name): int(ids[name]) for name in ids} for ids in (ids, partition_ids))
            instants = {str(name): (int(size), int(at)) for each in more for name, (size, at) in each.items()}
            return cls(str(uuid.UUID(identifier)), known, parts, dict(schema), dict(spec), str(digest), instants)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise StorageError(
                f"The state of the Iceberg export of {path} is damaged ({error}). "
                "Run `fsspeckit export iceberg PATH --remove`, and export again."
            ) from error


@dataclass(frozen=True, slots=True)
class Location:
    """The URLs of a table and of the dataset, and the number of the version."""

    table_url: str
    data_url: str
    version: int

    def url(self, name: str) -> str:
        """Return the URL of a metadata file."""
        return readable(f"{self.table_url}/metadata/{name}")


def readable(url: str) -> str:
    """Return the address of a file as readers find it: they end a URL at # and ?, but not a local path.

    Raises:
        UnsupportedDataError: The file is not on a local disk, and its name has such a character.
    """
    if not {"#", "?"} & set(url):
        return url
    if url.startswith("file://"):
        return url.removeprefix("file://")
    raise UnsupportedDataError(
        f"Readers of Apache Iceberg cannot open {url}, because its name has '#' or '?'. Nothing was changed. Rename "
        "the file, or run `fsspeckit optimize` on the dataset, which writes its rows to new files."
    )


def next_metadata(
    table: Table | None, old: IcebergState | None, location: Location
) -> tuple[bytes, IcebergState, dict[str, bytes]] | None:
    """Return the next version of the metadata, its state and its files by name, or None if nothing changed.

    Without a table, the snapshot has no files, and the columns stay.
    """
    state = _state(table, old)
    if old is not None and state.digest == old.digest:
        return None
    snapshot, token = secrets.randbits(62) + 1, uuid.uuid4().hex
    manifest, listing = (f"{kind}-{location.version}-{token}.avro" for kind in ("manifest", "snap"))
    files = () if table is None else table.files
    types = {} if table is None else types_of(table)
    written = _write_manifests(state, files, types, location, snapshot, (manifest, listing))
    summary = {
        "operation": "overwrite",
        "total-data-files": str(len(files)),
        "total-records": str(sum(file.rows for file in files)),
        "total-files-size": str(sum(file.size for file in files)),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    now = int(time.time() * 1000)
    described = {
        "snapshot-id": snapshot,
        "sequence-number": location.version,
        "timestamp-ms": now,
        "manifest-list": location.url(listing),
        "summary": summary,
        "schema-id": state.schema["schema-id"],
    }
    return json.dumps(_metadata(state, location, described)).encode(), state, written


def _state(table: Table | None, old: IcebergState | None) -> IcebergState:
    if table is None:
        assert old is not None
        return replace(old, digest="", instants={})
    ids = FieldIds({} if old is None else dict(old.ids))
    fields = [ids.field(name, name, kind) for name, kind in types_of(table).items()]
    numbers = {field["name"]: field["id"] for field in fields}
    partition_ids = {} if old is None else dict(old.partition_ids)
    parts = [
        {
            "name": name,
            "transform": "identity",
            "source-id": numbers[name],
            "field-id": partition_ids.setdefault(f"{name}:{numbers[name]}", _FIRST_PARTITION_ID + len(partition_ids)),
        }
        for name in table.partition_columns
    ]
    schema = _numbered({"type": "struct", "fields": fields}, None if old is None else old.schema, "schema-id")
    spec = _numbered({"fields": parts}, None if old is None else old.spec, "spec-id")
    identifier = str(uuid.uuid4()) if old is None else old.identifier
    instants = {file.path: (file.size, file.modified) for file in table.files if int96_columns(file.schema)}
    return IcebergState(identifier, ids.known, partition_ids, schema, spec, table.digest, instants)


def _numbered(value: dict[str, Any], old: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """Return a schema or a partitioning with its number, which is a new one if it changed."""
    if old is None:
        return {key: 0, **value}
    same = {name: each for name, each in old.items() if name != key} == value
    return {key: old[key] if same else old[key] + 1, **value}


def _metadata(state: IcebergState, location: Location, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the table with one snapshot."""
    mapping = name_mapping(list(state.schema["fields"]))
    return {
        "format-version": FORMAT_VERSION,
        "table-uuid": state.identifier,
        "location": location.table_url,
        "last-sequence-number": location.version,
        "last-updated-ms": snapshot["timestamp-ms"],
        "last-column-id": max(state.ids.values(), default=0),
        "schemas": [state.schema],
        "current-schema-id": state.schema["schema-id"],
        "partition-specs": [state.spec],
        "default-spec-id": state.spec["spec-id"],
        "last-partition-id": max(state.partition_ids.values(), default=_FIRST_PARTITION_ID - 1),
        "properties": {"schema.name-mapping.default": json.dumps(mapping), "created-by": "fsspeckit"},
        "current-snapshot-id": snapshot["snapshot-id"],
        "snapshots": [snapshot],
        "snapshot-log": [{"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": snapshot["timestamp-ms"]}],
        "metadata-log": [],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
    }


def _write_manifests(
    state: IcebergState,
    files: Sequence[TableFile],
    types: Mapping[str, Any],
    location: Location,
    snapshot: int,
    names: tuple[str, str],
) -> dict[str, bytes]:
    """Return the manifest and the list of manifests. Without files there is no manifest."""
    try:
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest, write_manifest_list
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema
    except ImportError as error:
        raise ImportError(f"An Iceberg export needs pyiceberg. Run: {install_command('pyiceberg')}") from error
    from fsspeckit.core.export.memory_file import MemoryFile

    schema, spec = Schema.model_validate(state.schema), PartitionSpec.model_validate(state.spec)
    manifest, listing = (MemoryFile(location.url(name)) for name in names)
    manifests, data_files = [], [_data_file(file, state, types, location) for file in files]
    if files:
        with write_manifest(FORMAT_VERSION, spec, schema, manifest, snapshot, "deflate") as writer:
            for data_file in data_files:
                status = ManifestEntryStatus.ADDED
                writer.add_entry(ManifestEntry.from_args(status=status, snapshot_id=snapshot, data_file=data_file))
        manifests.append(writer.to_manifest_file())
    with write_manifest_list(FORMAT_VERSION, listing, snapshot, None, location.version, "deflate") as lists:
        lists.add_manifests(manifests)
    written = {names[0]: manifest.content} if files else {}
    return {**written, names[1]: listing.content}


def _data_file(file: TableFile, state: IcebergState, types: Mapping[str, Any], location: Location) -> DataFile:
    """Return a file as a manifest has it."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field in state.schema["fields"]:
        kind, bounds = types[field["name"]], file.bounds(field["name"])
        if not isinstance(kind, str) or field["name"] not in file.schema.names:
            continue
        values[field["id"]] = file.rows
        if bounds.nulls is not None:
            nulls[field["id"]] = bounds.nulls
        for target, bound in zip((lower, upper), bound_bytes(kind, bounds), strict=True):
            if bound is not None:
                target[field["id"]] = bound
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=readable(f"{location.data_url}/{file.path}"),
        file_format=FileFormat.PARQUET,
        partition=Record(*map(partition_value, file.partition)),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        value_counts=values,
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
        sort_order_id=0,
        spec_id=state.spec["spec-id"],
    )

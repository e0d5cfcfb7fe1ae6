"""The Delta log of a dataset: the actions of one version, from the files that are exported and those that were.

The log has one JSON file for each version and no checkpoints: these are Parquet files inside the dataset folder, which
readers with a pattern such as ``**/*.parquet`` would read as data. A version removes the files that are gone and adds
the others, so readers of a version see one state of the dataset.

The table names the columns with statistics, and every file has exact bounds of all of them: delta-rs takes a missing
bound of such a column for null, and finds no row of the file.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import StorageError
from fsspeckit.core.export.delta_types import (
    TIMESTAMP_NTZ,
    TITLE,
    bound_json,
    check_names,
    delta_field,
    delta_type,
    has_bounds,
    has_type,
    partition_text,
)
from fsspeckit.core.export.table import Table, TableFile

_ENGINE = "fsspeckit"


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What a version of the log describes: the table, and size, time and rows of each file by its path.

    ``unbounded`` are columns of which a file has no exact bounds.
    """

    identifier: str
    schema: str
    partition_columns: tuple[str, ...]
    features: tuple[str, ...]
    unbounded: tuple[str, ...]
    files: Mapping[str, tuple[int, int, int]]

    @property
    def bounded(self) -> list[str]:
        """The columns with statistics."""
        fields = json.loads(self.schema)["fields"]
        without = {*self.partition_columns, *self.unbounded}
        return [field["name"] for field in fields if field["name"] not in without and has_bounds(field["type"])]

    def has(self, file: TableFile) -> bool:
        """Return whether the version has a file."""
        return self.files.get(file.path) == (file.size, file.modified, file.rows)

    def to_bytes(self) -> bytes:
        """Return the state as it is stored."""
        parts = [self.identifier, self.schema, self.partition_columns, self.features, self.unbounded, self.files]
        return zlib.compress(json.dumps(parts).encode())

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> DeltaState:
        """Parse a stored state."""
        try:
            identifier, schema, *names, files = parse_json(zlib.decompress(data))
            columns, features, unbounded = (tuple(map(str, each)) for each in names)
            known = {str(name): (int(size), int(at), int(rows)) for name, (size, at, rows) in files.items()}
            state = cls(str(identifier), str(schema), columns, features, unbounded, known)
            str(state.bounded)  # the schema is a document of its own
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, zlib.error, RecursionError) as error:
            raise StorageError(
                f"The state of the Delta export of {path} is damaged ({error}). "
                "Run `fsspeckit export delta PATH --remove`, and export again."
            ) from error
        return state


def types_of(table: Table) -> dict[str, Any]:
    """Return the Delta types of all columns. Raise if there is a column that Delta cannot have."""
    check_names(list(table.schema.names))
    table.check_times(TITLE)
    table.check_partitions(TITLE)
    return table.types(TITLE, delta_type)


def next_version(table: Table | None, old: DeltaState | None) -> tuple[bytes, DeltaState] | None:
    """Return the content of the next version of the log and its state, or None if nothing changed.

    Without a table, all files are removed, and the columns stay.
    """
    types = {} if table is None else types_of(table)
    state = _emptied(old) if table is None else _state(table, types, old)
    if state == old:
        return None
    known = {} if old is None else old.files
    new = () if table is None else [file for file in table.files if old is None or not old.has(file)]
    state = replace(state, unbounded=_unbounded(state, new))
    added = [_add(file, types, state) for file in new]
    removed = [_remove(path, *known[path][:2]) for path in known if path not in state.files]
    return _lines([*_head(state, old), *removed, *added]), state


def _emptied(old: DeltaState | None) -> DeltaState:
    assert old is not None
    return replace(old, files={})


def _state(table: Table, types: Mapping[str, Any], old: DeltaState | None) -> DeltaState:
    fields = [delta_field(name, kind) for name, kind in types.items()]
    schema = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    needed = ("timestampNtz",) if any(has_type(kind, TIMESTAMP_NTZ) for kind in types.values()) else ()
    features = tuple(sorted({*needed, *(old.features if old is not None else ())}))
    identifier = old.identifier if old is not None else str(uuid.uuid4())
    files = {file.path: (file.size, file.modified, file.rows) for file in table.files}
    unbounded = () if old is None else old.unbounded
    return DeltaState(identifier, schema, table.partition_columns, features, unbounded, files)


def _unbounded(state: DeltaState, new: Sequence[TableFile]) -> tuple[str, ...]:
    """Return the columns that have no statistics, because a file has no exact bounds of them."""
    fields = json.loads(state.schema)["fields"]
    types = {field["name"]: field["type"] for field in fields if field["name"] in state.bounded}
    found = {name for name in types if "`" in name}
    for file in new:
        for name in types.keys() - found:
            bounds = file.bounds(name)
            known = [bound_json(types[name], bounds.native, raw) for raw in (bounds.lower, bounds.upper)]
            if bounds.nulls is None or (bounds.nulls < file.rows and None in known):
                found.add(name)
    return tuple(sorted({*state.unbounded, *found}))


def _head(state: DeltaState, old: DeltaState | None) -> list[dict[str, Any]]:
    """Return the actions that describe the commit and the table."""
    now = int(time.time() * 1000)
    operation = "CREATE TABLE" if old is None else "WRITE"
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": operation, "operationParameters": {}, "engineInfo": _ENGINE}}
    ]
    if old is None or old.features != state.features:
        actions.append({"protocol": _protocol(state.features)})
    described = (state.schema, state.partition_columns, state.unbounded)
    if old is None or (old.schema, old.partition_columns, old.unbounded) != described:
        columns = ",".join(f"`{name}`" for name in state.bounded)
        actions.append(
            {
                "metaData": {
                    "id": state.identifier,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": state.schema,
                    "partitionColumns": list(state.partition_columns),
                    "configuration": {"delta.dataSkippingStatsColumns": columns},
                    "createdTime": now,
                }
            }
        )
    return actions


def _protocol(features: Sequence[str]) -> dict[str, Any]:
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    names = list(features)
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}


def _add(file: TableFile, types: Mapping[str, Any], state: DeltaState) -> dict[str, Any]:
    values = zip(state.partition_columns, file.partition, strict=True)
    return {
        "add": {
            "path": encoded(file.path),
            "partitionValues": {name: partition_text(value) for name, value in values},
            "size": file.size,
            "modificationTime": file.modified,
            "dataChange": True,
            "stats": json.dumps(_stats(file, types, state.bounded), separators=(",", ":")),
        }
    }


def _remove(path: str, size: int, modified: int) -> dict[str, Any]:
    now = max(int(time.time() * 1000), modified)
    return {"remove": {"path": encoded(path), "deletionTimestamp": now, "dataChange": True, "size": size}}


def _stats(file: TableFile, types: Mapping[str, Any], bounded: Sequence[str]) -> dict[str, Any]:
    """Return the statistics of a file."""
    lower: dict[str, Any] = {}
    upper: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in bounded:
        bounds = file.bounds(name)
        for target, raw in ((lower, bounds.lower), (upper, bounds.upper)):
            value = bound_json(types[name], bounds.native, raw)
            if value is not None:
                target[name] = value
        if bounds.nulls is not None:
            nulls[name] = bounds.nulls
    return {"numRecords": file.rows, "minValues": lower, "maxValues": upper, "nullCount": nulls}


def encoded(path: str) -> str:
    """Return a relative path as a URI.

    Example:
        >>> encoded("day=a%20b/part 1.parquet")
        'day=a%2520b/part%201.parquet'
    """
    return quote(path, safe="/=:-_.~+@!$&'()*,;")


def _lines(actions: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()

"""The formats of exports: how each checks a table and prepares the files of its next version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fsspeckit.core.commit.exports import Exported
from fsspeckit.core.export import delta, delta_types, iceberg, iceberg_types
from fsspeckit.core.export.table import Table, TableFile


@dataclass(frozen=True, slots=True)
class Target:
    """Where a version is written: the dataset's path for messages, the URLs of table and dataset, and the version."""

    path: str
    table_url: str
    data_url: str
    version: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A version of metadata, the state for the next one, and the files that the version refers to, by name."""

    data: bytes
    state: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format:
    """A table format. ``check`` raises if a table has a column without a type; ``first`` is its first version.

    ``prepare`` returns the next version, or None if the newest one describes the table. Without a table, the next
    version has no files. ``has`` returns whether a version has a file; of Iceberg, one with INT96 timestamps.
    """

    title: str
    check: Callable[[Table], object]
    has: Callable[[Exported, str], Callable[[TableFile], bool]]
    prepare: Callable[[Table | None, Exported | None, Target], Prepared | None]
    first: int


def _delta_state(old: Exported, path: str) -> delta.DeltaState:
    return delta.DeltaState.from_bytes(old.state, path)


def _iceberg_state(old: Exported, path: str) -> iceberg.IcebergState:
    return iceberg.IcebergState.from_bytes(old.state, path)


def _prepare_delta(table: Table | None, old: Exported | None, target: Target) -> Prepared | None:
    state = None if old is None else _delta_state(old, target.path)
    found = delta.next_version(table, state)
    return None if found is None else Prepared(found[0], found[1].to_bytes())


def _prepare_iceberg(table: Table | None, old: Exported | None, target: Target) -> Prepared | None:
    state = None if old is None else _iceberg_state(old, target.path)
    location = iceberg.Location(target.table_url, target.data_url, target.version)
    found = iceberg.next_metadata(table, state, location)
    return None if found is None else Prepared(found[0], found[1].to_bytes(), found[2])


def _delta_has(old: Exported, path: str) -> Callable[[TableFile], bool]:
    return _delta_state(old, path).has


def _iceberg_has(old: Exported, path: str) -> Callable[[TableFile], bool]:
    return _iceberg_state(old, path).has


FORMATS: Mapping[str, Format] = {
    "delta": Format(delta_types.TITLE, delta.types_of, _delta_has, _prepare_delta, 0),
    "iceberg": Format(iceberg_types.TITLE, iceberg_types.types_of, _iceberg_has, _prepare_iceberg, 1),
}
"""The table formats, by name."""

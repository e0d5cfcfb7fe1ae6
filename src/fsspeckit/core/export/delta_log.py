"""What another program committed to the Delta log of an exported dataset: the files that it added and removed.

Only versions after the one that fsspeckit wrote are read. A plain Parquet folder has the rows of such a version if
every file of it counts with all its rows and has its partition values in its path, and columns have their own names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from fsspeckit.common.errors import PartitionError, StorageError
from fsspeckit.common.partitions import parse_hive_partition_path
from fsspeckit.core.file_names import is_inside, is_visible

_PLAIN_FEATURES = {"timestampNtz", "deletionVectors", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of readers that change nothing unless a file or the table uses them, which is looked for."""


@dataclass(frozen=True, slots=True)
class DeltaChanges:
    """The change up to a version: the files that this version has, and those that were added and removed.

    ``problems`` are what a folder of plain Parquet files cannot express.
    """

    version: int
    active: frozenset[str]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no file was added or removed, nor a row of one."""
        return not self.added and not self.removed and not self.problems


def changes_of(
    versions: Mapping[int, bytes], known: Iterable[str], columns: tuple[str, ...], path: str
) -> DeltaChanges:
    """Return what versions of a log changed.

    Args:
        versions: The content of all versions after the one that had the ``known`` files.
        known: The files of the table before.
        columns: The partition columns of the table before.
        path: The folder of the log, for messages.
    """
    before = set(known)
    active: dict[str, Mapping[str, Any]] = {name: {} for name in before}
    added: set[str] = set()
    problems: list[str] = []
    for version in sorted(versions):
        actions = [*_actions(versions[version], f"{path}/{version:020d}.json")]
        # A file with another deletion vector is removed and added in one version, in any order.
        for action in (each["remove"] for each in actions if "remove" in each):
            active.pop(_path(action), None)
        for action in (each["add"] for each in actions if "add" in each):
            active[_path(action)] = action
            added.add(_path(action))
        for action in actions:
            problems += _of_table(action)
            columns = tuple(action["metaData"].get("partitionColumns", ())) if "metaData" in action else columns
    problems += [problem for name, action in active.items() if action for problem in _of_file(name, action, columns)]
    removed = before - active.keys()
    return DeltaChanges(
        max(versions, default=-1),
        frozenset(active),
        tuple(sorted(added - before)),
        tuple(sorted(removed)),
        tuple(dict.fromkeys(problems)),
    )


def _actions(data: bytes, path: str) -> Iterator[Mapping[str, Any]]:
    try:
        for line in data.decode().splitlines():
            action = json.loads(line) if line.strip() else {}
            if not isinstance(action, dict) or not all(isinstance(each, dict) for each in action.values()):
                raise TypeError("an action is no object")
            for name in ("add", "remove"):
                if name in action and not isinstance(action[name].get("path"), str):
                    raise TypeError(f"an action {name!r} has no path")
            yield action
    except (ValueError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{path} is no version of a Delta log ({error}). Restore it, or repair the table."
        ) from error


def _path(action: Mapping[str, Any]) -> str:
    return unquote(str(action["path"]))


def _of_table(action: Mapping[str, Any]) -> list[str]:
    """Return what the protocol and the metadata of a table say that plain files cannot."""
    features = set(action.get("protocol", {}).get("readerFeatures") or ()) - _PLAIN_FEATURES
    found = [f"the table has the feature {name}" for name in sorted(map(str, features))]
    mapping = (action.get("metaData", {}).get("configuration") or {}).get("delta.columnMapping.mode", "none")
    return found if mapping == "none" else [*found, f"the table maps names of columns (by {mapping})"]


def _of_file(name: str, action: Mapping[str, Any], columns: tuple[str, ...]) -> Iterator[str]:
    if action.get("deletionVector"):
        yield f"{name} has a deletion vector"
    if "://" in name or not is_inside(name) or not is_visible(name):
        yield f"{name} is no data file in the folder"
        return
    values = {each: (action.get("partitionValues") or {}).get(each) or None for each in columns}
    try:
        is_same = parse_hive_partition_path(name) == values
    except PartitionError:
        is_same = False
    if not is_same:
        yield f"the folders of {name} are not its partition values {values}"

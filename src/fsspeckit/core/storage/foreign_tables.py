"""Folders that other programs own: table formats and streams, recognised by a listing that is made anyway.

The Parquet files of such a folder are not its rows: a log or a catalog says which of them count, and which of their
rows are deleted. To read them as plain Parquet would give wrong rows, and to change them would corrupt the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsspeckit.common.errors import TableFormatError
from fsspeckit.core.storage.base import FOLDER, Entry, Storage, Tree, join, parent

DELTA_FOLDER = "_delta_log"
_COPY = "Read it with the tools of that format, and write the rows to a new folder"
_PARTITION = re.compile(r"[^=]+=.*|data|bucket-\d+|base_\d+.*|delta_\d+_\d+.*")
"""Folders in which tables have their data files, so that the table is the folder above."""
_HIVE = re.compile(r"(?:base_\d{7,}|(?:delete_)?delta_\d{7,}_\d{7,}(?:_\d{4,})?)(?:_v\d+)?", re.ASCII)
_ICEBERG = re.compile(r"(?:version-hint\.text|[^/]+\.metadata\.json(?:\.gz)?)")
_DUCKLAKE = re.compile(
    r"ducklake-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b[^/]*\.parquet", re.ASCII
)
_VERSION = re.compile(r"(\d{20})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Owner:
    """A program that owns folders: what such a folder is called, and what to do with it.

    ``folder`` is the name of a folder in it. If ``names`` is given, that folder counts only with a file directly in it
    that has such a name. ``folders`` and ``files`` are the names of other folders and files in it.
    """

    title: str
    way_out: str
    folder: str = ""
    names: re.Pattern[str] | None = None
    folders: re.Pattern[str] | None = None
    files: re.Pattern[str] | None = None


DELTA = Owner(
    "a Delta Lake table (_delta_log)",
    "Read it with a reader of Delta, such as deltalake.DeltaTable(PATH).to_pyarrow_table(), and write the rows to a "
    "new folder",
    DELTA_FOLDER,
)
OWNERS = (
    DELTA,
    Owner(
        "the output of a Spark stream (_spark_metadata)",
        "Read it with spark.read.parquet, which leaves out files of failed batches, and write the rows to a new "
        "folder; let the stream write with merge_stream",
        "_spark_metadata",
    ),
    Owner("an Apache Hudi table (.hoodie)", _COPY, ".hoodie", files=re.compile(r"\.hoodie_partition_metadata.*")),
    Owner("an Apache Iceberg table (metadata)", _COPY, "metadata", names=_ICEBERG),
    Owner("an Apache Paimon table (schema/schema-0)", _COPY, "schema", names=re.compile(r"schema-\d+", re.ASCII)),
    Owner("a transactional table of Hive (base_N, delta_N_N)", _COPY, folders=_HIVE),
    Owner(
        "a table of DuckLake (ducklake-*.parquet)",
        "Read it in DuckDB with ATTACH 'ducklake:...', and write the rows to a new folder",
        files=_DUCKLAKE,
    ),
)
_BY_FOLDER: Mapping[str, Owner] = {owner.folder: owner for owner in OWNERS if owner.folder}


@dataclass(frozen=True, slots=True)
class Owned:
    """A folder of another program, relative to the listed folder: ``""`` is that folder itself."""

    folder: str
    owner: Owner = field(compare=False)


def owned_folders(tree: Tree) -> list[Owned]:
    """Return the folders of other programs in a listing. Hidden folders do not count: their files are no data."""
    found = [*_by_folders(tree), *_by_files(tree.files)]
    return [each for each in dict.fromkeys(found) if not _is_hidden(each.folder)]


def _by_folders(tree: Tree) -> Iterator[Owned]:
    for path in tree.folders:
        above, _, name = path.rpartition("/")
        owner = _BY_FOLDER.get(name)
        if owner is not None and (owner.names is None or _has_file(tree.files, path, owner.names)):
            yield Owned(above, owner)
        if name[:1] in ("b", "d"):
            yield from (Owned(above, each) for each in OWNERS if each.folders and each.folders.fullmatch(name))


def _has_file(files: Sequence[Entry], folder: str, names: re.Pattern[str]) -> bool:
    prefix = f"{folder}/"
    paths = (entry.path.removeprefix(prefix) for entry in files if entry.path.startswith(prefix))
    return any(names.fullmatch(path) for path in paths)


def _by_files(files: Iterable[Entry]) -> Iterator[Owned]:
    for entry in files:
        if "ducklake-" in entry.path or ".hoodie_" in entry.path:
            above, _, name = entry.path.rpartition("/")
            yield from (Owned(above, each) for each in OWNERS if each.files and each.files.fullmatch(name))


def _is_hidden(folder: str) -> bool:
    return any(part[:1] in ("_", ".") and "=" not in part for part in folder.split("/"))


def refusal(root: str, owned: Owned) -> TableFormatError:
    """Return the error for a folder that is, or contains, a folder of another program."""
    relation = f"contains {join(root, owned.folder)}, " if owned.folder else "is "
    return _error(f"{root} {relation}{owned.owner.title}", owned.owner)


def _error(what: str, owner: Owner) -> TableFormatError:
    return TableFormatError(f"{what}, not a plain Parquet folder. Nothing was changed. {owner.way_out}.")


def check_not_inside_foreign_table(storage: Storage, root: str) -> None:
    """Raise if a folder is a partition, or another folder of data files, of a table of another program.

    Only the folders above one with such a name are listed, so for other paths nothing is.
    """
    folder = root.rstrip("/")
    while _PARTITION.fullmatch(folder.rpartition("/")[2]) and parent(folder):
        folder = parent(folder)
        for owned in owned_folders(_folder_tree(storage, folder)):
            is_above = not owned.folder or root.startswith(f"{join(folder, owned.folder)}/")
            if is_above and not (owned.owner == DELTA and is_exported(storage, folder)):
                raise _error(f"{root} is inside {folder}, which is {owned.owner.title}", owned.owner)


def _folder_tree(storage: Storage, folder: str) -> Tree:
    """List a folder, and those folders in it of which only the files say whose they are."""
    try:
        entries = storage.list_dir(folder)
        folders = tuple(entry.path for entry in entries if entry.size == FOLDER)
        files = [entry for entry in entries if entry.size != FOLDER]
        for name in folders:
            if name in _BY_FOLDER and _BY_FOLDER[name].names is not None:
                inner = storage.list_dir(join(folder, name))
                files += [Entry(f"{name}/{entry.path}", entry.size, entry.stamp) for entry in inner]
    except PermissionError:
        return Tree((), ())  # a reader may have access to the data files only
    return Tree(tuple(files), folders)


def is_exported(storage: Storage, folder: str) -> bool:
    """Return whether an export of fsspeckit wrote the newest version of the Delta log of a folder.

    The names of the marks of exports are those of `core.commit.export_marks`.
    """
    entries = ((_VERSION.fullmatch(entry.path), entry.size) for entry in storage.list_dir(join(folder, DELTA_FOLDER)))
    newest = max(((found[1], size) for found, size in entries if found is not None), default=None)
    name = folder.rstrip("/").rpartition("/")[2]
    sidecars = (join(folder, ".fsspeckit"), join(parent(folder), f".{name}.fsspeckit"))
    marks = [mark for sidecar in sidecars for mark in storage.list_names(join(sidecar, "log"))]
    start = "export-delta-" if newest is None else f"export-delta-{newest[0]}-{newest[1]}-"
    return any(mark.startswith(start) for mark in marks)


def check_files_not_owned(storage: Storage, root: str, tree: Tree, found: Iterable[Entry]) -> None:
    """Raise if one of the files that a pattern or a folder leads to belongs to another program."""
    paths = [entry.path for entry in found]
    for owned in owned_folders(tree):
        prefix = f"{owned.folder}/" if owned.folder else ""
        if any(path.startswith(prefix) for path in paths) and not (
            owned.owner == DELTA and is_exported(storage, join(root, owned.folder))
        ):
            raise refusal(root, owned)
    if paths:
        check_not_inside_foreign_table(storage, root)

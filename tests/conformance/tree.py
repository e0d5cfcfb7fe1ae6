"""Everything below a folder, to check exactly that nothing changed: names, bytes, times and inodes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One file or folder: bytes (None for a folder), and its metadata in the file system."""

    content: bytes | None
    mtime_ns: int
    inode: int


def tree_of(root: Path) -> dict[str, Stamp]:
    """All files and folders below a root, hidden ones too, by relative path; folders count by name only."""
    found = {}
    for here, folders, files in os.walk(root):
        for name in folders:
            found[os.path.relpath(os.path.join(here, name), root)] = Stamp(None, 0, 0)
        for name in files:
            path = Path(here, name)
            status = path.lstat()
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(root))] = Stamp(content, status.st_mtime_ns, status.st_ino)
    return found


def contents(root: Path) -> dict[str, bytes | None]:
    """Names and bytes below a root."""
    return {path: stamp.content for path, stamp in tree_of(root).items()}


def data_files(dataset: Path) -> list[Path]:
    """Data files below a dataset, sorted: Parquet names, nothing hidden; a hive folder is never hidden."""
    found = []
    for path in sorted(dataset.rglob("*")):
        *folders, name = path.relative_to(dataset).parts
        hidden = name[0] in "_." or any(part[0] in "_." and "=" not in part for part in folders)
        if path.is_file() and path.suffix.lower() in SUFFIXES and not hidden:
            found.append(path)
    return found

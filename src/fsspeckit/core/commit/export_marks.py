"""Marks in the journal that say which metadata of a table format fsspeckit wrote for a dataset.

An export writes metadata of Delta Lake or Apache Iceberg for the files of a dataset. The mark of a version of that
metadata is written before the version itself, so a version without a mark was written by another program. Marks are
names of empty files in the folder of the records: one listing returns both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fsspeckit.common.errors import TableFormatError

TITLES = {"delta": "Delta Lake", "iceberg": "Apache Iceberg"}
_MARK = re.compile(r"export-(delta|iceberg)-(\d{20})-(\d{1,12})-([0-9a-f]{64})-(\d{20})", re.ASCII)
_KEPT = re.compile(r"keep-(delta|iceberg|glue|hive)", re.ASCII)
_VERSIONS = {
    "delta": re.compile(r"(\d{20})\.json", re.ASCII),
    "iceberg": re.compile(r"v(\d{1,18})\.metadata\.json", re.ASCII),
}


@dataclass(frozen=True, slots=True, order=True)
class ExportMark:
    """One version of exported metadata: its file's size and SHA-256, and the slot of the dataset that it describes."""

    format: str
    version: int
    seq: int
    size: int
    digest: str

    @property
    def name(self) -> str:
        """The name of the mark."""
        return f"export-{self.format}-{self.version:020d}-{self.size}-{self.digest}-{self.seq:020d}"


def parse_mark(name: str) -> ExportMark | None:
    """Return the mark with a name, or None."""
    found = _MARK.fullmatch(name)
    return None if found is None else ExportMark(found[1], int(found[2]), int(found[5]), int(found[3]), found[4])


def kept_name(kind: str) -> str:
    """Return the name of the mark that an export is refreshed after every commit."""
    return f"keep-{kind}"


def parse_kept(name: str) -> str | None:
    """Return what a mark says to refresh after every commit, or None."""
    found = _KEPT.fullmatch(name)
    return None if found is None else found[1]


def version_name(kind: str, version: int) -> str:
    """Return the file name of a version of exported metadata."""
    return f"{version:020d}.json" if kind == "delta" else f"v{version}.metadata.json"


def version_sizes(kind: str, files: Iterable[tuple[str, int]]) -> dict[int, int]:
    """Return the versions among files of a folder, given by name and size, with their sizes."""
    found = ((_VERSIONS[kind].fullmatch(name), size) for name, size in files)
    return {int(match[1]): size for match, size in found if match is not None}


def is_foreign(kind: str, versions: Mapping[int, int], marks: Iterable[ExportMark]) -> bool:
    """Return whether another program wrote the newest of these versions. Versions can be missing after a crash."""
    mine = [mark for mark in marks if mark.format == kind]
    if not mine:
        return True
    newest = max(versions, default=0)
    last = max(mark.version for mark in mine)
    known = {(mark.version, mark.size) for mark in mine}
    return bool(versions) and (newest > last or (newest == last and (newest, versions[newest]) not in known))


def is_metadata_of_others(name: str, mark: ExportMark | None) -> bool:
    """Return whether a file is a version of Iceberg metadata that another program wrote.

    Writers of catalogs give versions other names. Without a mark, only those names are looked at.
    """
    found = _VERSIONS["iceberg"].fullmatch(name)
    if found is None:
        return name.endswith((".metadata.json", ".metadata.json.gz"))
    return mark is not None and int(found[1]) > mark.version


def foreign_commit(kind: str, folder: str) -> TableFormatError:
    """Return the error for metadata that another program changed."""
    return TableFormatError(
        f"Another program committed to the {TITLES[kind]} table {folder}, which fsspeckit exported. The dataset does "
        f"not have that change. Nothing was changed. Run `fsspeckit export {kind} PATH --remove`, which lists the "
        "change "
        "and the ways to go on, or use the tools of that format only."
    )

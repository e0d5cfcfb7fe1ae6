"""SRC of `write` and `merge`, FEED of `apply-changes`: find its format and open its rows.

A Parquet file or folder is passed to the engine as a path. Csv and json files are not read here, because the types of
the dataset decide how they are parsed. Other sources become an Arrow table that is spooled to disk, a few files at a
time, and memory-mapped.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from fsspeckit.cli.command import Run
from fsspeckit.cli.errors import usage

if TYPE_CHECKING:
    from io import BufferedReader

    import pyarrow as pa

    from fsspeckit.core.dataset.place import Place
    from fsspeckit.core.ext.inputs import InputFile

STDIN = "-"
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Source:
    """A source of rows: its path, format and options."""

    path: str
    format: str
    delimiter: str | None
    encoding: str | None
    options: dict[str, Any] | None

    @classmethod
    def of(cls, run: Run, path: str, format_: str | None, delimiter: str | None, encoding: str | None) -> Source:
        """Find the format of a path and check the options."""
        from fsspeckit.core.formats import can_delimit

        options = run.options()
        if encoding == "":
            raise usage("--encoding is empty", "pass one such as utf-8, or leave it out")
        found = "arrow" if path == STDIN else format_ or _format_of(path, options)
        if delimiter is not None and found != "csv":
            raise usage(f"--delimiter does not go with {found}", "leave it out, or say --format csv")
        if encoding is not None and found not in ("csv", "json"):
            raise usage(f"--encoding does not go with {found}", "leave it out, or say --format csv or json")
        delimiter = "\t" if delimiter == "\\t" else delimiter
        if delimiter is not None and not can_delimit(delimiter):
            what = f"--delimiter {delimiter!r} is not one character that can separate values"
            raise usage(what, "pass one, such as ';' or '\\t' for a tab")
        return cls(path, found, delimiter, encoding, options)

    def rows(self) -> Any:
        """Return the rows in a form that `DatasetIO` accepts."""
        if self.path == STDIN:
            return _stdin()
        if self.format == "parquet" and not _PATTERN.search(self.path):
            return self.path
        if self.format in ("csv", "json"):
            from fsspeckit.core.dataset.text_source import TextFiles, TextFormat

            return TextFiles(
                self.path,
                cast("TextFormat", self.format),
                self.delimiter,
                "utf-8" if self.encoding is None else self.encoding,
            )
        from fsspeckit.core.ext import read_parquet

        return read_parquet(self.path, memory_map=True, storage_options=self.options)

    def rows_for(self, place: Place) -> Any:
        """Return the rows like `rows`, but read csv and json files, with the types of a dataset."""
        from fsspeckit.core.dataset.snapshot import load_snapshot
        from fsspeckit.core.dataset.text_source import TextFiles, read_text

        rows = self.rows()
        if not isinstance(rows, TextFiles):
            return rows
        return read_text(rows, load_snapshot(place.storage, place.journal.view()), None, self.options)

    def files(self) -> list[dict[str, Any]]:
        """Return path, size and version of every file of the source, to detect later changes."""
        found = [(file.storage.url(file.location), file.storage.stat(file.location)) for file in self._inputs()]
        return [{"path": url, "bytes": entry.size, "stamp": entry.version} for url, entry in found if entry is not None]

    def _inputs(self) -> list[InputFile]:
        from fsspeckit.common.choices import SourceFormat
        from fsspeckit.core.ext.inputs import find_files
        from fsspeckit.core.formats import ENDINGS

        endings = ENDINGS[cast("SourceFormat", self.format)]
        return find_files(self.path, endings, "reading the source", None, self.options)


def is_empty(rows: Any, options: dict[str, Any] | None) -> bool:
    """Return whether a source has no rows; for Parquet paths, from the footers."""
    if not isinstance(rows, str):
        return bool(rows.num_rows == 0)
    from fsspeckit.core.dataset.place import Place

    return rows_at(Place.of(rows, None, options)) == 0


def rows_at(place: Place) -> int:
    """Return the number of rows of a dataset, from the footers."""
    from fsspeckit.core.dataset.snapshot import load_snapshot
    from fsspeckit.core.operations.read import existing_view

    return load_snapshot(place.storage, existing_view(place)).rows


def _stdin() -> pa.Table:
    from fsspeckit.common.errors import SourceFileError
    from fsspeckit.common.text import split_message
    from fsspeckit.core.ext.arrow_ipc import read_ipc

    if sys.stdin.isatty():
        raise usage("the source is - and standard input is a terminal", "pipe an Arrow IPC stream in, or name a file")
    try:
        return read_ipc(cast("BufferedReader", sys.stdin.buffer), "standard input")
    except SourceFileError as error:
        raise usage(*split_message(str(error))) from error


def _format_of(path: str, options: dict[str, Any] | None) -> str:
    """Return the format by the ending of a path, or of a folder by the files in it."""
    from fsspeckit.common.errors import DatasetNotFoundError
    from fsspeckit.core.ext.inputs import find_files
    from fsspeckit.core.formats import ENDINGS, format_of

    found = format_of(path.rstrip("/"))
    if found is not None:
        return found
    present: list[str] = []
    for name, endings in ENDINGS.items():
        try:
            find_files(path, endings, "reading the source", None, options)
        except DatasetNotFoundError:
            continue
        present.append(name)
    if not present:
        raise DatasetNotFoundError(f"no parquet, csv or json file at {path}; check the path of the source")
    if len(present) > 1:
        raise usage(f"{path} may be any of {', '.join(present)}", "say which with --format")
    return present[0]

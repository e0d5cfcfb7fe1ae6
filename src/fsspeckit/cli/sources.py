"""SRC of `write` and `merge`, FEED of `apply-changes`: find its format and open its rows.

A Parquet file or folder is passed to the engine as a path. Csv and json files are not read here, because the types of
the dataset decide how they are parsed. Other sources become an Arrow table that is spooled to disk, a few files at a
time, and memory-mapped.
"""

from __future__ import annotations

import atexit
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from fsspeckit.cli.command import Run
from fsspeckit.cli.errors import CommandError, usage

if TYPE_CHECKING:
    from io import BufferedReader

    import pyarrow as pa

    from fsspeckit.core.dataset.place import Place
    from fsspeckit.core.dataset.text_source import TextFiles
    from fsspeckit.core.ext.inputs import InputFile

STDIN = "-"
_TEXT = ("csv", "json")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Source:
    """A source of rows: its path, format and options."""

    path: str
    format: str
    delimiter: str | None = None
    encoding: str | None = None
    schema: str | None = None
    cast: str | None = None
    decimal_comma: bool = False
    date_format: str | None = None
    options: dict[str, Any] | None = None
    run: Run | None = None

    @classmethod
    def of(
        cls,
        run: Run,
        path: str,
        *,
        format_: str | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
        schema: str | None = None,
        cast: str | None = None,
        decimal_comma: bool = False,
        date_format: str | None = None,
    ) -> Source:
        """Find the format of a path and check the options."""
        options = run.options()
        if encoding == "":
            raise usage("--encoding is empty", "pass one such as utf-8, or leave it out")
        found = format_ or ("arrow" if path == STDIN else _format_of(path, options))
        for option, value, formats in (
            ("--delimiter", delimiter, ("csv",)),
            ("--encoding", encoding, _TEXT),
            ("--schema", schema, _TEXT),
            ("--cast", cast, ("arrow", "parquet")),
            ("--decimal-comma", decimal_comma or None, ("csv",)),
            ("--date-format", date_format, ("csv",)),
        ):
            if value is not None and found not in formats:
                raise usage(f"{option} does not go with {found}", _instead(option, formats))
        written = (_checked_delimiter(delimiter), encoding, schema, cast, decimal_comma, date_format)
        return cls(path, found, *written, options, run)

    @property
    def reading(self) -> dict[str, Any]:
        """How the rows are written, by the names of the fields."""
        names = ("delimiter", "encoding", "schema", "cast", "decimal_comma", "date_format")
        return {name: getattr(self, name) for name in names}

    def rows(self) -> Any:
        """Return the rows in a form that `DatasetIO` accepts."""
        if self.format in _TEXT:
            return self._text_files()
        if self.path != STDIN and self.format == "parquet" and self.cast is None and not self._needs_table:
            return self.path
        if self.path != STDIN:
            table = self._table(self.path)
        elif self.format == "parquet":
            table = self._table(self._spooled())
        else:
            with self._waiting():
                table = _stdin()
        return table if self.cast is None else _cast(table, self.cast)

    @property
    def _needs_table(self) -> bool:
        """Whether engines would read the path as something else: a pattern, or a file that ends like another format."""
        from fsspeckit.core.formats import format_of

        return _PATTERN.search(self.path) is not None or format_of(self.path.rstrip("/")) in _TEXT

    def _table(self, path: str) -> pa.Table:
        from fsspeckit.core.expressions.column_types import parse_column_types
        from fsspeckit.core.ext import read_parquet

        types = None if self.cast is None else parse_column_types(self.cast)
        return read_parquet(path, types=types, memory_map=True, storage_options=self.options)

    def _waiting(self) -> AbstractContextManager[object]:
        """Show with a progress bar that standard input is read."""
        return nullcontext() if self.run is None else self.run.bars("read stdin")

    def _spooled(self) -> str:
        with self._waiting():
            return spooled_stdin()

    def _text_files(self) -> TextFiles:
        from fsspeckit.core.dataset.text_source import TextFiles, TextFormat

        path = self._spooled() if self.path == STDIN else self.path
        encoding = "utf-8" if self.encoding is None else self.encoding
        return TextFiles(
            path,
            cast("TextFormat", self.format),
            self.delimiter,
            encoding,
            {} if self.schema is None else self.schema,
            self.decimal_comma,
            self.date_format,
        )

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


def _instead(option: str, formats: Sequence[str]) -> str:
    if option == "--cast":
        return "leave it out, or use --schema"
    return f"leave it out, or say --format {' or '.join(formats)}"


def _checked_delimiter(text: str | None) -> str | None:
    from fsspeckit.core.formats import can_delimit

    delimiter = "\t" if text == "\\t" else text
    if delimiter is not None and not can_delimit(delimiter):
        what = f"--delimiter {delimiter!r} is not one character that can separate values"
        raise usage(what, "pass one, such as ';' or '\\t' for a tab")
    return delimiter


def _cast(table: pa.Table, text: str) -> pa.Table:
    """Cast columns so that no value changes."""
    import pyarrow as pa

    from fsspeckit.core.expressions.column_types import parse_column_types
    from fsspeckit.core.expressions.compute import cast_values

    for name, type_ in parse_column_types(text).items():
        if table.column_names.count(name) != 1:
            raise usage(f"--cast names {name!r}, which is not one column of the source", f"use {table.column_names}")
        try:
            column = cast_values(table[name], type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CommandError(
                f"--cast {name} {type_}: {error}", "correct the values, or choose another type"
            ) from error
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _check_piped() -> None:
    if sys.stdin.isatty():
        what = "the source is - and standard input is a terminal"
        raise usage(what, "pipe rows in: an Arrow IPC stream, or csv or json with --format; or name a file")


@cache
def spooled_stdin() -> str:
    """Return the path of a temporary file with the bytes of standard input. It is deleted when the program ends."""
    _check_piped()
    folder = TemporaryDirectory(prefix="fsspeckit-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "standard input"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


def _stdin() -> pa.Table:
    from fsspeckit.common.errors import SourceFileError
    from fsspeckit.common.text import split_message
    from fsspeckit.core.ext.arrow_ipc import read_ipc

    _check_piped()
    try:
        return read_ipc(cast("BufferedReader", sys.stdin.buffer), "standard input")
    except SourceFileError as error:
        problem, _ = split_message(str(error))
        remedy = "pass --format if the rows are csv, json or parquet, else write the stream again"
        raise CommandError(problem, remedy) from error


def _format_of(path: str, options: dict[str, Any] | None) -> str:
    """Return the format by the ending of a path, or of a folder by the files in it."""
    from fsspeckit.common.errors import DatasetNotFoundError
    from fsspeckit.core.ext.inputs import find_files, is_parquet_file
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
    if len(present) > 1 and is_parquet_file(path, options):
        return "parquet"
    if len(present) > 1:
        raise usage(f"{path} may be any of {', '.join(present)}", "say which with --format")
    return present[0]

"""Csv and json files that are read one by one, in any process, with their common schema.

`read_csv` and `read_json` need all files in one process. Here each file is described where it is read. The descriptions
give the common schema, by the rules of these readers, and every file is then read with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from fsspeckit.common.errors import SourceFileError
from fsspeckit.common.notation import USUAL, Notation
from fsspeckit.core.ext import csv, json
from fsspeckit.core.ext.inputs import InputFile, JointSchema, Piece, Request, join_schemas, read_each

_BATCH_ROWS = 65_536
TextFormat = Literal["csv", "json"]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file: the types of those that have one, and the forms of the texts of the others."""

    columns: Mapping[str, pa.DataType | csv.CellForms]


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads files of one format; ``known`` are the types that the caller sets for columns in the files."""

    format: TextFormat
    request: Request
    delimiter: str | None
    known: Mapping[str, pa.DataType]

    @classmethod
    def of(
        cls,
        files: Sequence[InputFile],
        format_: TextFormat,
        types: Mapping[str, pa.DataType],
        delimiter: str | None = None,
        encoding: str = "utf-8",
        notation: Notation = USUAL,
    ) -> TextReader:
        """Return a reader for some files.

        Args:
            files: The files.
            format_: ``"csv"`` or ``"json"``.
            types: Types of columns, where they are in the files; the types of other columns are inferred.
            delimiter: The character between two values of a csv file.
            encoding: The encoding of the files.
            notation: How numbers and dates of a csv file are written.
        """
        request = Request(
            f"read_{format_}",
            columns=None,
            schema=None,
            include_file_path=False,
            use_threads=False,
            inferred=True,
            types=types,
            encoding=encoding,
            notation=notation,
        )
        return cls(format_, request, delimiter, json.known_types(files, request) if format_ == "json" else types)

    def describe(self, file: InputFile) -> FileColumns:
        """Return the columns of a file. Values are parsed with the types of the caller; invalid values raise."""
        if self.format == "json":
            return FileColumns({field.name: field.type for field in self.read(file, {}).schema})
        named = {name: type_ for name, type_ in self.known.items() if not pa.types.is_null(type_)}
        forms: dict[str, csv.CellForms] = {}
        notation = self.request.notation

        def piece(file: InputFile) -> Piece:
            cells = csv.read_cells(file, self.delimiter, self.request)
            names = cells.table.column_names
            others = [name for name in names if name not in named]
            forms.update({name: csv.find_cells(cells.table[name].chunks, notation) for name in others})
            rest = Piece(cells.table.select([name for name in names if name in named]), ())
            csv.parse_cells(file, rest, named, self.request)
            return cells

        names = read_each([file], piece, self.request)[0].names
        return FileColumns({name: forms[name] if name in forms else named[name] for name in names})

    def join(
        self, files: Sequence[InputFile], found: Sequence[FileColumns], wanted: pa.Schema | None = None
    ) -> FileSet:
        """Return the files with their common schema; columns of ``wanted`` come first."""
        names = dict.fromkeys(name for each in found for name in each.columns)
        types = {name: self._type_of([each.columns[name] for each in found if name in each.columns]) for name in names}
        if self.format == "csv" and files:
            csv.check_delimiter(files[0].location, list(names), self.delimiter)
        schemas = [
            pa.schema([(n, types[n] if isinstance(kind, csv.CellForms) else kind) for n, kind in columns.items()])
            for columns in (each.columns for each in found)
        ]
        pieces = [Piece(schema.empty_table(), schema.names) for schema in schemas]
        joint = join_schemas(files, pieces, self.request)
        self._check_wanted(wanted, joint)
        return FileSet(self, tuple(files), types, joint if wanted is None else _with_columns(joint, wanted))

    def _type_of(self, kinds: Sequence[pa.DataType | csv.CellForms]) -> pa.DataType:
        """Return the type of a column: for csv, the type of all texts; json columns already have a type."""
        forms = [kind for kind in kinds if isinstance(kind, csv.CellForms)]
        return csv.join_cells(forms, self.request.notation) if forms else kinds[0]

    def _check_wanted(self, wanted: pa.Schema | None, joint: JointSchema) -> None:
        """Raise if no csv file has a given column. Keys of json objects may be absent."""
        present = joint.schema.names
        missing = [field.name for field in wanted or () if field.name not in present]
        if missing and present and self.format == "csv":
            raise SourceFileError(
                f"{self.request.operation}: no file has the columns {missing}. The files have {present}. Correct the "
                "names of the columns."
            )

    def read(self, file: InputFile, types: Mapping[str, pa.DataType]) -> pa.Table:
        """Return the rows of a file; csv columns have the given types."""

        def piece(file: InputFile) -> Piece:
            if self.format == "json":
                return json.read_objects(file, self.known, self.request)
            return csv.parse_cells(file, csv.read_cells(file, self.delimiter, self.request), types, self.request)

        return read_each([file], piece, self.request)[0].table


@dataclass(frozen=True, slots=True)
class FileSet:
    """Csv or json files with one schema."""

    reader: TextReader
    files: tuple[InputFile, ...]
    types: Mapping[str, pa.DataType]
    joint: JointSchema

    @property
    def schema(self) -> pa.Schema:
        """The schema of all files."""
        return self.joint.schema

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of one file.

        Raises:
            SourceFileError: The file is not the one that was described.
        """
        file, operation = self.files[number], self.reader.request.operation
        entry = file.storage.stat(file.location)
        if entry is not None and entry.stamp != file.stamp:
            raise SourceFileError(f"{operation} of {file.location}: the file has changed meanwhile. Run it again.")
        rows = self.reader.read(file, self.types)
        table = self.joint.table(number, file, rows, operation)
        yield from table.to_batches(max_chunksize=_BATCH_ROWS)

    def read_all(self) -> pa.Table:
        """Return the rows of all files."""
        batches = (batch for number in range(len(self.files)) for batch in self.batches(number))
        return pa.Table.from_batches(batches, self.schema)


def _with_columns(joint: JointSchema, wanted: pa.Schema) -> JointSchema:
    own = joint.own
    first = [own.field(f.name).with_nullable(f.nullable) if f.name in own.names else f for f in wanted]
    first = [field for field in first if field.name not in joint.layout]
    others = [field for field in own if field.name not in wanted.names]
    return JointSchema(pa.schema([*first, *others], own.metadata), joint.layout)

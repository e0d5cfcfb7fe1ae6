"""Read CSV files into one table, as if they were one file.

Every cell is read as text first. Then each column is parsed as the type that the caller names, or as the type that all
of its texts are written in; see `fsspeckit.common.text_values` for the rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from fsspeckit.common.arrow_versions import read_texts
from fsspeckit.common.errors import SchemaMismatchError, SourceFileError
from fsspeckit.common.notation import Notation
from fsspeckit.common.text_values import (
    TextForms,
    blank_to_null,
    find_forms,
    first_failure,
    infer_type,
    join_forms,
    not_a_value,
    parse_text,
    shown,
)
from fsspeckit.common.types import is_number, is_text, unwrapped
from fsspeckit.core.ext.csv_quotes import misplaced_quote
from fsspeckit.core.ext.inputs import (
    BOM,
    InputFile,
    Path,
    Piece,
    Request,
    find_files,
    first_character,
    for_all,
    has_bom,
    in_blocks,
    join_pieces,
    load,
    read_each,
)
from fsspeckit.core.formats import ENDINGS, USUAL_DELIMITERS, can_delimit, plain_name

_CELLS: dict[str, Any] = {
    "check_utf8": False,  # the whole file is checked before
    "null_values": [""],
    "strings_can_be_null": True,
    "quoted_strings_can_be_null": False,
}
_ROW = re.compile(r"Row #(\d+): (.*)", re.DOTALL)
_LOOKED_AT = 65536
"""Bytes at the start of a file that are searched for its delimiter and for decimal commas."""
_DECIMAL_COMMA = rb"""(?:^|[;])["']?-?[0-9.]*[0-9],[0-9]+["']?(?:[;]|$)"""
Parse = Callable[[pa.Buffer, bool], pa.Table]


def read_csv(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    types: Mapping[str, pa.DataType] | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    decimal_comma: bool = False,
    date_format: str | None = None,
    include_file_path: bool = False,
    use_threads: bool = True,
    memory_map: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    r"""Read CSV files with a header line, plain or compressed (`.gz`, `.bz2`, `.zst`).

    No value changes. A column that `schema` or `types` names is parsed as that type. Any other column gets the type
    that all its values, in all files, are written in, and is text where formatting the parsed values would not give the
    same text back: `01234` stays text. An empty cell is null; an empty cell in quotes is the empty text in a text
    column.

    Args:
        path: A file, a folder, a pattern such as `data/*.csv`, or a list of these.
        columns: Only these columns, in this order.
        schema: The schema of the result; columns that a file lacks are null.
        types: The types of some columns, where they are in the files; the types of other columns are inferred.
        delimiter: The character between two values; by default a comma, or a tab in a `.tsv` file.
        encoding: The encoding of the files.
        decimal_comma: Numbers are written like `1.234,56`, in columns whose type `schema` or `types` gives.
        date_format: Dates and times are written in this format of `strptime`, such as `%d.%m.%Y`, in columns whose type
            `schema` or `types` gives.
        include_file_path: Add a string column `file_path` with the path of each row's file.
        use_threads: Read in several threads; the result is the same.
        memory_map: Keep the rows in a temporary file that is mapped; only a few files are in memory at once.
        filesystem: An fsspec filesystem that the paths belong to.
        storage_options: Options of the filesystem that a URL names.

    Raises:
        FileNotFoundError: A path leads to no file.
        pa.ArrowIOError: The storage failed.
        SourceFileError: A file is not CSV text of the encoding, or a value cannot be parsed as its column's type. The
            message names the file, the row (the first one below the header is row 1), the column and the value.
        SchemaMismatchError: A file has two columns of one name.
        pa.ArrowKeyError: No file has a wanted column.
        ValueError: The delimiter is not one ASCII character, or is a quotation mark or a line end, or the date format
            is invalid.

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = file.write_text("id,zip\n1,01234\n2,98765\n")
        >>> read_csv(file).to_pylist()
        [{'id': 1, 'zip': '01234'}, {'id': 2, 'zip': '98765'}]
    """
    if delimiter is not None and not can_delimit(delimiter):
        raise ValueError(f"read_csv: delimiter={delimiter!r} cannot separate values. Use one such as ';' or a tab.")
    request = Request(
        "read_csv",
        columns,
        schema,
        include_file_path,
        use_threads,
        memory_map,
        inferred=True,
        types=types or {},
        encoding=encoding,
        notation=Notation(decimal_comma, date_format),
    )
    files = find_files(path, ENDINGS["csv"], request.operation, filesystem, storage_options)
    pieces = read_each(files, lambda file: read_cells(file, delimiter, request), request)
    found = _types(pieces, request)
    pieces = read_each(files, lambda file, piece: parse_cells(file, piece, found, request), request, pieces)
    return join_pieces(files, pieces, request)


def read_cells(file: InputFile, delimiter: str | None, request: Request) -> Piece:
    """Return the cells of a file as text."""
    usual = "\t" if plain_name(file.location).endswith(".tsv") else ","
    options = pacsv.ParseOptions(delimiter=usual if delimiter is None else delimiter, newlines_in_values=True)

    def parse(data: pa.Buffer, use_threads: bool) -> pa.Table:
        def blocks(stream: pa.NativeFile, block_size: int) -> pa.Table:
            read = pacsv.ReadOptions(use_threads=use_threads, block_size=block_size)
            return read_texts(stream, read, options, _CELLS)

        return in_blocks(data, blocks)

    data = load(file, request)
    if not first_character(data):
        return Piece(pa.table({}), ())
    if data[data.size - 1] not in b"\r\n":
        data = pa.py_buffer(
            data.to_pybytes() + b"\n"
        )  # Arrow does not read a header without a newline at the end of the file
    if found := misplaced_quote(data, options.delimiter):
        raise _question(file, data, delimiter, options.delimiter, request) or request.bad_file(
            file, f"line {found.line}", found.what
        )
    if has_bom(data):  # a second one is a part of the first name, and Arrow removes one
        data = pa.py_buffer(BOM + data.to_pybytes())
    try:
        table = parse(data, request.use_threads)
    except pa.ArrowInvalid as error:
        questioned = _question(file, data, delimiter, options.delimiter, request)
        raise questioned or _not_csv(error, file, data, parse, request) from error
    if twice := sorted(name for name, count in Counter(table.column_names).items() if count > 1):
        raise SchemaMismatchError(
            f"{request.operation} of {file.location}: column names that are used twice: {twice}. Rename one of each."
        )
    return Piece.of(table, request)


def _question(
    file: InputFile, data: pa.Buffer, given: str | None, expected: str, request: Request
) -> SourceFileError | None:
    """Return the error for a file whose header has another delimiter, if the caller gave none."""
    header, *lines = data[:_LOOKED_AT].to_pybytes().splitlines()
    other = next((each for each in USUAL_DELIMITERS if each.encode() in header), None)
    if given is not None or other is None or expected.encode() in header:
        return None
    number = re.compile(_DECIMAL_COMMA.replace(b";", re.escape(other.encode())))
    has_commas = other != "," and any(map(number.search, lines))
    arguments = f"delimiter={other!r} and decimal_comma=True" if has_commas else f"delimiter={other!r}"
    remedy = f"If {other!r} separates the values, pass {arguments}, else correct the file"
    return request.bad_file(file, "header", f"it has {other!r} and no {expected!r}", remedy)


def _not_csv(error: pa.ArrowInvalid, file: InputFile, data: pa.Buffer, parse: Parse, request: Request) -> Exception:
    """Return the error with its row number, which Arrow reports only in a single-threaded read."""
    try:
        parse(data, False)
    except pa.ArrowInvalid as same:
        error = same
    found = _ROW.search(str(error))
    if found is None:
        return request.bad_file(file, "", " ".join(str(error).split()))
    row = int(found[1]) - 1  # Arrow counts the header
    return request.bad_file(file, f"row {row}" if row else "header", shown(" ".join(found[2].split())))


def _types(pieces: Sequence[Piece], request: Request) -> dict[str, pa.DataType]:
    """Return the type of each column: the given type, else the type of all its values."""
    names = list(dict.fromkeys(name for piece in pieces for name in piece.table.column_names))

    def find(name: str) -> pa.DataType:
        known = request.known.get(name, pa.null())
        if not pa.types.is_null(known):
            return known
        tables = [piece.table for piece in pieces if piece.table.schema.get_field_index(name) >= 0]
        return _inferred([chunk for table in tables for chunk in table[name].chunks], request.notation)

    return dict(zip(names, for_all(find, request, names), strict=True))


def _inferred(texts: Sequence[pa.Array], notation: Notation) -> pa.DataType:
    """Return the type of all texts."""
    return join_cells([find_cells(texts, notation)], notation) if notation.decimal_comma else infer_type(texts)


@dataclass(frozen=True, slots=True)
class CellForms:
    """How the cells of a part of a column are written; ``comma``: as numbers with a decimal comma, if all can be."""

    usual: TextForms
    comma: TextForms | None = None


def find_cells(texts: Sequence[pa.Array], notation: Notation) -> CellForms:
    """Return the forms of the cells of a part of a column."""
    usual = find_forms(texts)
    if not notation.decimal_comma:
        return CellForms(usual)
    try:
        plain = [notation.plain(blank_to_null(chunk), pa.float64()) for chunk in texts]
    except pa.ArrowInvalid:
        return CellForms(usual)
    return CellForms(usual, find_forms(plain))


def join_cells(parts: Sequence[CellForms], notation: Notation) -> pa.DataType:
    """Return the type of a column. With a decimal comma, a text with another form of number is no number."""
    commas = [part.comma for part in parts if part.comma is not None]
    if notation.decimal_comma and len(commas) == len(parts):
        return join_forms(commas)
    found = join_forms([part.usual for part in parts])
    return pa.string() if notation.decimal_comma and is_number(found) else found


def check_delimiter(where: str, names: Sequence[str], delimiter: str | None) -> None:
    """Raise if there is one column and its name has another usual delimiter: commas may not separate values."""
    if delimiter is not None or len(names) != 1:
        return
    other = next((each for each in USUAL_DELIMITERS if each in names[0]), None)
    if other is not None:
        expected = "\t" if plain_name(where).endswith(".tsv") else ","
        raise SourceFileError(
            f"{where} has one column, {names[0]!r}. If {other!r} separates its values, pass delimiter={other!r}, else "
            f"pass delimiter={expected!r}."
        )


def parse_cells(file: InputFile, piece: Piece, types: Mapping[str, pa.DataType], request: Request) -> Piece:
    """Convert the cells of a file to their types."""
    table = piece.table
    if not table.column_names:
        return piece
    columns = [_parse_column(file, table[name], name, types[name], request) for name in table.column_names]
    return Piece(pa.table(columns, table.column_names), piece.names)


def _parse_column(
    file: InputFile, texts: pa.ChunkedArray, name: str, type_: pa.DataType, request: Request
) -> pa.ChunkedArray:
    is_plain_text = is_text(unwrapped(type_))
    notation = request.notation if name in request.known else Notation(decimal_comma=request.notation.decimal_comma)

    def parse(chunk: pa.Array) -> pa.Array:
        return parse_text(chunk if is_plain_text else notation.plain(blank_to_null(chunk), type_), type_)

    parsed, rows = [], 0
    for chunk in filter(len, texts.chunks):
        try:
            parsed.append(parse(chunk))
        except pa.ArrowNotImplementedError as error:
            raise _no_text(file, name, type_, request) from error
        except pa.ArrowException as error:
            at = first_failure(chunk, parse)
            where, what = f"row {rows + at + 1}, column {name!r}", not_a_value(chunk[at].as_py(), type_)
            raise request.bad_file(file, where, what, _remedy(chunk[at].as_py(), type_, notation)) from error
        rows += len(chunk)
    return pa.chunked_array(parsed, type_)


_STARTS_WITH_YEAR = re.compile(r"\d{4}-")


def _remedy(value: Any, type_: pa.DataType, notation: Notation) -> str:
    """Return what to do about a value: it may be written in another way."""
    plain = unwrapped(type_)
    if is_number(plain) and "," in value and not notation.decimal_comma:
        return "Correct the value, or pass decimal_comma=True for numbers such as 1.234,56"
    if is_number(plain) and notation.decimal_comma:
        return "Correct the value: numbers are written like 1.234,56 with decimal_comma=True"
    is_time = pa.types.is_date(plain) or pa.types.is_timestamp(plain)
    if is_time and notation.date_format is not None:
        if "%z" in notation.date_format and pa.types.is_timestamp(plain) and plain.tz is None:
            return "Give the column the type timestamptz, because its values have a zone"
        return f"Correct the value: dates are written like {notation.example} with date_format={notation.date_format!r}"
    if is_time and notation.date_format is None and not _STARTS_WITH_YEAR.match(value):
        return "Correct the value, or pass date_format='%d.%m.%Y' for dates such as 31.03.2026"
    return "Correct the value"


def _no_text(file: InputFile, name: str, type_: pa.DataType, request: Request) -> SourceFileError:
    what = f"text cannot be parsed as the type {type_}"
    return request.bad_file(file, f"column {name!r}", what, "Pass these rows as Arrow data or as a Parquet file")

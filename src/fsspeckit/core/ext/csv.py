"""Reading CSV files to one table, as if they were one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from fsspeckit.common.types import common_type, is_text, unwrapped
from fsspeckit.core.ext.inputs import (
    InputFile,
    Path,
    Piece,
    Request,
    find_files,
    first_character,
    in_blocks,
    join_pieces,
    load,
    read_each,
)

ENDINGS = (".csv", ".tsv")


def read_csv(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    delimiter: str = ",",
    include_file_path: bool = False,
    use_threads: bool = True,
    memory_map: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    r"""Read CSV files with a header line, plain or compressed (`.gz`, `.bz2`, `.zst`).

    Types are inferred unless `schema` names them. A column that looks like different things in different files (numbers
    in one, text in another) is text in all of them, as it would be in one file.

    Args:
        path: A file, a folder, a pattern such as `data/*.csv`, or a list of these.
        columns: Only these columns, in this order.
        schema: The schema of the result; columns that a file lacks are null.
        delimiter: What stands between two values.
        include_file_path: Add a string column `file_path` with the path of each row's file.
        use_threads: Read in several threads; the result is the same.
        memory_map: Keep the rows in a temporary file that is mapped; only a few files are in memory at once.
        filesystem: An fsspec filesystem that the paths belong to.
        storage_options: Options of the filesystem that a URL names.

    Raises:
        FileNotFoundError: A path leads to no file.
        pa.ArrowIOError: The storage failed.
        pa.ArrowInvalid: A file is not CSV, or a value cannot be read as its column's type.
        pa.ArrowKeyError: No file has a wanted column.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = file.write_text("id,name\n1,x\n2,y\n")
        >>> read_csv(file).to_pylist()
        [{'id': 1, 'name': 'x'}, {'id': 2, 'name': 'y'}]
    """
    request = Request("read_csv", columns, schema, include_file_path, use_threads, memory_map, inferred=True)
    files = find_files(path, ENDINGS, request.operation, filesystem, storage_options)
    types = {field.name: _parsed_type(field.type) for field in schema or ()}
    pieces = _read_all(files, types, delimiter, request)
    disputed = [name for name in _disputed(pieces) if name not in types]
    if disputed:
        pieces = _read_all(files, types | dict.fromkeys(disputed, pa.string()), delimiter, request)
    return join_pieces(files, pieces, request)


def _read_all(
    files: Sequence[InputFile], types: Mapping[str, pa.DataType], delimiter: str, request: Request
) -> list[Piece]:
    convert = pacsv.ConvertOptions(column_types=dict(types))
    parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def parse_blocks(stream: pa.NativeFile, block_size: int) -> pa.Table:
        options = pacsv.ReadOptions(use_threads=request.use_threads, block_size=block_size)
        return pacsv.read_csv(stream, read_options=options, parse_options=parse, convert_options=convert)

    def read(file: InputFile) -> Piece:
        data = load(file)
        if not first_character(data):
            return Piece(pa.table({}), ())
        return Piece.of(in_blocks(data, parse_blocks), request)

    return read_each(files, read, request)


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    """A type that the CSV parser knows, from which the wanted one is had by an exact cast."""
    plain = unwrapped(type_)
    return pa.string() if is_text(plain) else plain


def _disputed(pieces: Sequence[Piece]) -> list[str]:
    """Columns whose types in different files have nothing in common."""
    joined: dict[str, pa.DataType | None] = {}
    for piece in pieces:
        for field in piece.table.schema:
            before = joined.setdefault(field.name, field.type)
            if before is not None:
                joined[field.name] = common_type(before, field.type, loosen=True, checked=True)
    return [name for name, type_ in joined.items() if type_ is None]

"""Reading JSON files to one table: one object a line, objects over several lines, or an array of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson
from pyarrow import types as pat

from fsspeckit.common.partitions import parse_hive_partition_path
from fsspeckit.common.types import is_any_list, is_text, unwrapped
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

ENDINGS = (".json", ".jsonl", ".ndjson")
_SPACE = " \t\r\n"


def read_json(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    include_file_path: bool = False,
    use_threads: bool = True,
    memory_map: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Read JSON files, plain or compressed (`.gz`, `.bz2`, `.zst`).

    Args:
        path: A file, a folder, a pattern such as `data/*.jsonl`, or a list of these.
        columns: Only these columns, in this order.
        schema: The schema of the result; columns that a file lacks are null.
        include_file_path: Add a string column `file_path` with the path of each row's file.
        use_threads: Read in several threads; the result is the same.
        memory_map: Keep the rows in a temporary file that is mapped; only a few files are in memory at once.
        filesystem: An fsspec filesystem that the paths belong to.
        storage_options: Options of the filesystem that a URL names.

    Raises:
        FileNotFoundError: A path leads to no file.
        pa.ArrowIOError: The storage failed.
        pa.ArrowInvalid: A file is not JSON of objects, or a value cannot be read as its column's type.
        pa.ArrowKeyError: No file has a wanted column.
        SchemaMismatchError: A column has incompatible types in two files.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.json")
        >>> _ = file.write_text('[{"id": 1}, {"id": 2, "tags": ["x"]}]')
        >>> read_json(file).to_pylist()
        [{'id': 1, 'tags': None}, {'id': 2, 'tags': ['x']}]
    """
    request = Request("read_json", columns, schema, include_file_path, use_threads, memory_map, inferred=True)
    files = find_files(path, ENDINGS, request.operation, filesystem, storage_options)
    known = None if schema is None else _known(schema, files)
    parse = pajson.ParseOptions(
        explicit_schema=known,
        newlines_in_values=True,
        unexpected_field_behavior="infer" if known is None else "ignore",
    )

    def parse_blocks(stream: pa.NativeFile, block_size: int) -> pa.Table:
        options = pajson.ReadOptions(use_threads=use_threads, block_size=block_size)
        return pajson.read_json(stream, read_options=options, parse_options=parse)

    def read(file: InputFile) -> Piece:
        data = load(file)
        if first_character(data) == b"[":
            data = pa.py_buffer("\n".join(_elements(data.to_pybytes().decode("utf-8"))).encode())
        if not first_character(data):
            return Piece(pa.table({}), ())
        return Piece.of(in_blocks(data, parse_blocks), request)

    return join_pieces(files, read_each(files, read, request), request)


def _known(schema: pa.Schema, files: Sequence[InputFile]) -> pa.Schema:
    """What the parser is told: it makes up columns that a file lacks, so none that stand in the folders' names."""
    in_folders = {name for file in files for name in parse_hive_partition_path(file.relative)}
    return pa.schema([(field.name, _parsed_type(field.type)) for field in schema if field.name not in in_folders])


def _elements(text: str) -> Iterator[str]:
    """The elements of a JSON array as they are written, so that no digit is lost on the way."""
    decoder = json.JSONDecoder()
    at = _skip(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise pa.ArrowInvalid(f"not valid JSON at character {error.pos}: {error.msg}") from error
        if not isinstance(value, dict):
            raise pa.ArrowInvalid(f"the array holds something other than an object at character {at}")
        yield text[at:end]
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise pa.ArrowInvalid(f"the array is not closed or lacks a comma at character {at}")
    if text[at + 1 :].strip(_SPACE):
        raise pa.ArrowInvalid(f"something follows the array at character {at + 1}")


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    """A type that the JSON parser knows, from which the wanted one is had by an exact cast."""
    plain = unwrapped(type_)
    if is_text(plain):
        return pa.string()
    if is_any_list(plain):
        return pa.list_(_parsed_type(plain.value_type))
    if pat.is_struct(plain):
        return pa.struct([(field.name, _parsed_type(field.type)) for field in plain])
    return plain

"""Read JSON files into one table: one object a line, objects over several lines, or an array of objects.

JSON types are kept: text stays text, even if it looks like a date, and a number stays a number.
The parser of Arrow rounds numbers that float64 cannot hold; `fsspeckit.core.ext.json_numbers` finds those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson
from pyarrow import types as pat

from fsspeckit.common.casting import cast_leaf, exact_cast
from fsspeckit.common.partitions import parse_hive_partition_path
from fsspeckit.common.schema import cast_schema
from fsspeckit.common.text_values import first_failure, not_a_value, parse_text, shown
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
from fsspeckit.core.ext.json_numbers import Inexact, inexact_numbers, oversized_numbers, replaced
from fsspeckit.core.ext.json_objects import NotRecordsError, checked_records, objects
from fsspeckit.core.formats import ENDINGS

# If Arrow infers the type of such a list, it creates an invalid array. With a given type it does not.
_NULL_FIRST = re.compile(rb"\[\s*null")
_CHANGED = re.compile(r"Column\(/([^)]*)\) changed from (\w+) to (\w+)")
_TWICE = re.compile(r"Column\(/([^)]*)\) was specified twice")
Types = Mapping[str, pa.DataType]


def read_json(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    types: Mapping[str, pa.DataType] | None = None,
    encoding: str = "utf-8",
    include_file_path: bool = False,
    use_threads: bool = True,
    memory_map: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Read JSON files, plain or compressed (`.gz`, `.bz2`, `.zst`).

    No value changes. A column that `schema` or `types` names has that type; text is then parsed as a date, time or
    decimal where the type asks for it. In any other column text stays text, and numbers are int64, else float64, else
    decimal where float64 cannot hold all digits. A key that an object lacks is null.

    Args:
        path: A file, a folder, a pattern such as `data/*.jsonl`, or a list of these.
        columns: Only these columns, in this order.
        schema: The schema of the result; columns that a file lacks are null.
        types: The types of some columns, where they are in the files; the types of other columns are inferred.
        encoding: The encoding of the files.
        include_file_path: Add a string column `file_path` with the path of each row's file.
        use_threads: Read in several threads; the result is the same.
        memory_map: Keep the rows in a temporary file that is mapped; only a few files are in memory at once.
        filesystem: An fsspec filesystem that the paths belong to.
        storage_options: Options of the filesystem that a URL names.

    Raises:
        FileNotFoundError: A path leads to no file.
        pa.ArrowIOError: The storage failed.
        SourceFileError: A file is not JSON of objects, or a value cannot be read as its column's type. The message
            names the file, the row (the first object is row 1), the column and the value.
        pa.ArrowKeyError: No file has a wanted column.
        SchemaMismatchError: A column has incompatible types in two files.

    Examples:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "a.json")
        >>> _ = file.write_text('[{"id": 1}, {"id": 2, "tags": ["x"]}]')
        >>> read_json(file).to_pylist()
        [{'id': 1, 'tags': None}, {'id': 2, 'tags': ['x']}]
    """
    request = Request(
        "read_json",
        columns,
        schema,
        include_file_path,
        use_threads,
        memory_map,
        inferred=True,
        types=types or {},
        encoding=encoding,
    )
    files = find_files(path, ENDINGS["json"], request.operation, filesystem, storage_options)
    known = known_types(files, request)
    return join_pieces(files, read_each(files, lambda file: read_objects(file, known, request), request), request)


def known_types(files: Sequence[InputFile], request: Request) -> dict[str, pa.DataType]:
    """Return the types that the caller sets for keys of objects; hive columns are read from folder names."""
    in_folders = {name for file in files for name in parse_hive_partition_path(file.relative)}
    return {name: type_ for name, type_ in request.known.items() if name not in in_folders and not pat.is_null(type_)}


def read_objects(file: InputFile, known: Types, request: Request) -> Piece:
    """Return the objects of a file as rows; columns in ``known`` have that type."""
    try:
        data = checked_records(load(file, request))
    except NotRecordsError as error:
        raise request.bad_file(file, f"line {error.line}", str(error)) from error
    if not first_character(data):
        return Piece(pa.table({}), ())
    document = _Document(data, file, request)
    table = document.read({name: _parsed_type(type_) for name, type_ in known.items()})
    if request.schema is None:
        table = table.drop_columns([name for name in known if document.lacks(table, name)])
    for index, name in enumerate(table.column_names):
        if name in known:
            table = table.set_column(index, name, document.typed(table[name], name, known[name]))
    return Piece.of(table, request)


@dataclass(frozen=True, slots=True)
class _Document:
    """The objects of one file."""

    data: pa.Buffer
    file: InputFile
    request: Request

    def read(self, known: Types) -> pa.Table:
        """Return the rows: columns in ``known`` have that type; in others text stays text and no number is rounded."""
        table = self._parse(known)
        inferred = table.schema
        kept = {field.name: _given_type(field.type) for field in inferred}
        if any(kept[field.name] != field.type for field in table.schema) or _NULL_FIRST.search(self.data):
            table = self._parse({**kept, **known})
        again = partial(self._arrow, self.data, others="ignore")
        for found in oversized_numbers(self.data, table, self.request.known, again):
            raise self._bad_value(found.row, found.column, found.value, self.request.known[found.column])
        wider: dict[str, pa.DataType] = {}
        for found in inexact_numbers(self.data, table, again):
            if found.column in known or found.decimal is None:
                raise self._inexact(found)
            before = wider.get(found.column, table.schema.field(found.column).type)
            wider[found.column] = replaced(before, found.path, found.decimal)
        if wider:
            table = self._parse({field.name: field.type for field in table.schema} | wider)
        table.validate()
        nulls = [field.with_type(_with_nulls(inferred.field(field.name).type, field.type)) for field in table.schema]
        return cast_schema(table, pa.schema(nulls)) if inferred.names else table

    def lacks(self, table: pa.Table, name: str) -> bool:
        """Return whether no object has a key: the parser adds a null column for every type that it is given."""
        if table[name].null_count < table.num_rows:
            return False
        spellings = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
        if not any(re.search(re.escape(text.encode()), self.data) for text in spellings):
            return True
        return not any(name in json.loads(text) for text in objects(self.data.to_pybytes().decode()))

    def typed(self, column: pa.ChunkedArray, name: str, type_: pa.DataType) -> pa.ChunkedArray:
        """Convert a column to a type; text is parsed."""
        parsed, rows = [], 0
        for chunk in column.chunks:
            try:
                parsed.append(_parse(chunk, type_))
            except pa.ArrowException as error:
                at = first_failure(chunk, lambda part: _parse(part, type_))
                raise self._bad_value(rows + at + 1, name, chunk[at].as_py(), type_) from error
            rows += len(chunk)
        return pa.chunked_array(parsed, type_)

    def _parse(self, types: Types) -> pa.Table:
        others = "infer" if self.request.schema is None else "ignore"
        try:
            return self._arrow(self.data, types, others)
        except pa.ArrowNotImplementedError as error:
            remedy = "Pass these rows as Arrow data or as a Parquet file"
            raise self.request.bad_file(self.file, "", str(error), remedy) from error
        except pa.ArrowInvalid as error:
            raise self._explained(error, types, others) from error

    def _arrow(self, data: pa.Buffer, types: Types, others: str) -> pa.Table:
        parse = pajson.ParseOptions(
            explicit_schema=pa.schema(list(types.items())) if types else None,
            newlines_in_values=True,
            unexpected_field_behavior=others,
        )

        def blocks(stream: pa.NativeFile, block_size: int) -> pa.Table:
            options = pajson.ReadOptions(use_threads=self.request.use_threads, block_size=block_size)
            return pajson.read_json(stream, read_options=options, parse_options=parse)

        return in_blocks(data, blocks)

    def _explained(self, error: pa.ArrowInvalid, types: Types, others: str) -> Exception:
        """Return the error with row, column and value, which Arrow's parser does not report."""
        texts = list(objects(self.data.to_pybytes().decode()))
        good, bad = 0, len(texts)
        while bad - good > 1:  # objects before ``good`` are read together, those before ``bad`` are not
            middle = (good + bad) // 2
            try:
                self._arrow(pa.py_buffer("\n".join(texts[:middle]).encode()), types, others)
            except pa.ArrowInvalid as same:
                bad, error = middle, same
            else:
                good = middle
        row = json.loads(texts[bad - 1])
        for name in row.keys() & types.keys():
            cell = pa.py_buffer(json.dumps({name: row[name]}).encode())
            try:
                self._arrow(cell, {name: types[name]}, "ignore")
            except pa.ArrowInvalid:
                return self._bad_value(bad, name, row[name], self.request.known.get(name, types[name]))
        if found := _CHANGED.search(str(error)):
            where, what = f"row {bad}, column {found[1]!r}", f"the value is {found[3]}, and {found[2]} in earlier rows"
        elif found := _TWICE.search(str(error)):
            where, what = f"row {bad}, column {found[1]!r}", "the object has this key twice"
        else:
            where, what = f"row {bad}", " ".join(str(error).split())
        return self.request.bad_file(self.file, where, what)

    def _bad_value(self, row: int, name: str, value: Any, type_: pa.DataType) -> Exception:
        where = f"row {row}, column {name!r}"
        return self.request.bad_file(self.file, where, not_a_value(value, type_), "Correct the value")

    def _inexact(self, found: Inexact) -> Exception:
        what = f"{shown(found.value)} has more digits than the type {found.type} holds"
        remedy = "Round the number" if found.column in self.request.known else "Round the number, or write it as text"
        return self.request.bad_file(self.file, f"row {found.row}, column {found.column!r}", what, remedy)


def _parse(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert values to a type; text is parsed if the type is not text."""
    if isinstance(type_, pa.BaseExtensionType):
        return parse_text(array, type_)
    return exact_cast(array, type_, fill_missing=True, leaf=_parse_leaf)


def _parse_leaf(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return parse_text(array, type_) if is_text(array.type) and not is_text(type_) else cast_leaf(array, type_)


def _given_type(type_: pa.DataType) -> pa.DataType:
    """Return an inferred type with text instead of timestamps and of the values of lists that hold only null."""
    if pat.is_timestamp(type_):
        return pa.string()
    if pat.is_list(type_):
        return pa.list_(pa.string() if pat.is_null(type_.value_type) else _given_type(type_.value_type))
    if pat.is_struct(type_):
        return pa.struct([(field.name, _given_type(field.type)) for field in type_])
    return type_


def _with_nulls(inferred: pa.DataType, given: pa.DataType) -> pa.DataType:
    """Return the given type with lists of nulls where these were inferred."""
    if pat.is_null(inferred):
        return inferred
    if pat.is_list(inferred) and pat.is_list(given):
        return pa.list_(_with_nulls(inferred.value_type, given.value_type))
    if pat.is_struct(inferred) and pat.is_struct(given):
        return pa.struct([(field.name, _with_nulls(inferred.field(field.name).type, field.type)) for field in given])
    return given


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    """Return the type to pass to Arrow's parser; parsing text or an exact cast then gives the wanted type."""
    plain = unwrapped(type_)
    if isinstance(plain, pa.BaseExtensionType):
        return pa.string()
    if is_any_list(plain):
        return pa.list_(_parsed_type(plain.value_type))
    if pat.is_struct(plain):
        return pa.struct([(field.name, _parsed_type(field.type)) for field in plain])
    if pat.is_decimal(plain):
        return pa.decimal256(76, plain.scale)  # narrower ones overflow without an error
    if pat.is_float16(plain):
        return pa.float64()
    is_own = pat.is_integer(plain) or pat.is_floating(plain) or pat.is_boolean(plain) or pat.is_map(plain)
    return plain if is_own else pa.string()

"""Shared code of all readers: find files, read them in parallel, and join them to one table.

The order of rows is that of the given paths and, within a folder or pattern, of the sorted file paths; threads do
not change it. The modules of formats do not handle paths, and this module does not handle formats.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
from fsspec.utils import glob_translate

from fsspeckit.common.causes import storage_error
from fsspeckit.common.errors import DatasetNotFoundError, FsspeckitError, SourceFileError, StorageError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.notation import USUAL, Notation
from fsspeckit.common.partitions import parse_hive_partition_path, partition_type, typed_values
from fsspeckit.common.schema import cast_schema, unify_schemas
from fsspeckit.core.file_names import is_visible
from fsspeckit.core.formats import COMPRESSED, ENDINGS, format_of, plain_name
from fsspeckit.core.parquet.magic import is_parquet
from fsspeckit.core.storage import FOLDER, Entry, Storage, Tree, for_each, join, resolve
from fsspeckit.core.storage.foreign_tables import check_files_not_owned
from fsspeckit.core.values.spill import spool

Path = str | os.PathLike[str]
FILE_PATH = "file_path"
_R = TypeVar("_R")

_MAGIC = re.compile(r"[*?\[]")
BOM = b"\xef\xbb\xbf"
_UTF8 = {"utf-8", "utf-8-sig"}
_WITHOUT_BOM = {"utf-16", "utf-32"}  # decoding removes their byte order mark
_ESCAPING = {"utf-7", "unicode-escape", "raw-unicode-escape", "punycode", "idna"}  # no encodings of files
_UTF16 = re.compile(rb"\xff\xfe|\xfe\xff|\0[^\0]\0[^\0]|[^\0]\0[^\0]\0")
_MAGIC_BYTES = {b"\x1f\x8b": ".gz", b"BZh91AY&": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
_PEEK = 4096
_BLOCK = 16 * 2**20
_LARGEST_BLOCK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read; `relative` is its path below the folder or pattern it was found by.

    `stamp` changes with the content of the file.
    """

    storage: Storage
    location: str
    relative: str
    size: int = 0
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a read call."""

    operation: str
    columns: Sequence[str] | None
    schema: pa.Schema | None
    include_file_path: bool
    use_threads: bool
    memory_map: bool = False
    inferred: bool = False  # the format has no types, so the types of single files are inferred
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    encoding: str = "utf-8"
    notation: Notation = USUAL

    def __post_init__(self) -> None:
        """Raise for contradictory options."""
        if self.types and self.schema is not None:
            raise ValueError(f"{self.operation}: schema names all types. Pass either schema or types.")
        _check_encoding(self.encoding)
        if self.include_file_path and FILE_PATH in [*(self.columns or ()), *(self.schema.names if self.schema else ())]:
            raise ValueError(f"{self.operation}: include_file_path adds {FILE_PATH!r}. Do not name it yourself.")
        if self.columns is not None and not self.columns and not self.include_file_path:
            raise ValueError(f"{self.operation}: the list of columns is empty. Name at least one, or None for all.")
        unknown = [name for name in self.columns or () if self.schema and name not in self.schema.names]
        if unknown:
            raise pa.ArrowKeyError(f"{self.operation}: columns {unknown} are not in the schema. Name columns of it.")

    @property
    def known(self) -> Mapping[str, pa.DataType]:
        """The types that the caller sets."""
        return self.types if self.schema is None else {field.name: field.type for field in self.schema}

    def bad_file(self, file: InputFile, where: str, what: str, remedy: str = "Correct the file") -> SourceFileError:
        """Return the error for an unreadable file; ``where`` is a line or row in it."""
        place = f"{file.location}, {where}" if where else file.location
        return SourceFileError(f"{self.operation} of {place}: {what}. {remedy}.")

    @property
    def wanted(self) -> Sequence[str] | None:
        """Return the columns to read; None for all."""
        return self.columns if self.columns is not None or self.schema is None else self.schema.names


@dataclass(frozen=True, slots=True)
class Piece:
    """The wanted columns of one file, and the names of all its columns."""

    table: pa.Table
    names: Sequence[str]

    @classmethod
    def of(cls, table: pa.Table, request: Request) -> Piece:
        """Return the piece of a table that was read with all columns."""
        if request.wanted is None:
            return cls(table, table.column_names)
        chosen = [index for index, name in enumerate(table.column_names) if name in request.wanted]
        return cls(table.select(chosen), table.column_names)


def find_files(
    path: Path | Sequence[Path],
    endings: tuple[str, ...],
    operation: str,
    filesystem: Any,
    storage_options: Mapping[str, Any] | None,
) -> list[InputFile]:
    """Return the files that a path, a folder, a pattern, or a list of these selects.

    Raises:
        DatasetNotFoundError: One of them leads to no file.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise ValueError(f"{operation}: the list of paths is empty. Name at least one file or folder.")
    files: list[InputFile] = []
    for one in paths:
        storage, location = resolve(one, filesystem, storage_options)
        found = _expand(storage, location, endings)
        if not found:
            raise DatasetNotFoundError(f"{operation}: no file at {location}. Check the path and the file's ending.")
        files.extend(found)
    return files


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern and not the name of an existing file or folder."""
    return _MAGIC.search(path) is not None


def read_each(
    files: Sequence[InputFile], read: Callable[..., Piece], request: Request, *more: Sequence[Any]
) -> list[Piece]:
    """Read all files, in threads if requested; the results are in the order of the files.

    ``more`` are further arguments of ``read``, one for each file.
    """

    def named(file: InputFile, *rest: Any) -> Piece:
        with log_unexpected(request.operation, file.location), _naming(request.operation, file.location):
            piece = read(file, *rest)
            return replace(piece, table=spool(piece.table.to_reader())) if request.memory_map else piece

    return for_all(named, request, files, *more)


def for_all(function: Callable[..., _R], request: Request, items: Sequence[Any], *more: Sequence[Any]) -> list[_R]:
    """Call a function for each item, in threads if requested."""
    if not request.use_threads or len(items) < 2:
        return list(map(function, items, *more))
    contexts = [copy_context() for _ in items]  # the folder for temporary files is a context variable
    with ThreadPoolExecutor(min(len(items), max(4, os.cpu_count() or 1))) as pool:
        return list(pool.map(lambda context, *given: context.run(function, *given), contexts, items, *more))


@dataclass(frozen=True, slots=True)
class JointSchema:
    """The common schema of several files: columns in the files and partition columns of their folders."""

    own: pa.Schema
    layout: Mapping[str, pa.Array]

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([*self.own, *((name, values.type) for name, values in self.layout.items())], self.own.metadata)

    def table(self, number: int, file: InputFile, rows: pa.Table, operation: str) -> pa.Table:
        """Return the rows of one of the files with the common schema."""
        table = cast_schema(rows, self.own, fill_missing=True, operation=operation, path=file.location)
        for name, values in self.layout.items():
            table = table.append_column(name, pa.repeat(values[number], rows.num_rows))
        return table


def join_schemas(files: Sequence[InputFile], pieces: Sequence[Piece], request: Request) -> JointSchema:
    """Return the schema of all pieces, with partition columns."""
    present = dict.fromkeys(name for piece in pieces for name in piece.names)
    if request.include_file_path and FILE_PATH in present:
        raise ValueError(
            f"{request.operation}: a file has a column {FILE_PATH!r} of its own. Read without the added one."
        )
    layout = _partitions(files, present, request)
    unknown = [name for name in request.columns or () if name not in present and name not in layout]
    if unknown and request.schema is None:
        raise pa.ArrowKeyError(f"{request.operation}: no file has {unknown}. There are {[*present, *layout]}.")
    return JointSchema(_own_schema(pieces, layout, request), layout)


def join_pieces(files: Sequence[InputFile], pieces: Sequence[Piece], request: Request) -> pa.Table:
    """Cast all pieces to one schema, add partition columns and `file_path`, and concatenate them."""
    joint = join_schemas(files, pieces, request)
    tables = []
    for index, (file, piece) in enumerate(zip(files, pieces, strict=True)):
        table = joint.table(index, file, piece.table, request.operation)
        if request.include_file_path:
            paths = pa.repeat(pa.scalar(file.location, pa.string()), piece.table.num_rows)
            table = table.append_column(FILE_PATH, paths)
        tables.append(table)
    return _in_order(pa.concat_tables(tables), request)


def load(file: InputFile, request: Request) -> pa.Buffer:
    """Return the text of a file as UTF-8 without byte order mark, decompressed if its ending is a compressed one.

    Raises:
        SourceFileError: The bytes are not text of the request's encoding, or not compressed as the name says.
    """
    with file.storage.open_input(file.location) as stream:
        data = stream.read_buffer()
    codec = next((codec for ending, codec in COMPRESSED.items() if file.location.lower().endswith(ending)), None)
    if codec is not None:
        try:
            with pa.CompressedInputStream(pa.BufferReader(data), codec) as plain:
                data = pa.py_buffer(plain.read())
        except OSError as error:
            what = f"the file cannot be decompressed as {codec} ({error})"
            raise request.bad_file(file, "", what, "Restore the file, or correct its ending") from error
    _check_is_text(data, file, request)
    try:
        return _as_utf8(data, request.encoding)
    except (UnicodeError, pa.ArrowInvalid):
        raise _undecodable(data, file, request) from None


def as_array(data: pa.Buffer) -> pa.Array:
    """Return bytes as an array of one value, for Arrow functions."""
    offsets = pa.array([0, data.size], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, data])


def _check_is_text(data: pa.Buffer, file: InputFile, request: Request) -> None:
    """Raise if the data is compressed, or is UTF-16 text where UTF-8 is expected."""
    start = data.slice(0, min(8, data.size)).to_pybytes()
    for magic, ending in _MAGIC_BYTES.items():
        if start.startswith(magic):
            remedy = f"Decompress the file, or let its name end in {ending}"
            raise request.bad_file(file, "", f"the file is {COMPRESSED[ending]} data and not text", remedy)
    if _normalized(request.encoding) in _UTF8 and _UTF16.match(start):
        remedy = "Name the encoding of the file, such as encoding='utf-16'"
        raise request.bad_file(file, "", "the file is UTF-16 text and not UTF-8", remedy)


def _as_utf8(data: pa.Buffer, encoding: str) -> pa.Buffer:
    if _normalized(encoding) not in _UTF8:
        data = pa.py_buffer(data.to_pybytes().decode(encoding).encode())
    else:
        as_array(data).cast(pa.large_string())  # raises where it is not UTF-8
    return data.slice(len(BOM)) if has_bom(data) and _normalized(encoding) not in _WITHOUT_BOM else data


def has_bom(data: pa.Buffer) -> bool:
    """Whether bytes start with a byte order mark of UTF-8."""
    return bool(data.slice(0, min(len(BOM), data.size)).to_pybytes() == BOM)


def _normalized(encoding: str) -> str:
    return codecs.lookup(encoding).name


def _check_encoding(encoding: str) -> None:
    try:
        "a".encode(encoding)  # accepts text encodings only; an empty string would not be checked
    except (LookupError, ValueError) as error:
        raise ValueError(f"encoding={encoding!r} is unknown. Use one such as 'utf-8' or 'latin-1'.") from error
    if _normalized(encoding) in _ESCAPING:
        raise ValueError(f"encoding={encoding!r} is not supported. Use one such as 'utf-8' or 'latin-1'.")


def _undecodable(data: pa.Buffer, file: InputFile, request: Request) -> SourceFileError:
    raw, encoding = data.to_pybytes(), request.encoding
    remedy = "Convert the file, or name the encoding of all files, such as encoding='latin-1'"
    try:
        raw.decode(encoding)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode(encoding, "ignore")
        line = len(f"{before}x".replace("\r\n", "\n").replace("\r", "\n").split("\n"))
        what = f"the byte 0x{raw[error.start]:02X} is not {encoding} text"
        return request.bad_file(file, f"line {line}", what, remedy)
    return request.bad_file(file, "", f"the file is not {encoding} text", remedy)


def first_character(data: pa.Buffer) -> bytes:
    """Return the first byte that is not white space; empty if there is none."""
    for start in range(0, data.size, _PEEK):
        text: bytes = data.slice(start, min(_PEEK, data.size - start)).to_pybytes().lstrip()
        if text:
            return text[:1]
    return b""


def in_blocks(data: pa.Buffer, read: Callable[[pa.NativeFile, int], pa.Table]) -> pa.Table:
    """Parse in blocks, or in one piece if a single row is larger than a block."""
    try:
        return read(pa.BufferReader(data), _BLOCK)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error) or data.size <= _BLOCK:
            raise
    return read(pa.BufferReader(data), min(data.size + 1, _LARGEST_BLOCK))


def _expand(storage: Storage, location: str, endings: tuple[str, ...]) -> list[InputFile]:
    entry = storage.stat(location)
    if entry is not None and entry.size != FOLDER:
        return [InputFile(storage, location, location.rpartition("/")[2], entry.size, entry.stamp)]
    if entry is None and is_pattern(location):
        return _match(storage, location)
    try:
        tree = storage.list_tree(location)
    except FileNotFoundError:
        return []
    visible = [item for item in tree.files if is_visible(item.path)]
    found = [item for item in visible if _has_ending(item.path, endings)]
    if endings == ENDINGS["parquet"]:
        others = [item for item in visible if format_of(item.path) is None and not item.path.endswith(".crc")]
        looked = for_each(storage, lambda item: is_parquet(storage, join(location, item.path), item), others)
        found += [item for item, is_data in zip(others, looked, strict=True) if is_data]
        found.sort(key=lambda item: item.path)
    check_files_not_owned(storage, location, tree, found)
    return [_input_file(storage, location, item) for item in found]


def is_parquet_file(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Return whether a path leads to one file, and its content is Parquet."""
    storage, location = resolve(path, None, storage_options)
    entry = storage.stat(location)
    return entry is not None and entry.size != FOLDER and bool(is_parquet(storage, location, entry))


def _match(storage: Storage, pattern: str) -> list[InputFile]:
    """Return the files that match a pattern. The filesystem's glob is not used, because it hides unreadable folders."""
    fixed = _MAGIC.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    rest = pattern[len(fixed) + 1 :]
    try:
        tree = storage.list_tree(fixed) if "/" in rest or "**" in rest else _tree_of(storage.list_dir(fixed))
    except FileNotFoundError:
        return []
    fits = re.compile(glob_translate(rest))
    found = [item for item in tree.files if fits.match(item.path) and is_visible(item.path)]
    check_files_not_owned(storage, fixed, tree, found)
    return [_input_file(storage, fixed, item) for item in found]


def _tree_of(entries: Sequence[Entry]) -> Tree:
    """Return the files and folders directly in a folder as a listing."""
    files = tuple(entry for entry in entries if entry.size != FOLDER)
    return Tree(files, tuple(entry.path for entry in entries if entry.size == FOLDER))


def _input_file(storage: Storage, root: str, entry: Entry) -> InputFile:
    return InputFile(storage, join(root, entry.path), entry.path, entry.size, entry.stamp)


def _has_ending(path: str, endings: tuple[str, ...]) -> bool:
    return plain_name(path).endswith(endings)


def _partitions(files: Sequence[InputFile], present: Collection[str], request: Request) -> dict[str, pa.Array]:
    """Return the values of hive columns that are only in the folder names, one per file."""
    found = [parse_hive_partition_path(file.relative) for file in files]
    names = dict.fromkeys(name for values in found for name in values if name not in present)
    layout = {}
    for name in names:
        if request.wanted is not None and name not in request.wanted:
            continue
        texts = [values.get(name) for values in found]
        type_ = request.known.get(name) or partition_type(texts)
        layout[name] = typed_values(texts, type_, name)
    return layout


def _own_schema(pieces: Sequence[Piece], layout: Mapping[str, pa.Array], request: Request) -> pa.Schema:
    """Return the schema of the columns in the files."""
    if request.schema is None:
        schemas = (piece.table.schema for piece in pieces)
        return unify_schemas(schemas, checked=request.inferred, operation=request.operation)
    wanted = request.wanted or ()
    fields = [request.schema.field(name) for name in wanted if name not in layout]
    return pa.schema(fields, metadata=request.schema.metadata)


def _in_order(table: pa.Table, request: Request) -> pa.Table:
    if request.wanted is None:
        return table
    return table.select([*request.wanted, *([FILE_PATH] if request.include_file_path else [])])


@contextmanager
def _naming(operation: str, path: str) -> Iterator[None]:
    """Raise Arrow errors as `SourceFileError` and OS errors as `StorageError`, with operation and path."""
    try:
        yield
    except (FsspeckitError, FileNotFoundError):
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceFileError(
            f"{operation} of {path}: {error}. Correct the file, or give the types with schema=."
        ) from error
    except PermissionError as error:
        raise storage_error(f"{operation} of {path}", error) from error
    except OSError as error:
        raise StorageError(f"{operation} of {path}: {error}. Check the storage, then read again.") from error

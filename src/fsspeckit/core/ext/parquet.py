"""Read Parquet files into one table, without snapshot and journal; `DatasetIO.read_parquet` uses those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import DamagedFileError, SchemaMismatchError
from fsspeckit.core.expressions.compute import cast_values
from fsspeckit.core.ext.inputs import InputFile, Path, Piece, Request, find_files, join_pieces, read_each
from fsspeckit.core.formats import ENDINGS
from fsspeckit.core.model import ViewFile
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.parquet.reader import check_rows, open_parquet


def read_parquet(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    types: Mapping[str, pa.DataType] | None = None,
    include_file_path: bool = False,
    use_threads: bool = True,
    memory_map: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table:
    """Read Parquet files.

    Files with different but compatible schemas are brought to one; hive folders below a given folder become columns.

    Args:
        path: A file, a folder, a pattern such as `data/*.parquet`, or a list of these.
        columns: Only these columns, in this order.
        schema: The schema of the result; columns that a file lacks are null.
        types: New types of some columns, also where files have different ones; a value that would change is an error.
        include_file_path: Add a string column `file_path` with the path of each row's file.
        use_threads: Read in several threads; the result is the same.
        memory_map: Keep the rows in a temporary file that is mapped; only a few files are in memory at once.
        filesystem: An fsspec filesystem that the paths belong to.
        storage_options: Options of the filesystem that a URL names.

    Raises:
        FileNotFoundError: A path leads to no file.
        pa.ArrowIOError: A file is damaged, also where a page differs from its checksum, or the storage failed.
        pa.ArrowKeyError: No file has a wanted column.
        SchemaMismatchError: Two files have no lossless common schema, or values do not fit `schema` or `types`.

    Examples:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> folder = tempfile.mkdtemp()
        >>> pq.write_table(pa.table({"id": [1, 2]}), f"{folder}/a.parquet")
        >>> read_parquet(folder, include_file_path=True).column_names
        ['id', 'file_path']
    """
    request = Request(
        "read_parquet", columns, schema, include_file_path, use_threads, memory_map, types=dict(types or {})
    )
    files = find_files(path, ENDINGS["parquet"], request.operation, filesystem, storage_options)

    def read(file: InputFile) -> Piece:
        found = file.storage.stat(file.location)
        if found is None:
            raise FileNotFoundError(f"{request.operation}: {file.location} is gone. Read again.")
        listed = ViewFile(file.location, file.location, found.size, found.stamp)
        try:
            (data,) = read_data_files(file.storage, [listed], ())
        except DamagedFileError as error:
            raise DamagedFileError(f"{request.operation}: {error}") from error
        names, groups = data.schema.names, range(len(data.row_groups))
        chosen = None if request.wanted is None else [name for name in names if name in request.wanted]
        with (
            report_damage(request.operation, file.location),
            open_parquet(file.storage, data, verify=True, partial=chosen is not None) as parquet,
        ):
            table = parquet.read(columns=chosen, use_threads=use_threads)
        check_rows(table.num_rows, data, groups)
        return Piece(_with_types(table, file, request), names)

    return join_pieces(files, read_each(files, read, request), request)


def _with_types(table: pa.Table, file: InputFile, request: Request) -> pa.Table:
    """Cast columns of a file so that no value changes."""
    for at, name in enumerate(table.column_names):
        type_ = request.types.get(name)
        if type_ is None or table.schema.field(at).type == type_:
            continue
        try:
            column = cast_values(table.column(at), type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"{request.operation} of {file.location}: column {name!r} cannot be cast to {type_}: {error}. "
                "Correct the values, or choose another type."
            ) from error
        table = table.set_column(at, name, column)
    return table

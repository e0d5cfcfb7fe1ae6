"""Reading Parquet files to one table. No snapshot and no journal: `DatasetIO.read_parquet` has those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.ext.inputs import InputFile, Path, Piece, Request, find_files, join_pieces, read_each
from fsspeckit.core.formats import ENDINGS
from fsspeckit.core.parquet.reader import report_damage


def read_parquet(
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
    """Read Parquet files.

    Files with different but compatible schemas are brought to one; hive folders below a given folder become columns.

    Args:
        path: A file, a folder, a pattern such as `data/*.parquet`, or a list of these.
        columns: Only these columns, in this order.
        schema: The schema of the result; columns that a file lacks are null.
        include_file_path: Add a string column `file_path` with the path of each row's file.
        use_threads: Read in several threads; the result is the same.
        memory_map: Keep the rows in a temporary file that is mapped; only a few files are in memory at once.
        filesystem: An fsspec filesystem that the paths belong to.
        storage_options: Options of the filesystem that a URL names.

    Raises:
        FileNotFoundError: A path leads to no file.
        pa.ArrowIOError: A file is damaged, or the storage failed.
        pa.ArrowKeyError: No file has a wanted column.
        SchemaMismatchError: Two files have no lossless common schema, or values do not fit `schema`.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> folder = tempfile.mkdtemp()
        >>> pq.write_table(pa.table({"id": [1, 2]}), f"{folder}/a.parquet")
        >>> read_parquet(folder, include_file_path=True).column_names
        ['id', 'file_path']
    """
    request = Request("read_parquet", columns, schema, include_file_path, use_threads, memory_map)
    files = find_files(path, ENDINGS["parquet"], request.operation, filesystem, storage_options)

    def read(file: InputFile) -> Piece:
        with (
            report_damage(request.operation, file.location),
            pq.ParquetFile(file.storage.open_input(file.location)) as parquet,
        ):
            names = parquet.schema_arrow.names
            chosen = None if request.wanted is None else [name for name in names if name in request.wanted]
            return Piece(parquet.read(columns=chosen, use_threads=use_threads), names)

    return join_pieces(files, read_each(files, read, request), request)

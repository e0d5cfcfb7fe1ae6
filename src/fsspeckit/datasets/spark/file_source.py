"""Read source files on executors, one task per file, with the readers of `fsspeckit.core`.

The driver computes the schema of csv and json files from descriptions of all files. Small files are described on the
driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.common.notation import USUAL, Notation
from fsspeckit.core.dataset.source import RowFiles, SourceFile
from fsspeckit.datasets.spark.executor_check import check_executors, slots
from fsspeckit.datasets.spark.frames import frame_of_files
from fsspeckit.datasets.spark.jobs import run_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fsspeckit.core.dataset.parquet_source import FilePart, ParquetParts
    from fsspeckit.core.ext.file_set import FileSet, TextFormat
    from fsspeckit.core.ext.inputs import InputFile

SMALL_BYTES = 16 * 1024 * 1024
"""Bytes of source files up to which the driver reads them: that takes less time than a job."""
_WAVES = 4


def is_small(files: Iterable[SourceFile]) -> bool:
    """Return whether the driver reads these files."""
    return sum(file.size for file in files) <= SMALL_BYTES


def text_files(
    spark: SparkSession,
    files: Sequence[InputFile],
    format_: TextFormat,
    *,
    types: Mapping[str, pa.DataType],
    wanted: pa.Schema | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    notation: Notation = USUAL,
) -> FileSet:
    """Return csv or json files with their common schema. All values are parsed, so invalid values raise here.

    Args:
        spark: The session.
        files: The files.
        format_: ``"csv"`` or ``"json"``.
        types: Types of columns; those of other columns are inferred.
        wanted: Columns that come first.
        delimiter: The character between two values of a csv file.
        encoding: The encoding of the files.
        notation: How numbers and dates of a csv file are written.
    """
    from fsspeckit.core.ext.file_set import TextReader

    reader = TextReader.of(files, format_, types, delimiter, encoding, notation)
    if is_small(files):
        found = [reader.describe(file) for file in files]
    else:
        _check_storages(spark, files)
        found = run_items(spark, reader.describe, files, _WAVES * slots(spark), lambda _: None)
    return reader.join(files, found, wanted)


def files_frame(spark: SparkSession, files: FileSet | ParquetParts) -> DataFrame:
    """Return a lazy DataFrame of the rows of files."""
    _check_storages(spark, files.files)
    return frame_of_files(spark, _Rows(files), [file.size for file in files.files], files.schema)


def _check_storages(spark: SparkSession, files: Sequence[InputFile] | Sequence[FilePart]) -> None:
    """Check that the executors can read the files; each path of a source may have its own storage."""
    for one in {id(file.storage): file for file in files}.values():
        check_executors(spark, one.storage, lambda one=one: nullcontext(one.location))  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Yields the rows of one file with its path."""

    files: RowFiles

    def __call__(self, number: int) -> Iterator[tuple[str, pa.Table]]:
        for batch in self.files.batches(number):
            yield self.files.files[number].location, pa.Table.from_batches([batch])

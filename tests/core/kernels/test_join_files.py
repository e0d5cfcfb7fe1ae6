"""The kernel that joins files: many small files are joined into row groups, and footers may have any length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import DamagedFileError, UnsupportedDataError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset import snapshot
from fsspeckit.core.kernels import join_files
from fsspeckit.core.kernels.join_files import combine_files
from fsspeckit.core.model import CombineTask, DataFile, WriteOptions
from fsspeckit.core.parquet.bytes.thrift import BINARY, I64, LIST, STRUCT, read_struct, write_struct
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

_FILES, _ROWS, _GROUP = 57, 7, 100


def test_rows_of_many_small_files_keep_their_order_and_fill_row_groups(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    ids = list(range(_FILES * _ROWS))
    rows = pa.table(
        {"id": ids, "state": [f"s{i % 11}" for i in ids], "text": [None if i % 5 else f"t{i}" for i in ids]}
    )
    for i in range(_FILES):
        pq.write_table(rows.slice(i * _ROWS, _ROWS), folder / f"part-{i:03d}.parquet")

    PyarrowDatasetIO().compact_parquet_dataset(str(folder), target_rows_per_file=10_000, row_group_size=_GROUP)

    (joined,) = folder.glob("*.parquet")
    meta = pq.read_metadata(joined)
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [100, 100, 100, 99]
    assert pq.ParquetFile(joined, page_checksum_verification=True).read().equals(rows)


def write_some(folder: Path, count: int = 4, **options: object) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        rows = range(number * 10, number * 10 + 10)
        table = pa.table({"id": pa.array(rows), "text": [f"t{i % 3}" for i in rows]})
        pq.write_table(table, folder / f"{number}.parquet", **options)


def load(folder: Path) -> tuple[DataFile, ...]:
    storage = LocalStorage()
    return snapshot.load_snapshot(storage, Journal(storage, str(folder)).view(), keep_footers=True).files


def test_damage_error_has_the_path_of_the_file(tmp_path: Path) -> None:
    write_some(tmp_path, 6, write_page_checksum=True, compression="none")
    broken = tmp_path / "3.parquet"
    data = bytearray(broken.read_bytes())
    data[data.index((33).to_bytes(8, "little"))] ^= 1
    broken.write_bytes(data)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(DamagedFileError, match=r"3\.parquet"):
        PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("workers", [1, 4])
def test_rows_are_dropped_from_the_right_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(join_files, "_FETCHED_FILES", 3)
    monkeypatch.setattr(LocalStorage, "workers", workers)
    write_some(tmp_path / "data", 8)
    files = load(tmp_path / "data")
    drops = {files[n].path: np.array(rows) for n, rows in {0: [0], 1: [3, 9], 4: [0, 9], 7: list(range(10))}.items()}
    task = CombineTask("x.parquet", files, files[0].schema, WriteOptions(), drops)
    outcome = combine_files(task, LocalStorage(), str(tmp_path / "x.parquet"))
    gone = {0, 13, 19, 40, 49, *range(70, 80)}
    assert outcome.rows == 80 - len(gone)
    assert pq.read_table(tmp_path / "x.parquet")["id"].to_pylist() == [i for i in range(80) if i not in gone]


@pytest.mark.parametrize("sound", [1, 5])
def test_a_chunk_description_in_statistics_is_not_a_chunk(tmp_path: Path, sound: int) -> None:
    """The statistics of a column contain the metadata of a chunk with other values. Footers are also matched."""
    options = {"use_dictionary": False, "compression": "none", "store_schema": False}
    for number in range(sound):
        pq.write_table(pa.table({"a": ["x", "y", "z"], "b": [1, 2, 3]}), tmp_path / f"{number}.parquet", **options)
    data = (tmp_path / "0.parquet").read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    body, (tree, _) = data[: -8 - len(footer)], read_struct(footer)
    text, number = (chunk[3][1] for chunk in tree[4][1][1][0][1][1][1])
    pages = body[number[9][1] : number[9][1] + number[7][1]].replace(*(n.to_bytes(8, "little") for n in (2, 666)))
    forged = {field: number[field] for field in range(1, 8)} | {9: (I64, len(body))}
    text[12] = STRUCT, {5: (BINARY, b"zz"), 6: (BINARY, b"A\x26\x00\x1c" + write_struct(forged))}
    number[8] = LIST, (STRUCT, [{1: (BINARY, b"k")}])
    footer = write_struct(tree)
    forged_file = tmp_path / "forged.parquet"
    forged_file.write_bytes(body + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert pq.read_table(forged_file)["b"].to_pylist() == [1, 2, 3]

    PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=100)

    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert pq.read_table(tmp_path)["b"].to_pylist() == [1, 2, 3] * (sound + 1)


def test_data_that_pyarrow_cannot_read_is_not_called_damaged() -> None:
    """Such as nested texts of more than 2 GB in a row group."""
    expected = pytest.raises(UnsupportedDataError, match=r"a\.parquet has data that pyarrow cannot read \(Nested")
    with expected, report_damage("reading", "a.parquet"):
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

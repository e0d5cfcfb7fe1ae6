"""The kernel that joins files: many small files are joined into row groups, and footers may have any length."""

from __future__ import annotations

import pickle
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import DamagedFileError, UnsupportedDataError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset import snapshot
from fsspeckit.core.kernels import join_files
from fsspeckit.core.kernels.join_files import RowForm, combine_files, lead_footer, read_file
from fsspeckit.core.model import CombineTask, DataFile, WriteOptions
from fsspeckit.core.parquet.bytes.thrift import BINARY, I64, LIST, STRUCT, read_struct, write_struct
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.footer import read_footer
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


def test_a_footer_longer_than_the_first_read_is_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"a column with a long name {i}": [i] for i in range(300)}), path)

    footer = read_footer(LocalStorage(), str(path), path.stat().st_size)

    assert len(footer.data) > 16 * 1024
    assert len(footer.leaves) == 300


def test_blocks_of_joined_pieces_end_where_row_groups_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_files, "_BLOCK_ROWS", 30)
    test_rows_of_many_small_files_keep_their_order_and_fill_row_groups(tmp_path)


def test_footers_are_kept_only_on_request_and_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, rows = LocalStorage(), pa.table({"id": [1, 2], "text": ["a", None]})
    for i in range(3):
        pq.write_table(rows, tmp_path / f"part-{i}.parquet")
    view = Journal(storage, str(tmp_path)).view()
    size = pq.read_metadata(tmp_path / "part-0.parquet").serialized_size
    monkeypatch.setattr(snapshot, "_KEPT_FOOTERS", 2 * size)

    without, kept = (snapshot.load_snapshot(storage, view, keep_footers=keep).files for keep in (False, True))

    assert [file.raw_footer is not None for file in kept] == [True, True, False]
    assert [file.raw_footer for file in without] == [None] * 3
    assert kept == without == tuple(pickle.loads(pickle.dumps(kept)))
    for file in kept:
        (table,) = read_file(storage, file, RowForm.of([file], rows.schema, lead_footer(storage, [file])))
        assert table.equals(rows)


def test_a_file_replaced_since_its_footer_was_kept_is_not_read(tmp_path: Path) -> None:
    storage, path = LocalStorage(), tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    (file,) = snapshot.load_snapshot(storage, Journal(storage, str(tmp_path)).view(), keep_footers=True).files
    path.unlink()
    pq.write_table(pa.table({"id": [3, 4, 5]}), path)

    with pytest.raises(FileNotFoundError, match="replaced since it was listed"):
        list(read_file(storage, file, RowForm.of([file], file.schema, None)))


def write_some(folder: Path, count: int = 4, **options: object) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        rows = range(number * 10, number * 10 + 10)
        table = pa.table({"id": pa.array(rows), "text": [f"t{i % 3}" for i in rows]})
        pq.write_table(table, folder / f"{number}.parquet", **options)


def load(folder: Path) -> tuple[DataFile, ...]:
    storage = LocalStorage()
    return snapshot.load_snapshot(storage, Journal(storage, str(folder)).view(), keep_footers=True).files


def test_files_of_several_writers_are_joined(tmp_path: Path) -> None:
    write_some(tmp_path, 3)
    duckdb.sql(f"copy (select 100::bigint as id, 'duck' as text) to '{tmp_path}/3.parquet'")
    duckdb.sql(f"copy (select 101::bigint as id, 'duck' as text) to '{tmp_path}/4.parquet'")
    pl.DataFrame({"id": [102], "text": ["bear"]}).write_parquet(tmp_path / "5.parquet")
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    expected = pa.concat_tables([pq.read_table(path).cast(schema) for path in sorted(tmp_path.iterdir())])
    PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)
    assert sorted(pq.read_table(tmp_path).to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    assert len(list(tmp_path.glob("*.parquet"))) == 1


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


def test_truncated_file_does_not_use_pages_of_the_next_file(tmp_path: Path) -> None:
    write_some(tmp_path, compression="none", use_dictionary=False)
    path = tmp_path / "1.parquet"
    data, (_, file, *_) = path.read_bytes(), load(tmp_path)
    path.write_bytes(data[: file.data - 40] + data[file.data + 4 :])
    with pytest.raises(DamagedFileError, match=r"1\.parquet"):
        PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)


def test_struct_columns_of_different_names_stay_apart(tmp_path: Path) -> None:
    for number, name in enumerate("pq"):
        duckdb.sql(f"copy (select {number} as id, {{'x': {number}}} as {name}) to '{tmp_path}/{number}.parquet'")
    PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)
    (only,) = tmp_path.glob("*.parquet")
    assert pq.read_table(only).to_pylist() == [{"id": 0, "p": {"x": 0}, "q": None}, {"id": 1, "p": None, "q": {"x": 1}}]


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


def test_files_read_in_parallel_are_limited_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_some(tmp_path, 3)
    files = load(tmp_path)
    assert len(join_files._window(files)) == 3
    monkeypatch.setattr(join_files, "_FETCHED_BYTES", files[0].size * 2)
    assert len(join_files._window(files)) < 3


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

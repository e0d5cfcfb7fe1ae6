"""Small files read in one call have the same rows as files read one by one; unusual files are read one by one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.commit.transaction import Journal
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.kernels import join_files
from fsspeckit.core.kernels.join_files import RowForm, combine_files, read_file
from fsspeckit.core.model import CombineTask, DataFile, WriteOptions
from fsspeckit.core.parquet.bytes.pages import decoded_size
from fsspeckit.core.parquet.bytes.small_files import _CHUNK, SmallFilesReader, _Chunk, _number
from fsspeckit.core.parquet.bytes.thrift import read_non_negative, read_struct, write_struct
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

STORAGE = LocalStorage()
DAY = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=dt.UTC)
EXAMPLES: dict[str, tuple[pa.DataType, Sequence[object]]] = {
    "flag": (pa.bool_(), [True, False]),
    "small": (pa.uint8(), [0, 255]),
    "number": (pa.int64(), [-(2**63), 0, 7, 2**63 - 1]),
    "large": (pa.uint64(), [0, 2**64 - 1]),
    "share": (pa.float64(), [float("nan"), -0.0, 1.5]),
    "money": (pa.decimal128(20, 3), [Decimal("-1.250"), Decimal("99999999999999999.999")]),
    "at": (pa.timestamp("ns", "Europe/Berlin"), [DAY]),
    "day": (pa.date32(), [DAY.date()]),
    "text": (pa.large_string(), ["", "é", "a long text that repeats"]),
    "name": (pa.string(), ["", "n", "a name"]),
    "bytes": (pa.binary(), [b"", b"\0", b"some bytes"]),
    "raw": (pa.binary(4), [b"\0\1\2\3", b"abcd"]),
    "state": (pa.dictionary(pa.int16(), pa.string()), ["new", "paid", "shipped"]),
    "tags": (pa.list_(pa.string()), [[], ["a", None], ["b"]]),
    "place": (pa.struct([("x", pa.int32()), ("names", pa.list_(pa.int8()))]), [{"x": 1, "names": [1, 2]}, {"x": None}]),
}


def load(folder: Path) -> tuple[DataFile, ...]:
    return load_snapshot(STORAGE, Journal(STORAGE, str(folder)).view(), keep_footers=True).files


def one_by_one(files: Sequence[DataFile], coded: Sequence[str] = ()) -> pa.Table:
    row_form = RowForm(files[0].schema, tuple(coded), recast=False, new_schema=False)
    return pa.concat_tables(table for file in files for table in read_file(STORAGE, file, row_form))


def same(one: pa.Table, two: pa.Table) -> bool:
    """Compare with NaN equal to NaN, independent of chunks and dictionaries."""
    plain = [table.unify_dictionaries().combine_chunks() for table in (one, two)]
    return plain[0].schema.equals(plain[1].schema) and repr(plain[0].to_pylist()) == repr(plain[1].to_pylist())


@st.composite
def written(draw):
    """Generate files of one schema, each with its own rows, codec, pages and row groups."""
    names = draw(st.lists(st.sampled_from(sorted(EXAMPLES)), min_size=1, max_size=5, unique=True))
    required = draw(st.booleans())
    schema = pa.schema([pa.field(name, EXAMPLES[name][0], nullable=not required) for name in names], {"who": "me"})
    files = []
    for _ in range(draw(st.integers(2, 5))):
        rows = draw(st.sampled_from([1, 2, 30, 200]))
        rng = np.random.default_rng(draw(st.integers(0, 1000)))
        columns = []
        for name in names:
            type_, values = EXAMPLES[name]
            choices = list(values) + ([] if required else [None])
            columns.append(pa.array([choices[i] for i in rng.integers(0, len(choices), rows)], type_))
        options = {
            "compression": draw(st.sampled_from(["snappy", "zstd", "gzip", "brotli", "lz4", "none"])),
            "use_dictionary": draw(st.booleans()),
            "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
            "write_page_checksum": draw(st.booleans()),
            "write_page_index": draw(st.booleans()),
            "data_page_size": draw(st.sampled_from([16, 1 << 20])),
            "row_group_size": draw(st.sampled_from([7, 1000])),
        }
        files.append((pa.table(columns, schema=schema), options))
    return files


@settings(deadline=None, max_examples=80)
@given(written())
def test_files_read_together_equal_files_read_one_by_one(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("together")
    for number, (table, options) in enumerate(files):
        pq.write_table(table, folder / f"{number}.parquet", **options)
    found = load(folder)
    coded = [field.name for field in found[0].schema if field.type in (pa.string(), pa.binary())]
    table = SmallFilesReader(STORAGE, coded).read(found)
    if any(pa.types.is_nested(field.type) for field in found[0].schema):
        assert table is None
    else:
        assert table is not None
        assert same(table, one_by_one(found, coded))


def write_some(folder: Path, count: int = 4, **options: object) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        rows = range(number * 10, number * 10 + 10)
        table = pa.table({"id": pa.array(rows), "text": [f"t{i % 3}" for i in rows]})
        pq.write_table(table, folder / f"{number}.parquet", **options)


def test_files_with_different_layouts_are_not_read_together(tmp_path):
    write_some(tmp_path)
    files = load(tmp_path)
    assert SmallFilesReader(STORAGE, ()).read(files[:1]) is None
    pq.write_table(pa.table({"id": [1], "other": ["x"]}), tmp_path / "4.parquet")
    assert SmallFilesReader(STORAGE, ()).read(load(tmp_path)) is None
    old = pa.table({"at": pa.array([DAY], pa.timestamp("us"))})
    (tmp_path / "old").mkdir()
    for number in range(2):
        pq.write_table(old, tmp_path / "old" / f"{number}.parquet", use_deprecated_int96_timestamps=True)
    assert SmallFilesReader(STORAGE, ()).read(load(tmp_path / "old")) is None


def test_files_of_several_writers_are_joined(tmp_path):
    write_some(tmp_path, 3)
    duckdb.sql(f"copy (select 100::bigint as id, 'duck' as text) to '{tmp_path}/3.parquet'")
    duckdb.sql(f"copy (select 101::bigint as id, 'duck' as text) to '{tmp_path}/4.parquet'")
    pl.DataFrame({"id": [102], "text": ["bear"]}).write_parquet(tmp_path / "5.parquet")
    expected = pa.concat_tables(
        [
            pq.read_table(path).cast(pa.schema([("id", pa.int64()), ("text", pa.string())]))
            for path in sorted(tmp_path.iterdir())
        ]
    )
    PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)
    assert sorted(pq.read_table(tmp_path).to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_after_a_failure_files_are_read_one_by_one(tmp_path):
    """After a failed attempt, the bytes are read again."""
    write_some(tmp_path, 4)
    duckdb.sql(f"copy (select 100::bigint as id, 'duck' as text) to '{tmp_path}/4.parquet'")
    *files, other = load(tmp_path)
    together = SmallFilesReader(STORAGE, ())
    assert together.read(files[:2]) is not None
    assert together.read([files[2], replace(other, schema=files[2].schema)]) is None
    assert together.read(files[2:]) is None


def test_files_without_cached_footers(tmp_path):
    write_some(tmp_path)
    files = load_snapshot(STORAGE, Journal(STORAGE, str(tmp_path)).view()).files
    assert not any(file.raw_footer for file in files)
    assert same(SmallFilesReader(STORAGE, ()).read(files), one_by_one(files))


def test_damage_error_has_the_path_of_the_file(tmp_path):
    folder = tmp_path / "data"
    write_some(folder, 6, write_page_checksum=True, compression="none")
    broken = folder / "3.parquet"
    data = bytearray(broken.read_bytes())
    place = data.index((33).to_bytes(8, "little"))
    data[place] ^= 1
    broken.write_bytes(data)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DamagedFileError, match=r"3\.parquet"):
        PyarrowDatasetIO().compact_parquet_dataset(str(folder), target_rows_per_file=1000)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_file_replaced_since_the_listing_is_not_read(tmp_path):
    write_some(tmp_path)
    files = load(tmp_path)
    other = tmp_path / "other"
    other.write_bytes((tmp_path / "2.parquet").read_bytes())
    other.rename(tmp_path / "2.parquet")
    assert SmallFilesReader(STORAGE, ()).read(files) is None
    task = CombineTask("x.parquet", files, files[0].schema, WriteOptions(), {})
    with pytest.raises(FileNotFoundError, match=r"2\.parquet was replaced"):
        combine_files(task, STORAGE, str(tmp_path / "x"))


def flip(path: Path, place: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"write_page_checksum": True}], ids=str)
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_page_with_too_many_values_does_not_affect_other_files(tmp_path, options, use_dictionary):
    write_some(tmp_path, compression="none", use_dictionary=use_dictionary, **options)
    place = pq.read_metadata(tmp_path / "1.parquet").row_group(0).column(0).data_page_offset
    header, _ = read_struct((tmp_path / "1.parquet").read_bytes(), place)
    begin = write_struct({field: value for field, value in header.items() if field < 5})
    flip(tmp_path / "1.parquet", place + len(begin) + 1, 1)
    files = load(tmp_path)
    assert SmallFilesReader(STORAGE, ()).read(files) is None
    task = CombineTask("x.parquet", files, files[0].schema, WriteOptions(), {})
    with suppress(DamagedFileError):
        combine_files(task, STORAGE, str(tmp_path / "x"))
        found = pq.read_table(tmp_path / "x")["id"].to_pylist()
        assert [*found[:10], *found[20:]] == [*range(10), *range(20, 40)]


def test_truncated_file_does_not_use_pages_of_the_next_file(tmp_path):
    write_some(tmp_path, compression="none", use_dictionary=False)
    path = tmp_path / "1.parquet"
    data, (_, file, *_) = path.read_bytes(), load(tmp_path)
    path.write_bytes(data[: file.data - 40] + data[file.data + 4 :])
    with pytest.raises(DamagedFileError, match=r"1\.parquet"):
        PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)


def test_struct_columns_of_different_names_are_not_read_together(tmp_path):
    for number, name in enumerate("pq"):
        duckdb.sql(f"copy (select {number} as id, {{'x': {number}}} as {name}) to '{tmp_path}/{number}.parquet'")
    files = load(tmp_path)
    assert [file.schema.names for file in files] == [["id", "p"], ["id", "q"]]
    assert SmallFilesReader(STORAGE, ()).read([files[0], replace(files[1], schema=files[0].schema)]) is None
    PyarrowDatasetIO().compact_parquet_dataset(str(tmp_path), target_rows_per_file=1000)
    (only,) = tmp_path.glob("*.parquet")
    assert pq.read_table(only).to_pylist() == [{"id": 0, "p": {"x": 0}, "q": None}, {"id": 1, "p": None, "q": {"x": 1}}]


def test_damaged_bit_in_a_file_does_not_change_rows_of_others(tmp_path):
    write_some(tmp_path, 3, compression="none")
    good, place = (tmp_path / "1.parquet").read_bytes(), load(tmp_path)[1].data
    rng, read = np.random.default_rng(5), 0
    for at in rng.choice(place, 150, replace=False):
        (tmp_path / "1.parquet").write_bytes(good)
        flip(tmp_path / "1.parquet", int(at), int(rng.integers(8)))
        files = load(tmp_path)
        table = SmallFilesReader(STORAGE, ()).read(files)
        if table is not None:
            assert table.equals(one_by_one(files))
            read += 1
    assert read


@pytest.mark.parametrize("number", [0, 1])
def test_damaged_bit_in_a_footer_does_not_change_rows(tmp_path, number):
    write_some(tmp_path, 2, row_group_size=6)
    files, path = list(load(tmp_path)), tmp_path / f"{number}.parquet"
    good, expected, file, read = path.read_bytes(), one_by_one(files), files[number], 0
    bits = range(8 * (file.data + 4), 8 * file.size)
    for bit in sweep_size().sample(bits, 1000):
        path.write_bytes(good)
        flip(path, bit // 8, bit % 8)
        files[number] = replace(file, stamp=STORAGE.stat(str(path)).stamp, raw_footer=None)
        table = SmallFilesReader(STORAGE, ()).read(files)
        assert table is None or table.equals(expected), bit
        read += table is not None
    assert read  # statistics are not looked at


def test_chunk_with_an_unexpected_offset_is_rejected(tmp_path):
    write_some(tmp_path, 1)
    (file,) = load(tmp_path)
    end, name, meta = file.data + 4, b"\x02id", pq.read_metadata(tmp_path / "0.parquet").row_group(0).column(0)
    (found, _) = _CHUNK.finditer((tmp_path / "0.parquet").read_bytes())
    chunk = _Chunk.of(found, name, 10, end)
    assert (chunk.start, chunk.data_offset) == (meta.dictionary_page_offset, meta.data_page_offset)
    assert (chunk.values, chunk.end - chunk.start) == (meta.num_values, meta.total_compressed_size)
    for own, rows, last in ((b"\x02no", 10, end), (name, 11, end), (name, 10, chunk.end - 1)):
        with pytest.raises(pa.ArrowInvalid):
            _Chunk.of(found, own, rows, last)
    with pytest.raises(pa.ArrowInvalid):
        read_non_negative(b"\x03")


def test_repeated_texts_do_not_exceed_the_memory_limit(tmp_path):
    for number in range(4):
        texts = ["long" * 1000, "other" * 1000] * 2000
        pq.write_table(pa.table({"text": pa.array(texts, pa.large_string())}), tmp_path / f"{number}.parquet")
    assert SmallFilesReader(STORAGE, ()).read(load(tmp_path)) is None
    assert SmallFilesReader(STORAGE, ()).read(load(tmp_path)[:2]) is not None


def test_bytes_outside_the_chunks_are_counted(tmp_path):
    write_some(tmp_path, 3)
    files = [replace(file, size=20 * 1024 * 1024) for file in load(tmp_path)]
    assert len(join_files._window(STORAGE, files, 1000)) == 1


def test_decoded_size_of_uncommon_page_headers(tmp_path):
    texts = pa.table({"text": [f"t{i % 50}" for i in range(3000)]})
    for options in ({}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"write_page_checksum": True}):
        for page in (1 << 20, 64):
            pq.write_table(texts, tmp_path / "x.parquet", data_page_size=page, compression="none", **options)
            chunk = pq.read_metadata(tmp_path / "x.parquet").row_group(0).column(0)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data = memoryview((tmp_path / "x.parquet").read_bytes())[start : start + chunk.total_compressed_size]
            assert decoded_size(data, 0, len(data), 3000) == 24_000 + (options.get("use_dictionary", True) and 340 * 60)
            assert decoded_size(data, 0, len(data), 3001) is None
            assert decoded_size(data, 0, len(data), 2999) is None
            if page == 64:
                assert decoded_size(data, 0, len(data) - 1, 3000) is None


def test_rows_are_dropped_from_the_right_files(tmp_path, monkeypatch):
    monkeypatch.setattr(join_files, "_FETCHED_FILES", 3)
    write_some(tmp_path / "data", 8)
    files = load(tmp_path / "data")
    drops = {files[n].path: np.array(rows) for n, rows in {0: [0], 1: [3, 9], 4: [0, 9], 7: list(range(10))}.items()}
    task = CombineTask("x.parquet", files, files[0].schema, WriteOptions(), drops)
    outcome = combine_files(task, STORAGE, str(tmp_path / "x.parquet"))
    gone = {0, 13, 19, 40, 49, *range(70, 80)}
    assert outcome.rows == 80 - len(gone)
    assert pq.read_table(tmp_path / "x.parquet")["id"].to_pylist() == [i for i in range(80) if i not in gone]


def test_rows_decoded_at_once_are_limited(tmp_path, monkeypatch):
    write_some(tmp_path / "data", 7)
    files = load(tmp_path / "data")
    read: list[int] = []
    monkeypatch.setattr(SmallFilesReader, "read", lambda _, window: read.append(len(window)))
    for options, most in ((WriteOptions(row_group_size=25), 200_000), (WriteOptions(), 25)):
        monkeypatch.setattr(join_files, "_MOST_ROWS", most)
        task = CombineTask("x.parquet", files, files[0].schema, options, {})
        assert combine_files(task, STORAGE, str(tmp_path / "x.parquet")).rows == 70
        assert read == [2, 2, 2, 1]
        read.clear()


def test_numbers_are_encoded_as_in_thrift():
    for value in (0, 1, *(2**bit + step for bit in range(1, 40) for step in (-1, 0, 1))):
        assert read_non_negative(_number(value)) == value
        assert write_struct({1: (6, value)})[1:-1] == _number(value)


def test_chunk_with_an_unknown_field_does_not_match(tmp_path):
    write_some(tmp_path, 1)
    data = (tmp_path / "0.parquet").read_bytes()
    footer, _ = read_struct(data[-8 - int.from_bytes(data[-8:-4], "little") :])
    assert len(list(_CHUNK.finditer(write_struct(footer)))) == 2
    chunk = footer[4][1][1][0][1][1][1][0]
    for fields, number, value in ((chunk[3][1], 10, (6, 4)), (chunk, 1, (8, b"other.parquet"))):
        fields[number] = value
        assert len(list(_CHUNK.finditer(write_struct(footer)))) == 1
        del fields[number]

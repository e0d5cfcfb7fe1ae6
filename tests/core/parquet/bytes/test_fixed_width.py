"""Chunks that are encoded without the Parquet writer: every reader sees in them what pyarrow's own writer would say."""

from __future__ import annotations

import zlib
from itertools import pairwise

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.core.parquet.bytes.fixed_width import find_fixed_width, fixed_width_chunks
from fsspeckit.core.parquet.bytes.thrift import read_struct
from fsspeckit.core.parquet.writer import StagedFile

OPTIONS = {"version": "2.6", "write_page_checksum": True, "use_dictionary": False, "compression": "snappy"}
NUMBERS = [
    *(pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.date32()),
    *(pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "America/Sao_Paulo")),
]
TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
OTHERS = [pa.bool_(), pa.int8(), pa.uint16(), pa.float16(), pa.time32("s"), pa.timestamp("s"), pa.duration("us")]


def random_numbers(type_: pa.DataType, rows: int, rng: np.random.Generator) -> pa.Array:
    if pa.types.is_floating(type_):
        return pa.array(rng.choice([-0.0, 0.0, 1.5, -2.25, 1e30, float("inf")], rows)).cast(type_)
    high = 86_399_999 if pa.types.is_time(type_) else 2**31 - 1
    return (
        pa.array(rng.integers(0, high, rows), pa.int64())
        .cast(pa.int32() if type_.bit_width == 32 else pa.int64())
        .view(type_)
    )


def random_texts(type_: pa.DataType, rows: int, width: int, rng: np.random.Generator, repeated: bool) -> pa.Array:
    """Texts of one length; those of random letters have nothing for a codec to find."""
    letters = rng.integers(97, 99 if repeated else 123, (rows, width), dtype=np.uint8)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        letters[rng.random((rows, width)) < 0.1] = 250
    return pa.array([row.tobytes() for row in letters], pa.binary()).cast(type_)


@st.composite
def tables(draw):
    rows, rng = draw(st.sampled_from([1, 2, 9, 700])), np.random.default_rng(draw(st.integers(0, 1000)))
    columns, fields = [], []
    for number, type_ in enumerate(draw(st.lists(st.sampled_from(NUMBERS + TEXTS), min_size=1, max_size=6))):
        width = draw(st.sampled_from([1, 8, 9, 36, 60, 61, 256, 257, 1024, 1025]))
        is_text = type_ in TEXTS
        column = (
            random_texts(type_, rows, width, rng, draw(st.booleans())) if is_text else random_numbers(type_, rows, rng)
        )
        if draw(st.integers(0, 4)) == 0:
            column = pa.concat_arrays([column.slice(1), pa.nulls(1, type_)])
        columns.append(column)
        fields.append(pa.field(f"c{number}", type_, nullable=bool(column.null_count) or draw(st.booleans())))
    for number, type_ in enumerate(draw(st.lists(st.sampled_from(OTHERS), max_size=2))):
        columns.append(pa.nulls(rows, type_))
        fields.append(pa.field(f"o{number}", type_))
    if draw(st.booleans()):
        columns.append(pa.array([[i] * (i % 3) for i in range(rows)], pa.list_(pa.int32())))
        fields.append(pa.field("nested", pa.list_(pa.int32())))
    return pa.table(columns, schema=pa.schema(fields, {"who": "me"}))


def write_both(table, folder, options, group_rows):
    """The table by us and by pyarrow alone."""
    ours, theirs = folder / "ours.parquet", folder / "theirs.parquet"
    staged = StagedFile(pa.OSFile(str(ours), "wb"), table.schema, options, {b"note": b"1"})
    staged.write(table, group_rows)
    staged.add_metadata({b"later": b"2"})
    assert staged.close() == ours.stat().st_size
    with pq.ParquetWriter(theirs, table.schema, **options) as writer:
        writer.write_table(table, group_rows)
        writer.add_key_value_metadata({b"note": b"1", b"later": b"2"})
    return ours, theirs


@settings(deadline=None)
@given(tables(), st.sampled_from(["snappy", "zstd", "none", "gzip"]), st.sampled_from([5, 300, 10_000]))
def test_a_file_reads_like_one_of_pyarrow(tmp_path_factory, table, codec, group_rows):
    sorting = (
        [pq.SortingColumn(0, descending=True)] if codec == "snappy" and "nested" not in table.column_names else None
    )
    options = OPTIONS | {"compression": codec, "sorting_columns": sorting}
    ours, theirs = write_both(table, tmp_path_factory.mktemp("plain"), options, group_rows)
    with pq.ParquetFile(ours, page_checksum_verification=True) as file, pq.ParquetFile(theirs) as other:
        assert file.read().equals(other.read())
        assert file.schema_arrow.equals(other.schema_arrow, check_metadata=True)
        same_footer(file.metadata, other.metadata)
    same_words(ours.read_bytes(), theirs.read_bytes())
    by_duckdb = [duckdb.sql(f"select * from read_parquet('{path}')").to_arrow_table() for path in (ours, theirs)]
    assert by_duckdb[0].equals(by_duckdb[1])
    by_polars = [pl.read_parquet(path).to_arrow() for path in (ours, theirs)]
    assert by_polars[0].equals(by_polars[1])


def same_footer(ours: pq.FileMetaData, theirs: pq.FileMetaData) -> None:
    assert (ours.schema, ours.metadata, ours.num_rows) == (theirs.schema, theirs.metadata, theirs.num_rows)
    assert (ours.created_by, ours.format_version) == (theirs.created_by, theirs.format_version)
    assert ours.num_row_groups == theirs.num_row_groups
    for number in range(ours.num_row_groups):
        group, other = ours.row_group(number), theirs.row_group(number)
        assert (group.num_rows, group.sorting_columns) == (other.num_rows, other.sorting_columns)
        for i in range(group.num_columns):
            chunk, like = group.column(i), other.column(i)
            assert chunk.statistics == like.statistics
            assert (chunk.num_values, chunk.compression) == (like.num_values, like.compression)
            assert sorted(chunk.encodings) == sorted(like.encodings)


def same_words(ours: bytes, theirs: bytes) -> None:
    """Footers say the same in the same words, except where something is and how large; every page has its checksum."""
    mine, other = (read_struct(data[-8 - int.from_bytes(data[-8:-4], "little") :])[0] for data in (ours, theirs))
    places, at = (2, 6, 7, 9, 11, 13), 4
    for group, like in zip(mine[4][1][1], other[4][1][1], strict=True):
        assert group[5][1] == at
        for chunk, one in zip(group[1][1][1], like[1][1][1], strict=True):
            meta, known = chunk[3][1], one[3][1]
            assert {k: v for k, v in meta.items() if k not in places} == {
                k: v for k, v in known.items() if k not in places
            }
            pages = 0
            while at < meta[9][1] + meta[7][1]:
                header, body = read_struct(ours, at)
                at = body + header[3][1]
                assert header[4][1] & 0xFFFFFFFF == zlib.crc32(ours[body:at])
                pages += 1
            assert meta[13][1][1][0][3][1] == pages
        assert group[6][1] == sum(chunk[3][1][7][1] for chunk in group[1][1][1])
    assert mine.keys() == other.keys()


def test_what_can_be_written_plainly_is():
    rng = np.random.default_rng(1)
    numbers = {str(type_): random_numbers(type_, 50, rng) for type_ in NUMBERS}
    table = pa.table(numbers | {str(type_): random_texts(type_, 50, 36, rng, repeated=False) for type_ in TEXTS})
    assert list(find_fixed_width(table, OPTIONS)) == table.column_names
    assert not find_fixed_width(table.slice(0, 0), OPTIONS)
    assert not find_fixed_width(table, OPTIONS | {"write_page_index": True})
    assert not find_fixed_width(table, OPTIONS | {"compression": "gzip"})
    for key, value in {
        "use_dictionary": ["int64"],
        "column_encoding": {"int64": "DELTA_BINARY_PACKED"},
        "bloom_filter_options": {"int64": {"ndv": 5}},
        "compression": dict.fromkeys(table.column_names, "snappy") | {"int64": "gzip"},
    }.items():
        assert list(find_fixed_width(table, OPTIONS | {key: value})) == [n for n in table.column_names if n != "int64"]
    assert not any(
        pa.types.is_timestamp(c.field.type)
        for c in find_fixed_width(table, OPTIONS | {"use_deprecated_int96_timestamps": True}).values()
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, float("nan")]),
        pa.array([1, None]),
        pa.array(["of one", "length?"]),
        pa.array(["short", "texts"]),
        pa.array(["", ""]),
        *(pa.nulls(2, type_) for type_ in OTHERS),
        *(
            pa.array([1, 1]).cast(pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
            for type_ in OTHERS[4:]
        ),
    ],
    ids=str,
)
def test_other_columns_are_left_to_pyarrow(column):
    assert not find_fixed_width(pa.table({"a": column}), OPTIONS)


def body_of(texts: pa.Array, codec: str = "snappy") -> tuple[bytes, bytes]:
    """The first page of a column of texts, as stored and as it was."""
    columns = find_fixed_width(pa.table({"a": texts}), OPTIONS | {"compression": codec})
    ((_, pages),) = fixed_width_chunks(list(columns.values()), OPTIONS | {"compression": codec})
    page = next(iter(pages))
    words = page.head + bytes(page.body)
    header, start = read_struct(words)
    stored, size = words[start:], header[2][1]
    return stored, stored if codec == "none" else pa.Codec(codec).decompress(stored, size).to_pybytes()


@pytest.mark.parametrize("width", [40, 59, 60, 61, 255, 256, 257, 1000, 1024])
def test_random_texts_are_stored_as_they_are_in_a_stream_that_snappy_reads(width):
    rng = np.random.default_rng(width)
    texts = random_texts(pa.binary(), 900, width, rng, repeated=False)
    stored, plain = body_of(texts)
    assert plain == body_of(texts, "none")[1]
    assert texts[700].as_py() in stored
    assert len(stored) < 1.005 * len(plain)


def test_texts_that_repeat_are_compressed():
    texts = random_texts(pa.string(), 900, 40, np.random.default_rng(1), repeated=True)
    stored, plain = body_of(texts)
    assert len(stored) < 0.5 * len(plain)
    assert plain == body_of(texts, "none")[1]


def test_pages_are_cut_where_pyarrow_cuts_them(tmp_path):
    rng = np.random.default_rng(2)
    table = pa.table(
        {"n": pa.array(rng.integers(0, 2**60, 50_001)), "t": random_texts(pa.string(), 50_001, 60, rng, False)}
    )
    ours, theirs = write_both(table, tmp_path, OPTIONS, 50_001)
    same_words(ours.read_bytes(), theirs.read_bytes())
    assert pq.read_table(ours).equals(pq.read_table(theirs))
    assert ours.stat().st_size < 1.03 * theirs.stat().st_size


@pytest.mark.parametrize("width", [8, 20])
def test_bounds_of_texts_that_begin_alike(tmp_path, width):
    rows = [bytes([97] * 8 + [n % 256] * (width - 8)) for n in range(300)]
    rows += [b"\x00" * width, b"\xff" * width]
    table = pa.table({"t": pa.array(rows, pa.binary())})
    ours, theirs = write_both(table, tmp_path, OPTIONS, 1000)
    found, known = (pq.read_metadata(path).row_group(0).column(0).statistics for path in (ours, theirs))
    assert (found.min, found.max) == (b"\x00" * width, b"\xff" * width) == (known.min, known.max)
    like = pa.table({"t": pa.array(rows[:300], pa.binary())})
    ours, theirs = write_both(like, tmp_path, OPTIONS, 1000)
    assert (
        pq.read_metadata(ours).row_group(0).column(0).statistics
        == pq.read_metadata(theirs).row_group(0).column(0).statistics
    )


def test_a_row_group_with_more_rows_than_pyarrow_makes_is_cut_in_two(tmp_path):
    rows = (1 << 26) + 1
    table = pa.table({"plain": np.zeros(rows, np.int32), "other": np.zeros(rows, np.int8)})
    staged = StagedFile(pa.OSFile(str(tmp_path / "a.parquet"), "wb"), table.schema, OPTIONS)
    staged.write(table, rows)
    staged.close()
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        assert [(group.num_rows, group.column(1).num_values) for group in groups] == [(rows - 1, rows - 1), (1, 1)]
        assert file.read().num_rows == rows


def test_rows_that_do_not_fit_the_file_are_refused(tmp_path):
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    staged = StagedFile(pa.OSFile(str(tmp_path / "a.parquet"), "wb"), schema, OPTIONS)
    with pytest.raises(ValueError, match="do not fit"):
        staged.write(pa.table({"n": [1, 2]}), 10)
    staged.abandon()


def test_each_page_is_compressed_by_what_it_holds(tmp_path):
    """Half of the texts are random, in the middle and at both ends; no more than these are left as they are."""
    rng = np.random.default_rng(4)
    random = random_texts(pa.string(), 120_000, 36, rng, repeated=False)
    same = pa.array(["of no use to anybody, not even to me"] * 60_000)
    parts = [random.slice(0, 30_000), same, random.slice(30_000, 60_000), same, random.slice(90_000)]
    ours, theirs = write_both(pa.table({"t": pa.chunked_array(parts)}), tmp_path, OPTIONS, 300_000)
    assert pq.read_table(ours).equals(pq.read_table(theirs))
    assert ours.stat().st_size < 1.1 * theirs.stat().st_size


@pytest.mark.parametrize("ends", [(7, 20_008, 20_009, 61_000), (20_000, 40_000, 60_000), (1, 2, 3, 4, 5)])
def test_pages_do_not_depend_on_the_parts_that_rows_come_in(ends):
    rng, rows = np.random.default_rng(8), 70_000
    whole = pa.table(
        {
            "number": random_numbers(pa.int64(), rows, rng),
            "float": random_numbers(pa.float64(), rows, rng),
            "text": random_texts(pa.string(), rows, 36, rng, repeated=False),
        }
    )
    cuts = [0, *ends, rows]
    pieces = pa.concat_tables([whole.slice(start, end - start) for start, end in pairwise(cuts)])
    written = []
    for table in (whole, pieces):
        sink = pa.BufferOutputStream()
        staged = StagedFile(sink, table.schema, OPTIONS)
        staged.write(table, rows)
        staged.close()
        written.append(sink.getvalue())
    assert pieces["number"].num_chunks == len(ends) + 1
    assert written[0].equals(written[1])

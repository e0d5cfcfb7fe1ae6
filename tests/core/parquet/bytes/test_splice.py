"""Files with copied and new column chunks: readers return the expected rows, and copied chunks are unchanged."""

from __future__ import annotations

import datetime as dt
import zlib
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.parquet.bytes.splice import SplicedFile, can_splice
from fsspeckit.core.parquet.bytes.thrift import read_struct, write_struct
from fsspeckit.core.parquet.footer import read_footer
from fsspeckit.core.parquet.writer_options import like_file
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MAKERS = {
    "flag": (pa.bool_(), lambda i: i % 2 == 0),
    "small": (pa.int8(), lambda i: i % 100),
    "unsigned": (pa.uint32(), lambda i: 4_000_000_000 + i % 1000),
    "number": (pa.int64(), lambda i: i * 7919),
    "ratio": (pa.float64(), lambda i: (float("nan"), -0.0, i / 7)[i % 3]),
    "day": (pa.date32(), lambda i: START.date() + dt.timedelta(days=i % 500)),
    "at": (pa.timestamp("us", "UTC"), lambda i: START + dt.timedelta(seconds=i)),
    "price": (pa.decimal128(20, 3), lambda i: Decimal(i) / 8),
    "word": (pa.string(), lambda i: f"word {i % 5}"),
    "text": (pa.string(), lambda i: f"{i:x}" * (i % 9)),
    "bytes": (pa.binary(5), lambda i: i.to_bytes(5, "big")),
    "list": (pa.list_(pa.int32()), lambda i: list(range(i % 4))),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        lambda i: {"a": i, "b": [None, str(i)][: i % 3]},
    ),
    "map": (pa.map_(pa.string(), pa.int64()), lambda i: [(f"k{n}", i) for n in range(i % 3)]),
}


def column(name: str, rows: int, salt: int, nulls: bool) -> pa.Array:
    type_, make = MAKERS[name]
    return pa.array([None if nulls and (i + salt) % 4 == 0 else make(i + salt) for i in range(rows)], type_)


@st.composite
def files(draw):
    """Generate a table, its writer options, and the columns of each row group that get new values."""
    names = draw(st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, max_size=6, unique=True))
    rows, nulls = draw(st.integers(1, 120)), draw(st.booleans())
    old = pa.table({"id": pa.array(range(rows), pa.int64()), **{name: column(name, rows, 0, nulls) for name in names}})
    codecs = draw(st.lists(st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4"]), min_size=1, max_size=1))
    options = {
        "compression": codecs[0],
        "row_group_size": draw(st.sampled_from([7, 40, 1000])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([64, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([5, 1024])),
        "write_page_index": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
        "bloom_filter_options": draw(st.sampled_from([None, {"id": {"ndv": 100}}])),
        "sorting_columns": draw(st.sampled_from([None, [pq.SortingColumn(0)], [pq.SortingColumn(1)]])),
    }
    if any(pa.types.is_nested(field.type) for field in old.schema):
        options["sorting_columns"] = None
    groups = -(-rows // options["row_group_size"])
    changes = draw(st.lists(st.lists(st.sampled_from(names), unique=True), min_size=groups, max_size=groups))
    return old, options, changes, draw(st.booleans())


def footer_of(path):
    return read_footer(LocalStorage(), str(path), path.stat().st_size)


def options_like(path) -> dict:
    return like_file(footer_of(path), pq.ParquetFile(path).read(), WriteOptions(), ["id"], False) | {
        "store_schema": False
    }


def splice(path, changes, nulls):
    """Replace some columns of each row group in place. Return the expected row groups."""
    reader, parts = pq.ParquetFile(path), []
    options = options_like(path)
    origin = can_splice(footer_of(path), reader.schema_arrow.remove_metadata(), options)
    assert origin is not None
    new = path.with_suffix(".new")
    file = SplicedFile(origin, "a.parquet", pa.OSFile(str(path)), pa.OSFile(str(new), "wb"))
    for number, changed in enumerate(changes):
        table = reader.read_row_group(number)
        names = [name for name in table.column_names if name in changed]
        for name in names:
            at = table.column_names.index(name)
            table = table.set_column(at, table.field(at), column(name, table.num_rows, 13, nulls))
        if names:
            file.mix_group(number, table.select(names).replace_schema_metadata(None), options)
        else:
            file.copy_group(number)
        parts.append(table)
    size = file.close(reader.metadata.metadata or {})
    assert size == new.stat().st_size
    reader.close()
    new.rename(path)
    return parts


@settings(deadline=None, max_examples=120)
@given(files())
def test_spliced_file_equals_a_file_written_at_once(tmp_path_factory, example):
    old, options, changes, nulls = example
    path = tmp_path_factory.mktemp("splice") / "a.parquet"
    pq.write_table(old, path, **options)
    before, was, schema = path.read_bytes(), pq.read_metadata(path), pq.read_schema(path)
    groups = splice(path, changes, nulls)
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        meta = file.metadata
        assert file.schema_arrow.equals(schema, check_metadata=True)
        assert (meta.num_rows, meta.metadata, meta.schema) == (old.num_rows, was.metadata, was.schema)
        for number, expected in enumerate(groups):
            assert repr(file.read_row_group(number).to_pylist()) == repr(expected.to_pylist())
            check_statistics(meta.row_group(number), expected, changes[number], was.row_group(number))
    check_offsets(path, before, changes)
    in_duckdb = duckdb.sql(f"select * from read_parquet('{path}')").to_arrow_table()
    pq.write_table(pa.concat_tables(groups), path)
    expected = duckdb.sql(f"select * from read_parquet('{path}')").to_arrow_table()
    assert repr(in_duckdb.to_pylist()) == repr(expected.to_pylist())


def check_statistics(group, expected, changed, was):
    """Bounds and null counts are those of the values, also in a reader that uses them for pruning."""
    top = {field.name: pa.types.is_nested(field.type) for field in expected.schema}
    for i in range(group.num_columns):
        chunk, name = group.column(i), group.column(i).path_in_schema.split(".")[0]
        if name not in changed:
            assert chunk.statistics == was.column(i).statistics
            assert (chunk.compression, chunk.encodings) == (was.column(i).compression, was.column(i).encodings)
        if top[name] or chunk.statistics is None:
            continue
        assert chunk.statistics.null_count == expected[name].null_count
        if chunk.statistics.has_min_max and name != "ratio":
            found = pc.min_max(expected[name])
            assert [chunk.statistics.min, chunk.statistics.max] == [found["min"].as_py(), found["max"].as_py()]
    chunks = [group.column(i) for i in range(group.num_columns)]
    assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)


def check_offsets(path, before, changes):
    """Every page is at the offset in the footer and the index, with a checksum. Bloom filters of keys are unchanged.

    A page of only NaN values has no bounds, so the existence of a column index depends on the values.
    """
    data, old = path.read_bytes(), footer(before)
    new = footer(data)
    end = 0
    for number, (group, was) in enumerate(zip(new[4][1][1], old[4][1][1], strict=True)):
        assert group[7][1] == number
        assert group[5][1] >= end
        total = 0
        for chunk, before_chunk in zip(group[1][1][1], was[1][1][1], strict=True):
            meta = chunk[3][1]
            pages = walk(data, meta)
            end = max(end, max(pages) + pages[max(pages)])
            total += meta[7][1]
            assert meta[9][1] in pages
            assert meta.get(11, meta[9])[1] in pages
            if meta[3][1][1] != [b"ratio"] or "ratio" not in changes[number]:
                assert (6 in chunk) == (6 in before_chunk)
            if 4 in chunk:
                index = read_struct(data[chunk[4][1] : chunk[4][1] + chunk[5][1]])[0]
                assert {spot[1][1]: spot[2][1] for spot in index[1][1][1]}.items() <= pages.items()
                assert index[1][1][1][0][1][1] == meta[9][1]
            if 6 in chunk:
                assert read_struct(data[chunk[6][1] :])[1] == chunk[7][1]
            assert (14 in meta) == (14 in before_chunk[3][1])
            if 14 in meta:
                was_at, was_size = (before_chunk[3][1][field][1] for field in (14, 15))
                assert data[meta[14][1] : meta[14][1] + meta[15][1]] == before[was_at : was_at + was_size]
        assert group[6][1] == total


def footer(data):
    found, _ = read_struct(data[-8 - int.from_bytes(data[-8:-4], "little") :])
    return found


def walk(data, meta):
    """Return the pages of a chunk: offset to size."""
    at = start = min(meta[field][1] for field in (9, 11) if field in meta)
    pages, plain = {}, 0
    while at < start + meta[7][1]:
        header, body = read_struct(data, at)
        end = body + header[3][1]
        assert header[4][1] & 0xFFFFFFFF == zlib.crc32(data[body:end])
        plain += body - at + header[2][1]
        pages[at] = end - at
        at = end
    assert (at, plain) == (start + meta[7][1], meta[6][1])
    return pages


def rows(count: int = 3000) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": pa.array(range(count)),
            "amount": rng.random(count),
            "note": pa.array([f"{i:030d}" for i in rng.permutation(count)]),
            "state": pa.array([("open", "paid", None)[i % 3] for i in range(count)]),
        }
    )


def chunk_bytes(path, group: int, name: str) -> bytes:
    meta = pq.read_metadata(path).row_group(group)
    chunk = meta.column(rows().column_names.index(name))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return path.read_bytes()[start : start + chunk.total_compressed_size]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "events").mkdir()
    return tmp_path / "events" / "a.parquet"


def update(path, ids, **options):
    """Replace the amounts of some rows, and nothing else."""
    table = rows().take(pa.array(ids))
    changed = table.set_column(1, "amount", pa.array([-1.0] * len(ids)))
    return PyarrowDatasetIO(publish="replace").merge(
        changed, path.parent, strategy="update", key_columns="id", **options
    )


def test_only_columns_with_new_values_are_encoded(path):
    pq.write_table(rows(), path, row_group_size=1000, write_page_checksum=True)
    names = [(group, name) for group in range(3) for name in rows().column_names]
    before = {key: chunk_bytes(path, *key) for key in names}
    result = update(path, [1200, 1700])
    assert (result.updated, len(result.rewritten_files)) == (2, 1)
    assert [key for key in names if chunk_bytes(path, *key) != before[key]] == [(1, "amount")]
    expected = rows()["amount"].to_pylist()
    expected[1200] = expected[1700] = -1.0
    assert pq.ParquetFile(path, page_checksum_verification=True).read()["amount"].to_pylist() == expected


def test_copied_pages_get_checksums(path):
    pq.write_table(rows(), path, row_group_size=1000)
    update(path, [5])
    data = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(2).column(2)
    data[chunk.data_page_offset + 200] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_damage_in_a_copied_chunk_is_detected(path):
    pq.write_table(rows(), path, row_group_size=1000, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[pq.read_metadata(path).row_group(2).column(2).data_page_offset + 200] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"a\.parquet.*checksum"):
        update(path, [5])
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize(
    ("options", "data"), [({"write_page_index": True}, rows()), ({}, pa.table({"m": [[{"a": [1]}], None]}))]
)
def test_metadata_is_read_and_written_without_loss(path, options, data):
    pq.write_table(data, path, **options)
    file = path.read_bytes()
    words = file[-8 - int.from_bytes(file[-8:-4], "little") : -8]
    assert write_struct(read_struct(words)[0]) == words
    for end in range(len(words)):
        with pytest.raises(pa.ArrowInvalid, match="ends too early"):
            read_struct(words[:end])

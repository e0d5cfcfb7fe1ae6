"""Footers: the values equal those of pyarrow, and inconsistent footers are rejected."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import DamagedFileError, SchemaMismatchError, UnsupportedDataError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.parquet import data_files
from fsspeckit.core.parquet.bytes.format_fields import (
    ChunkField,
    FileField,
    GroupField,
    MetaField,
    SchemaField,
    StatisticsField,
)
from fsspeckit.core.parquet.bytes.thrift import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    read_struct,
    write_struct,
)
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.footer import read_footer
from fsspeckit.core.parquet.writer_options import like_file
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

STORAGE = LocalStorage()


@pytest.fixture(autouse=True)
def _no_known_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_SHARED", {})


DAY = datetime(2026, 3, 1, 12, 30)  # noqa: DTZ001 - columns without a zone
COLUMNS: dict[str, pa.Array] = {
    "int32": pa.array([3, None, -7], pa.int32()),
    "int64": pa.array([3, 5, -(2**60)], pa.int64()),
    "uint8": pa.array([3, 250, None], pa.uint8()),
    "uint32": pa.array([3, 2**32 - 1, 0], pa.uint32()),
    "uint64": pa.array([3, 2**64 - 1, None], pa.uint64()),
    "float16": pa.array(np.array([1.5, -2.5, 0], np.float16)),
    "float32": pa.array([1.5, -2.5, None], pa.float32()),
    "float64": pa.array([1.5, float("nan"), -0.0], pa.float64()),
    "bool": pa.array([True, False, None]),
    "text": pa.array(["b", "a", None]),
    "long text": pa.array(["b" * 90, "a" * 200, None]),
    "binary": pa.array([b"\xff\x18", b"\x00\x11", None]),
    "fixed": pa.array([b"abcd", b"zzzz", None], pa.binary(4)),
    "date": pa.array([date(2020, 1, 1), None, date(1960, 5, 5)]),
    "time32": pa.array([time(1, 2, 3), None, time(0)], pa.time32("ms")),
    "time64": pa.array([time(1, 2, 3), None, time(0)], pa.time64("us")),
    "timestamp ms": pa.array([DAY, None, DAY], pa.timestamp("ms")),
    "timestamp us": pa.array([DAY, None, DAY], pa.timestamp("us", "UTC")),
    "timestamp ns": pa.array([DAY, None, DAY], pa.timestamp("ns")),
    "duration": pa.array([timedelta(5), None, timedelta(-5)], pa.duration("us")),
    "decimal 9": pa.array([decimal.Decimal("1.23"), None, decimal.Decimal("-9.99")], pa.decimal128(9, 2)),
    "decimal 30": pa.array([decimal.Decimal("1.23"), None, decimal.Decimal("-9.99")], pa.decimal128(30, 2)),
    "decimal 50": pa.array([decimal.Decimal("1.23"), None, decimal.Decimal("-9.99")], pa.decimal256(50, 2)),
    "dictionary": pa.array(["x", "y", None]).dictionary_encode(),
    "nulls": pa.array([None, None, None], pa.int64()),
    "list": pa.array([[1, 2], None, []]),
    "struct": pa.array([{"int64": 1}, None, {"int64": 3}]),
    "a.b": pa.array([1, 2, 3]),
}


def load(folder: Path, *columns: str) -> tuple[DataFile, ...]:
    return load_snapshot(STORAGE, Journal(STORAGE, str(folder)).view(), stats_for=columns).files


def told_by_pyarrow(path: Path, name: str) -> list[tuple[Any, Any, int | None]]:
    """Return the minimum, the maximum and the null count of each row group, as pyarrow reads them."""
    meta = pq.read_metadata(path)
    index = [meta.schema.column(i).path for i in range(len(meta.schema))].index(name)
    found = []
    for group in range(meta.num_row_groups):
        stats = meta.row_group(group).column(index).statistics
        ends = (stats.min_raw, stats.max_raw) if stats is not None and stats.has_min_max else (None, None)
        found.append((*ends, stats.null_count if stats is not None and stats.has_null_count else None))
    return found


def told_by_us(file: DataFile, name: str) -> list[tuple[Any, Any, int | None]]:
    stats = file.stats[name]
    return list(zip(stats.lower, stats.upper, stats.nulls, strict=True))


@pytest.mark.parametrize(
    "options", [{}, {"version": "1.0"}, {"write_page_index": True}, {"compression": "zstd"}], ids=str
)
@pytest.mark.parametrize("templates", [True, False])
def test_statistics_equal_those_of_pyarrow(
    tmp_path: Path, options: dict[str, Any], templates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not templates:
        monkeypatch.setattr(data_files, "_MIN_FOOTERS_FOR_TEMPLATE", 10**9)
    table = pa.table(COLUMNS)
    for number in range(5):
        pq.write_table(
            pa.concat_tables([table, table.slice(number % 3)]),
            tmp_path / f"{number}.parquet",
            row_group_size=2,
            **options,
        )
    files = load(tmp_path, *COLUMNS)
    for file in files:
        meta = pq.read_metadata(file.location)
        assert file.rows == meta.num_rows
        assert file.row_groups == tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups))
        assert file.uncompressed == sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        assert file.codec == meta.row_group(0).column(0).compression
        assert file.footer == meta.serialized_size + 12
        assert file.schema.equals(pq.read_schema(file.location), check_metadata=True)
        assert set(file.stats) == set(COLUMNS) - {"list", "struct"}
        for name in file.stats:
            if name in ("float16", "nulls") or file.stats[name].native is None:
                continue
            assert told_by_us(file, name) == told_by_pyarrow(Path(file.location), name), name
        assert file.stats["nulls"].nulls == tuple(file.row_groups)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=6, unique=True))
    rows = draw(st.lists(st.integers(0, 2), max_size=12))
    options = {
        "row_group_size": draw(st.integers(1, 12)),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        "use_dictionary": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
        "write_page_index": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
    }
    return pa.table({name: COLUMNS[name] for name in names}).take(pa.array(rows, pa.int64())), options


@settings(deadline=None, max_examples=60)
@given(st.lists(tables(), min_size=1, max_size=4))
def test_template_and_parser_agree(tmp_path_factory: pytest.TempPathFactory, examples: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("footers")
    for number, (table, options) in enumerate(examples * 4):
        pq.write_table(table, folder / f"{number:02d}.parquet", **options)
    files = Journal(STORAGE, str(folder)).view().files
    matched = data_files.read_data_files(STORAGE, files, list(COLUMNS))
    one_by_one = [data_files.read_data_files(STORAGE, [file], list(COLUMNS))[0] for file in files]
    assert repr(matched) == repr(one_by_one)  # by text, since NaN is in some bounds


# Footers that do not fit together


def write_footer(path: Path, tree: Struct) -> None:
    """Replace the footer of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    words = write_struct(tree)
    path.write_bytes(data[:-length] + words + len(words).to_bytes(4, "little") + b"PAR1")


def footer_of(path: Path) -> Struct:
    return read_footer(STORAGE, str(path), path.stat().st_size).tree


def group(tree: Struct) -> Struct:
    found: Struct = tree[FileField.groups][1][1][0]
    return found


def meta(tree: Struct) -> Struct:
    found: Struct = group(tree)[GroupField.columns][1][1][0][ChunkField.meta][1]
    return found


def chunk(tree: Struct) -> Struct:
    found: Struct = group(tree)[GroupField.columns][1][1][0]
    return found


def _claim(tree: Struct, rows: int) -> None:
    """Numbers that are consistent, but too large for the file."""
    tree[FileField.rows] = (I64, rows + 3)
    group(tree)[GroupField.rows] = (I64, rows)
    for column in group(tree)[GroupField.columns][1][1]:
        column[ChunkField.meta][1][MetaField.values] = (I64, rows)


def _move_bloom(offset: int, size: int, tree: Struct) -> None:
    meta(tree).update({MetaField.bloom_offset: (I64, offset), MetaField.bloom_size: (I32, size)})


SPOILT: dict[str, Callable[[Struct], Any]] = {
    "too many rows told": lambda tree: tree.update({FileField.rows: (I64, 7)}),
    "no rows": lambda tree: tree.pop(FileField.rows),
    "no schema": lambda tree: tree.pop(FileField.schema),
    "no row groups": lambda tree: tree.pop(FileField.groups),
    "a column less": lambda tree: group(tree)[GroupField.columns][1][1].pop(),
    "too many rows of a group": lambda tree: group(tree).update({GroupField.rows: (I64, 4)}),
    "negative size of a group": lambda tree: group(tree).update({GroupField.uncompressed_size: (I64, -1)}),
    "values and rows differ": lambda tree: meta(tree).update({MetaField.values: (I64, 2)}),
    "another type": lambda tree: meta(tree).update({MetaField.kind: (I32, 1)}),
    "an unknown codec": lambda tree: meta(tree).update({MetaField.codec: (I32, 99)}),
    "another path": lambda tree: meta(tree).update({MetaField.path: (9, (BINARY, [b"no"]))}),
    "no metadata": lambda tree: chunk(tree).pop(ChunkField.meta),
    "pages behind the end": lambda tree: meta(tree).update({MetaField.data_offset: (I64, 10**9)}),
    "pages without end": lambda tree: meta(tree).update({MetaField.compressed_size: (I64, 2**62)}),
    "more values than pages can have": lambda tree: _claim(tree, 2**45),
    "data in another file": lambda tree: chunk(tree).update({ChunkField.file_path: (BINARY, b"/etc/passwd")}),
    "an encrypted column": lambda tree: chunk(tree).update({ChunkField.crypto: (STRUCT, {2: (STRUCT, {})})}),
    "an encrypted file": lambda tree: tree.update({FileField.encryption: (STRUCT, {1: (STRUCT, {})})}),
    "a schema that is too short": lambda tree: tree[FileField.schema][1][1].pop(),
    "a schema of endless depth": lambda tree: tree[FileField.schema][1][1].extend(
        {SchemaField.name: (BINARY, b"x"), SchemaField.children: (I32, 1)} for _ in range(200)
    ),
    "a name that is not UTF-8": lambda tree: tree[FileField.schema][1][1][1].update(
        {SchemaField.name: (BINARY, b"\xff")}
    ),
    "a sorting column that is not there": lambda tree: group(tree).update(
        {GroupField.sorting: (9, (STRUCT, [{1: (I32, 99), 2: (TRUE, None), 3: (FALSE, None)}]))}
    ),
    "a sort order without a direction": lambda tree: group(tree).update(
        {GroupField.sorting: (9, (STRUCT, [{1: (I32, 0), 5: (TRUE, None), 6: (TRUE, None)}]))}
    ),
    "a number that is too large for its type": lambda tree: meta(tree).update({MetaField.codec: (I32, 2**32 + 1)}),
    "a list that is too long": lambda tree: tree.update({50: (9, (STRUCT, [{}] * 1_000_001))}),
    **{
        f"a Bloom filter at {offset} of {size} bytes": partial(_move_bloom, offset, size)
        for offset, size in ((-1, 10), (-(2**63), 10), (2**63 - 1, 10), (0, 10), (4, -1), (4, 2**31 - 1))
    },
}


def sample(folder: Path, copies: int = 1) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.parquet" for number in range(copies)]
    for path in paths:
        pq.write_table(pa.table({"id": range(6), "text": list("abcdef")}), path, row_group_size=3)
    return paths


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("copies", [1, 8])
def test_inconsistent_numbers_are_damage(tmp_path: Path, spoil: Callable[[Struct], Any], copies: int) -> None:
    """Also after seven valid files, when templates are used."""
    *_, last = sample(tmp_path / "data", copies)
    tree = footer_of(last)
    spoil(tree)
    write_footer(last, tree)
    with pytest.raises(DamagedFileError, match=last.name):
        load(tmp_path / "data", "id")


@pytest.mark.parametrize("copies", [1, 8])
@pytest.mark.parametrize("column", ["id", "text"])
def test_changed_bloom_filter_offset_is_damage(tmp_path: Path, copies: int, column: str) -> None:
    """In files with Bloom filters, so that templates have them. Statistics are read of one column."""
    rows = pa.table({"id": range(6), "text": list("abcdef")})
    for number in range(copies):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows, path, bloom_filter_options={"id": {"ndv": 6}})
    tree = footer_of(path)
    meta(tree)[MetaField.bloom_offset] = (I64, -1)
    write_footer(path, tree)
    with pytest.raises(DamagedFileError, match=path.name):
        load(tmp_path, column)


@pytest.mark.parametrize("field", [FileField.version, FileField.schema, FileField.rows, FileField.groups])
@pytest.mark.parametrize("copies", [1, 8])
def test_field_that_occurs_twice_is_damage(tmp_path: Path, field: int, copies: int) -> None:
    """Other readers use the second field."""
    *_, last = sample(tmp_path / "data", copies)
    tree, data = footer_of(last), last.read_bytes()
    second = bytes((tree[field][0], field << 1)) + write_struct({1: tree[field]})[1:]
    words = write_struct(tree)[:-1] + second
    last.write_bytes(data[: -8 - len(words) + len(second) - 1] + words + len(words).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DamagedFileError, match=last.name):
        load(tmp_path / "data", "id")


@pytest.mark.parametrize("copies", [1, 8])
def test_footer_with_zero_rows_has_the_rows_of_its_row_groups(tmp_path: Path, copies: int) -> None:
    """parquet-rs 0.3.0 wrote such files, and every reader returns their rows."""
    *_, last = sample(tmp_path / "data", copies)
    tree = footer_of(last)
    tree[FileField.rows] = (I64, 0)
    write_footer(last, tree)
    assert [file.rows for file in load(tmp_path / "data")] == [6] * copies


_ONE = (1).to_bytes(8, "little")
STATISTICS: dict[str, tuple[Callable[[Struct], Any], str]] = {
    "bound of another length": (lambda stats: stats.update({StatisticsField.min: (BINARY, b"123")}), "bounds"),
    "bound is a number": (lambda stats: stats.update({StatisticsField.max: (I64, 5)}), "bounds"),
    "no upper bound": (lambda stats: stats.pop(StatisticsField.max), "bounds"),
    "lower bounds differ": (lambda stats: stats.update({StatisticsField.min: (BINARY, _ONE)}), "old bounds"),
    "old upper bounds differ": (lambda stats: stats.update({StatisticsField.max_old: (BINARY, _ONE)}), "old bounds"),
    "negative nulls": (lambda stats: stats.update({StatisticsField.nulls: (I64, -1)}), "nulls"),
    "more nulls than values": (lambda stats: stats.update({StatisticsField.nulls: (I64, 4)}), "nulls"),
    "nulls are text": (lambda stats: stats.update({StatisticsField.nulls: (BINARY, b"1")}), "nulls"),
}


@pytest.mark.parametrize(("spoil", "what"), STATISTICS.values(), ids=STATISTICS)
@pytest.mark.parametrize("copies", [1, 8])
def test_impossible_statistics_are_ignored(
    tmp_path: Path, spoil: Callable[[Struct], Any], what: str, copies: int
) -> None:
    *_, last = sample(tmp_path / "data", copies)
    tree = footer_of(last)
    stats = meta(tree)[MetaField.statistics][1]
    if what != "old bounds":
        for old in (StatisticsField.max_old, StatisticsField.min_old):
            stats.pop(old, None)
    spoil(stats)
    write_footer(last, tree)
    found = load(tmp_path / "data", "id")[-1].stats["id"]
    assert ((found.lower[0], found.upper[0]) == (None, None)) == ("bounds" in what)
    assert (found.nulls[0] is None) == (what == "nulls")
    assert (found.lower[1], found.upper[1], found.nulls[1]) == (3, 5, 0)


def test_bounds_without_a_defined_order_are_ignored_except_for_signed_numbers(tmp_path: Path) -> None:
    (path,) = sample(tmp_path / "data")
    tree = footer_of(path)
    for column in group(tree)[GroupField.columns][1][1]:
        stats = column[ChunkField.meta][1][MetaField.statistics][1]
        for new, old in (
            (StatisticsField.min, StatisticsField.min_old),
            (StatisticsField.max, StatisticsField.max_old),
        ):
            stats[old] = stats.pop(new)
    del tree[FileField.column_orders]
    write_footer(path, tree)
    found = load(tmp_path / "data", "id", "text")[0].stats
    assert found["id"].lower == (0, None)
    assert found["text"].lower == (None, None)


@settings(deadline=None, max_examples=16 * sweep_size().hypothesis)
@given(st.data())
def test_changed_footer_is_damage_or_readable(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """No other error is raised, and the process does not crash."""
    folder = tmp_path_factory.mktemp("flips")
    *_, last = sample(folder, data.draw(st.sampled_from([1, 5])))
    content = bytearray(last.read_bytes())
    end = int.from_bytes(content[-8:-4], "little") + 8
    for _ in range(data.draw(st.integers(1, 3))):
        content[-data.draw(st.integers(5, end))] ^= 1 << data.draw(st.integers(0, 7))
    last.write_bytes(content)
    try:
        files = load(folder, "id", "text")
    except (DamagedFileError, SchemaMismatchError, UnsupportedDataError) as error:
        if last.name not in str(error):
            raise
    else:
        assert files[-1].rows == sum(files[-1].row_groups)


def test_number_of_more_than_64_bits_is_damage() -> None:
    with pytest.raises(pa.ArrowInvalid, match="64 bits"):
        read_struct(b"\x16" + b"\xff" * 100)


@pytest.mark.parametrize("encoding", range(5, 10))
def test_impossible_encoding_is_not_kept(tmp_path: Path, encoding: int) -> None:
    """A flipped bit in the list of encodings must not cause an error of the writer."""
    (path,) = sample(tmp_path / "data")
    rows, tree = pq.read_table(path), footer_of(path)
    for column in group(tree)[GroupField.columns][1][1]:
        column[ChunkField.meta][1][MetaField.encodings] = (9, (I32, [encoding]))
        column[ChunkField.meta][1].pop(MetaField.dictionary_offset, None)
        column[ChunkField.meta][1][MetaField.bloom_offset] = (I64, 4)
    write_footer(path, tree)
    options = like_file(read_footer(STORAGE, str(path), path.stat().st_size), rows, WriteOptions(), [], False)
    pq.write_table(rows, tmp_path / "copy.parquet", **options)
    assert pq.read_table(tmp_path / "copy.parquet").equals(rows)


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
    expected = pytest.raises(UnsupportedDataError, match=r"a\.parquet is not damaged, but pyarrow .*\(Nested")
    with expected, report_damage("reading", "a.parquet"):
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

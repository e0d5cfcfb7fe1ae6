"""What statistics prove about conditions is true of every row, whatever the statistics are; deletes find these rows."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.expressions.generated import SCHEMA, Generated, Row, conditions, rows
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.model import DataFile
from fsspeckit.core.parquet.bytes.format_fields import ChunkField, FileField, GroupField, MetaField, StatisticsField
from fsspeckit.core.parquet.bytes.thrift import BINARY, FALSE, I64, STRUCT, Struct
from fsspeckit.core.planning.condition_proofs import Truth, possible_truths
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import edit_footer
from sweeps import sweep_size

LONG = "long text " * 12
Edit = Callable[[Struct], Any]


class Odd(NamedTuple):
    """Values of a column ``x``, how its file is written, the type of the dataset, and constants to compare with."""

    values: pa.Array
    constants: tuple[str, ...]
    options: Mapping[str, Any] = MappingProxyType({})
    edit: Edit | None = None
    type: pa.DataType | None = None


def _on_statistics(change: Callable[[Struct], Any]) -> Edit:
    def edit(tree: Struct) -> None:
        for group in tree[FileField.groups][1][1]:
            chunk = group[GroupField.columns][1][1][0]
            change(chunk[ChunkField.meta][1].setdefault(MetaField.statistics, (STRUCT, {}))[1])

    return edit


def _forged(lower: bytes | None = None, upper: bytes | None = None, nulls: int | None = None) -> Edit:
    """Replace bounds, in both pairs of fields, and the number of nulls."""

    def change(stats: Struct) -> None:
        for fields, value in (
            ((StatisticsField.min, StatisticsField.min_old), lower),
            ((StatisticsField.max, StatisticsField.max_old), upper),
        ):
            for field in fields if value is not None else ():
                stats[field] = (BINARY, value)
        if nulls is not None:
            stats[StatisticsField.nulls] = (I64, nulls)

    return _on_statistics(change)


def _without(*fields: int) -> Edit:
    return _on_statistics(lambda stats: [stats.pop(field, None) for field in fields])


def _truncated(stats: Struct) -> None:
    """Cut the bounds of texts, as writers do that round the upper bound up."""
    for field in (StatisticsField.min_old, StatisticsField.max_old):
        stats.pop(field, None)
    low, high = (stats.get(field, (0, b""))[1] for field in (StatisticsField.min, StatisticsField.max))
    if min(len(low), len(high)) < 4:
        return
    stats[StatisticsField.min] = (BINARY, low[:4])
    stats[StatisticsField.max] = (BINARY, high[:3] + bytes([high[3] + 1]))
    stats[StatisticsField.min_is_exact] = stats[StatisticsField.max_is_exact] = (FALSE, False)


def _i64(value: int) -> bytes:
    return struct.pack("<q", value)


DAY = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - a timestamp without a zone
STAMPS = [DAY, DAY + dt.timedelta(milliseconds=1), None, DAY + dt.timedelta(days=1)]
TIMES = ("TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:00.001'", "TIMESTAMP '2026-01-01 00:00:00.0005'")
INTS = pa.array([1, 2, None, 3, 4, 4], pa.int64())
FLOATS = pa.array([0.0, -0.0, 1.5, math.nan, None, -2.0])
TEXTS = pa.array([LONG + "a", LONG + "b", None, LONG, "zz", "zz"])
NUMBERS = ("0", "1", "2", "3", "4", "2.5", "-1")
WORDS = (f"'{LONG}'", f"'{LONG}b'", "'long'", "'lonh'", "'zz'", "''")
BLOOM = {"bloom_filter_options": {"x": {"ndv": 10}}}

CASES = {
    "no statistics": Odd(INTS, NUMBERS, {"write_statistics": False}),
    "no null count": Odd(INTS, NUMBERS, edit=_without(StatisticsField.nulls)),
    "null count too high": Odd(INTS, NUMBERS, edit=_forged(nulls=1000)),
    "bounds and only nulls": Odd(pa.array([1, 2, 3, 4], pa.int64()), NUMBERS, edit=_forged(nulls=2)),
    "bounds the wrong way round": Odd(INTS, NUMBERS, edit=_forged(_i64(9), _i64(-9))),
    "no upper bound": Odd(INTS, NUMBERS, edit=_without(StatisticsField.max, StatisticsField.max_old)),
    "Bloom filter of texts": Odd(TEXTS, WORDS, BLOOM),
    "int8 in int64": Odd(INTS.cast(pa.int8()), (*NUMBERS, "300"), type=pa.int64()),
    "uint8": Odd(pa.array([0, 200, 255, None], pa.uint8()), ("0", "200", "255", "256", "-1")),
    "uint64": Odd(pa.array([0, 2**64 - 1, 2**63, None], pa.uint64()), ("0", "9223372036854775808", "1", "-1")),
    "float": Odd(FLOATS, ("0", "-0.0", "1.5", "2", "-2")),
    "NaN in one bound": Odd(FLOATS, ("0", "1.5"), edit=_forged(upper=struct.pack("<d", math.nan))),
    "float32 in float64": Odd(FLOATS.cast(pa.float32()), ("0", "0.1", "1.5"), type=pa.float64()),
    "truncated texts": Odd(TEXTS, WORDS, edit=_on_statistics(_truncated)),
    "truncated binary": Odd(TEXTS.cast(pa.binary()), ("X'6c6f6e67'", "X'7a7a'"), edit=_on_statistics(_truncated)),
    "decimal in a wider one": Odd(
        pa.array([Decimal("1.25"), Decimal("-3.50"), None]), ("1.25", "1.2501", "-3.5", "2"), type=pa.decimal128(20, 6)
    ),
    "milliseconds": Odd(pa.array(STAMPS, pa.timestamp("ms")), TIMES, type=pa.timestamp("us")),
    "INT96": Odd(pa.array(STAMPS, pa.timestamp("ns")), TIMES, {"use_deprecated_int96_timestamps": True}),
    "seconds with a zone": Odd(pa.array([DAY, None], pa.timestamp("s", "Europe/Berlin")), TIMES),
    "dates": Odd(pa.array([DAY.date(), None]), ("DATE '2026-01-01'", "DATE '2025-12-31'", *TIMES[:2])),
}


def _conditions(odd: Odd) -> list[str]:
    first = odd.constants[0]
    found = [f"x {op} {value}" for value in odd.constants for op in ("=", "<>", "<", "<=", ">", ">=")]
    found += [f"NOT ({found[0]})", "x IS NULL", "x IS NOT NULL", f"x IS DISTINCT FROM {first}"]
    found += [f"x IN ({', '.join(odd.constants)})", f"x NOT IN ({first}, NULL)", f"x IN ({first}) OR x IS NULL"]
    found += [f"x BETWEEN {odd.constants[1]} AND {odd.constants[-1]}", f"x IS NULL AND x = {first}"]
    return found + (["x LIKE 'long%'", "x LIKE '%z'"] if first.startswith("'") else [])


def write(folder: Path, table: pa.Table, rows_per_group: int, edit: Edit | None = None, **options: Any) -> DataFile:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "a.parquet", row_group_size=rows_per_group, **options)
    if edit is not None:
        edit_footer(folder / "a.parquet", edit)
    place = Place.of(str(folder), None, None)
    return load_snapshot(place.storage, place.journal.view(), stats_for=table.column_names).files[0]


def write_odd(folder: Path, odd: Odd, rows_per_group: int) -> DataFile:
    return write(folder, pa.table({"x": odd.values}), rows_per_group, odd.edit, **odd.options)


def truth(value: bool | None) -> Truth:
    return Truth.NULL if value is None else Truth.TRUE if value else Truth.FALSE


def _truths(odd: Odd, folder: Path, condition: str) -> list[bool | None]:
    """The condition for every row, as the dataset's readers see the values."""
    table = pq.ParquetFile(folder / "a.parquet").read()
    type_ = odd.type or table.schema.field("x").type
    table = table.cast(pa.schema([("x", type_)]))
    found = evaluate(compile_condition(condition, table.schema), table)
    return found.to_pylist() if isinstance(found, pa.Array | pa.ChunkedArray) else [found.as_py()] * table.num_rows


@pytest.mark.parametrize("rows_per_group", [1, 2, 10])
@pytest.mark.parametrize("name", CASES)
def test_no_row_contradicts_what_is_proved(tmp_path: Path, name: str, rows_per_group: int) -> None:
    odd = CASES[name]
    file = write_odd(tmp_path / "d", odd, rows_per_group)
    type_ = odd.type or pq.read_schema(tmp_path / "d" / "a.parquet").field("x").type
    for condition in _conditions(odd):
        possible = possible_truths(compile_condition(condition, pa.schema([("x", type_)])), file)
        for number, value in enumerate(_truths(odd, tmp_path / "d", condition)):
            assert truth(value) in possible[number // rows_per_group], (condition, number)


@pytest.mark.parametrize("name", CASES)
def test_a_delete_removes_what_a_scan_finds(tmp_path: Path, name: str) -> None:
    odd, io = CASES[name], PyarrowDatasetIO()
    for number, condition in enumerate(sweep_size().sample(_conditions(odd), 9)):
        folder = tmp_path / str(number)
        write_odd(folder, odd, 2)
        if odd.type is not None:
            pq.write_table(pa.table({"x": pa.array([], odd.type)}), folder / "b.parquet")
        matching = _truths(odd, folder, condition).count(True)
        plan = io.delete(str(folder), where=condition, dry_run=True)
        result = io.delete(str(folder), where=condition)
        assert plan.deleted == result.deleted == matching, condition
        assert result.total == len(odd.values) - matching


@given(found=rows(), condition=conditions(), rows_per_group=st.integers(1, 5), statistics=st.booleans())
def test_every_truth_value_of_a_row_is_possible(
    tmp_path_factory: pytest.TempPathFactory,
    found: list[Row],
    condition: Generated,
    rows_per_group: int,
    statistics: bool,
) -> None:
    table = pa.Table.from_pylist(found, SCHEMA)
    file = write(tmp_path_factory.mktemp("proof"), table, rows_per_group, write_statistics=statistics)
    possible = possible_truths(compile_condition(condition.sql, SCHEMA), file)
    for number, row in enumerate(found):
        assert truth(condition.of(row)) in possible[number // rows_per_group]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i < 5", [Truth.TRUE, Truth.FALSE]),
        ("i >= 5", [Truth.FALSE, Truth.TRUE]),
        ("i = 2", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("i IN (1, 2)", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("i NOT IN (1, NULL)", [Truth.NULL | Truth.FALSE, Truth.NULL]),
        ("i BETWEEN 0 AND 9", [Truth.TRUE, Truth.TRUE | Truth.FALSE]),
        ("s LIKE 'a%'", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("f > 2.5", [Truth.TRUE | Truth.FALSE, Truth.TRUE]),
        ("f < 0", [Truth.FALSE, Truth.FALSE]),
        ("n IS NULL", [Truth.FALSE, Truth.TRUE]),
        ("n = 1", [Truth.TRUE, Truth.NULL]),
        ("i < 5 AND n = 1", [Truth.TRUE, Truth.FALSE]),
        ("i < 5 OR n = 1", [Truth.TRUE, Truth.NULL]),
        ("i = 2.5", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("i + 1 = 2", [Truth.ANY, Truth.ANY]),
        ("1 = 2", [Truth.FALSE, Truth.FALSE]),
    ],
)
def test_bounds_prove_what_they_can(tmp_path: Path, condition: str, expected: list[Truth]) -> None:
    table = pa.table(
        {
            "i": [1, 2, 3, 8, 9, 10],
            "s": ["a", "aa", "ab", "x", "y", "z"],
            "f": [0.0, 1.0, math.nan, 3.0, 4.0, 5.0],
            "n": pa.array([1, 1, 1, None, None, None], pa.int64()),
        }
    )
    file = write(tmp_path, table, 3)
    assert possible_truths(compile_condition(condition, table.schema), file) == expected


def test_a_file_without_the_column_has_nulls(tmp_path: Path) -> None:
    file = write(tmp_path, pa.table({"i": [1]}), 1)
    wider = pa.schema([("i", pa.int64()), ("new", pa.string())])
    assert possible_truths(compile_condition("new IS NULL", wider), file) == [Truth.TRUE]
    assert possible_truths(compile_condition("new = 'a'", wider), file) == [Truth.NULL]


NULLS: dict[str, dict[str, Any]] = {
    "counted": {},
    "not counted": {"edit": _without(StatisticsField.nulls)},
    "no statistics": {"write_statistics": False},
}


@pytest.mark.parametrize("nulls", NULLS)
def test_a_null_of_the_source_is_found_beside_any_bounds(tmp_path: Path, nulls: str) -> None:
    write(tmp_path / "d", pa.table({"id": [5, 6, None], "n": [1, 2, 3]}), 100, **NULLS[nulls])
    source = pa.table({"id": pa.array([None, 100], pa.int64()), "n": [70, 71]})
    result = PyarrowDatasetIO().merge(source, str(tmp_path / "d"), key_columns="id", null_keys="match")
    assert (result.inserted, result.updated) == (1, 1)


@pytest.mark.parametrize("kind", [int, float, str])
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("is_low_first", [True, False])
def test_a_file_with_a_null_reaches_beyond_all_others(
    tmp_path: Path, kind: Any, nulls: str, is_low_first: bool
) -> None:
    """A null is the last row of the whole order, so its file is sorted together with those that begin above it."""
    low, high = [kind(5), kind(6), None], [kind(7), kind(8), kind(9)]
    for ids in (low, high) if is_low_first else (high, low):
        write(tmp_path / "d", pa.table({"id": ids}), 100, **NULLS[nulls])
        PyarrowDatasetIO().optimize_parquet_dataset(str(tmp_path / "d"), "id", target_rows_per_file=3)
    files = [pq.ParquetFile(path).read()["id"].to_pylist() for path in (tmp_path / "d").glob("*.parquet")]
    found = [value for ids in sorted(files, key=lambda ids: (ids[0] is None, ids[0])) for value in ids]
    assert found == [kind(value) for value in range(5, 10)] + [None]

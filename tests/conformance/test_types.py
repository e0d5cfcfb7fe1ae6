"""Every type in every verb: all types are columns of one table, and each type alone is a key, an order and a sort."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Sequence
from functools import cmp_to_key, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from conformance import oracle
from conformance.datatypes import KEY_KINDS, VALUE_KINDS, Kind, on_disk
from conformance.effort import run_examples
from conformance.rows import bag, canonical, duckdb_rows, rows_of, unreadable_by_duckdb
from kit import data_files, put, table_of, tree_of

Given = dict[str, list[Any]]
VALUES = st.fixed_dictionaries(
    {name: st.lists(st.none() | kind.values, min_size=8, max_size=8) for name, kind in VALUE_KINDS.items()}
)
KEYS = st.fixed_dictionaries({name: st.lists(kind.values, min_size=8, max_size=8) for name, kind in KEY_KINDS.items()})
GROUPS = {letters: [name for name in KEY_KINDS if name[0] in letters] for letters in ("iu", "dlsb", "tf")}
"""Names of types by their first letters: all types one after the other would be one long test."""


def test_every_type_is_in_a_group() -> None:
    assert sorted(itertools.chain(*GROUPS.values())) == sorted(KEY_KINDS)


def rows(given: Given, ids: Sequence[int], side: str, **more: Any) -> pa.Table:
    types = {name: getattr(VALUE_KINDS[name], side) for name in given}
    columns = {name: pa.array([values[i] for i in ids], types[name]) for name, values in given.items()}
    return pa.table({"id": pa.array(ids, pa.int64())} | columns | more)


@pytest.mark.scenario("IO-04", "ID-04", "UP-33", "UP-34")
def test_values_of_all_types_in_every_verb(io: Any) -> None:
    def check(given: Given) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _live(io, Path(folder, "d"), given)

    run_examples("values", 3, VALUES, check)


def _live(io: Any, folder: Path, given: Given) -> None:
    path, upsert = str(folder), {"strategy": "upsert", "key_columns": "id"}
    for ids in ([4, 0, 2], [3, 1]):
        io.write_dataset(rows(given, ids, "target", n=[0] * len(ids)), path)
    first = rows_of(rows(given, range(5), "target", n=[0] * 5))
    check_rows(io, folder, first)
    version = io.keep_history(path)

    source = rows(given, [3, 4, 5, 6], "source", n=[1] * 4)
    result = io.merge(source, path, **upsert)
    assert (result.inserted, result.updated) == (2, 2)
    after = [*first[:3], *rows_of(source)]
    check_rows(io, folder, after)
    before = tree_of(folder)
    assert io.merge(source, path, **upsert).unchanged == 4
    assert tree_of(folder) == before, "the same merge again wrote something"

    io.update(path, set={"n": "n + 5"}, where="id IN (1, 5)")
    io.delete(path, where="id = 2")
    after = [row | {"n": row["n"] + 5 * (row["id"] in (1, 5))} for row in after if row["id"] != 2]
    check_rows(io, folder, after)
    more = rows(given, [0, 6], "source", n=[9, 9])
    io.write_dataset(more, path)
    io.deduplicate_parquet_dataset(path, "id", "n")
    after = [*(row for row in after if row["id"] not in (0, 6)), *rows_of(more)]
    check_rows(io, folder, after)
    io.compact_parquet_dataset(path, target_rows_per_file=100)
    check_rows(io, folder, after)
    io.optimize_parquet_dataset(path, "id", target_rows_per_file=3)
    check_rows(io, folder, after)
    more = rows(given, [7], "source", n=[2])
    io.write_dataset(more, path, mode="overwrite", replace_where="id > 4")
    feed = rows(given, [1, 3], "source", n=[50, 51])
    io.apply_changes(feed, path, key_columns="id", sequence_by="n")
    after = [*(row for row in after if row["id"] in (0, 4)), *rows_of(more), *rows_of(feed)]
    check_rows(io, folder, after)
    io.restore(path, version=version)
    check_rows(io, folder, first)

    history: dict[str, Any] = {"key_columns": "id", "sequence_by": "lsn", "scd_type": 2}
    for lsn, numbers in enumerate(([0, 1], [0, 1], [2, 3])):
        one = rows(given, numbers, "source", lsn=[lsn] * 2).set_column(0, "id", pa.array([1, 2]))
        stale = io.apply_changes(one, f"{path}2", **history).stale
        assert lsn != 1 or stale == 2, "equal values are no change"
    found = {row["id"]: row for row in rows_of(io.read_parquet(f"{path}2")) if row["valid_from"] == 0}
    for key, row in enumerate(rows_of(rows(given, [0, 1], "source").drop_columns("id")), start=1):
        assert {name: found[key][name] for name in row} == row


def check_rows(io: Any, folder: Path, expected: list[oracle.Row]) -> None:
    """Our reader and DuckDB read the rows; every file has the types of the first ones."""
    table, files = io.read_parquet(str(folder)), data_files(folder)
    assert bag(rows_of(table)) == bag(expected)
    for name, kind in VALUE_KINDS.items():
        wanted = spelled(on_disk(kind.target))
        assert {spelled(pq.read_schema(path).field(name).type) for path in files} == {wanted}, name
    columns = [name for name in table.column_names if name not in unreadable_by_duckdb(table.schema)]
    assert bag(duckdb_rows(files, columns)) == bag({name: row[name] for name in columns} for row in expected)


def spelled(type_: pa.DataType) -> str:
    """A type as text, without the names that Parquet gives to the items of lists and maps."""
    return re.sub(r" \('\w+'\)", "", str(type_)).replace("element", "item")


@pytest.mark.scenario("UP-02", "UP-33", "UP-34", "UP-37")
@pytest.mark.parametrize("group", GROUPS)
def test_each_type_as_a_key(io: Any, group: str) -> None:
    """A merge, a deduplication and a sort by one column of the type."""

    def check(given: Given) -> None:
        for name in GROUPS[group]:
            with tempfile.TemporaryDirectory() as folder:
                _check_key(io, Path(folder, "d"), KEY_KINDS[name], given[name])

    run_examples(f"keys {group}", 2, KEYS, check)


def _check_key(io: Any, folder: Path, kind: Kind, values: list[Any]) -> None:
    old, source = keyed(values[:5], kind.target, "old"), keyed(values[3:], kind.source, "new")
    for number, start in enumerate(range(0, len(old), 2)):
        put(folder / f"{number}.parquet", old.slice(start, 2))
    path, upsert = str(folder), {"strategy": "upsert", "key_columns": "k"}
    expected = oracle.merge(rows_of(old), rows_of(source), "upsert", ["k"])
    result = io.merge(source, path, **upsert)
    assert (result.inserted, result.updated) == (expected.inserted, expected.updated), kind.name
    assert bag(rows_of(io.read_parquet(path))) == bag(expected.rows), kind.name
    assert io.merge(source, path, **upsert).rewritten_files == []

    later = source.set_column(1, "v", pa.array(["zz"] * len(source)))
    io.write_dataset(later, path)
    io.deduplicate_parquet_dataset(path, "k", "v")
    left = oracle.merge(expected.rows, rows_of(later), "upsert", ["k"]).rows
    assert bag(rows_of(io.read_parquet(path))) == bag(left), kind.name
    io.optimize_parquet_dataset(path, "k", target_rows_per_file=3)
    ordered = [canonical(key) for file in data_files(folder) for key in table_of(file)["k"]]
    assert len(ordered) == len(left)
    assert all(itertools.starmap(is_ordered, itertools.pairwise(ordered))), kind.name


@pytest.mark.parametrize("group", GROUPS)
def test_each_type_as_a_sequence(io: Any, group: str) -> None:
    """A history has the rows in the order of the sequence, and its type."""

    def check(given: Given) -> None:
        for name in GROUPS[group]:
            kind, options = KEY_KINDS[name], {"key_columns": "id", "sequence_by": "at", "scd_type": 2}
            values = [each for each in different(given[name], kind.target) if each == each]
            at = sorted(values, key=cmp_to_key(partial(compared, kind.target)))
            with tempfile.TemporaryDirectory() as folder:
                for some in (at[::-2], at[-2::-2]):
                    column = pa.array(some, kind.target)
                    rows = pa.table({"id": [1] * len(some), "v": [at.index(each) for each in some], "at": column})
                    io.apply_changes(rows, str(Path(folder, "d")), **options)
                found = sorted(rows_of(io.read_parquet(str(Path(folder, "d")))), key=itemgetter("v"))
            starts, ends = ([row[end] for row in found] for end in ("valid_from", "valid_to"))
            assert starts == [canonical(each) for each in pa.array(at, kind.target)], name
            assert ends == [*starts[1:], None], name

    run_examples(f"sequence {group}", 2, KEYS, check)


def compared(type_: pa.DataType, one: Any, other: Any) -> int:
    return -1 if is_ordered(*map(canonical, pa.array([one, other], type_))) else 1


def keyed(part: list[Any], type_: pa.DataType, v: str) -> pa.Table:
    keys = different(part, type_)
    return pa.table({"k": pa.array(keys, type_), "v": [v] * len(keys), "n": range(len(keys))})


def different(part: list[Any], type_: pa.DataType) -> list[Any]:
    """The values of a type without those that are equal to another one."""
    return list({canonical(key): value for key, value in zip(pa.array(part, type_), part, strict=True)}.values())


def is_ordered(before: Any, after: Any) -> bool:
    """Whether one value comes before another: text by its bytes, NaN above all numbers."""
    if ("NaN",) in (before, after):
        return bool(after == ("NaN",))
    return bool(before.encode() <= after.encode() if isinstance(before, str) else before <= after)


@pytest.mark.parametrize("group", GROUPS)
def test_each_type_as_an_order(io: Any, group: str) -> None:
    """The highest value is kept: NULL is lowest, NaN highest; of equal values, that of the later row."""

    def check(given: Given) -> None:
        for name in GROUPS[group]:
            values = pa.array([None, *given[name]], KEY_KINDS[name].target)
            best = 0
            for i, value in enumerate(map(canonical, values)):
                best = i if best == 0 or is_ordered(canonical(values[best]), value) else best
            with tempfile.TemporaryDirectory() as folder:
                put(Path(folder, "d", "a.parquet"), pa.table({"id": [0] * 9, "n": range(9), "o": values}))
                io.deduplicate_parquet_dataset(str(Path(folder, "d")), "id", "o")
                assert io.read_parquet(str(Path(folder, "d")))["n"].to_pylist() == [best], name

    run_examples(f"order {group}", 2, KEYS, check)


@pytest.mark.scenario("IO-11")
def test_one_key_of_columns_of_all_types(io: Any) -> None:
    """Each row differs from the first one in one column only."""

    def check(given: Given) -> None:
        keys = {name: different(each, KEY_KINDS[name].target) for name, each in given.items()}
        at = [None, *(name for name, values in keys.items() if len(values) > 1)]
        columns = {
            name: pa.array([values[name == other] for other in at], KEY_KINDS[name].target)
            for name, values in keys.items()
        }
        table, half = pa.table(columns | {"v": range(len(at))}), len(at) // 2
        with tempfile.TemporaryDirectory() as folder:
            put(Path(folder, "d", "a.parquet"), table.slice(half))
            put(Path(folder, "d", "b.parquet"), table.slice(0, half))
            source = table.slice(1, half).set_column(len(keys), "v", pa.array([-1] * len(table.slice(1, half))))
            result = io.merge(source, str(Path(folder, "d")), strategy="upsert", key_columns=list(keys))
            assert (result.inserted, result.updated) == (0, len(source))
            found = sorted(io.read_parquet(str(Path(folder, "d")))["v"].to_pylist())
            assert found == sorted([-1] * len(source) + [0, *range(half + 1, len(table))])

    run_examples("key of all types", 3, KEYS, check)


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_curves_of_columns_of_all_types(io: Any, curve: str) -> None:
    def check(given: Given) -> None:
        table = pa.table({name: pa.array([None, *each], KEY_KINDS[name].target) for name, each in given.items()})
        with tempfile.TemporaryDirectory() as folder:
            for number in range(3):
                put(Path(folder, "d", f"{number}.parquet"), table.slice(3 * number, 3))
            optimize = partial(io.optimize_parquet_dataset, str(Path(folder, "d")), table.column_names, curve=curve)
            assert optimize(target_rows_per_file=4).after_row_count == 9
            assert bag(rows_of(io.read_parquet(str(Path(folder, "d"))))) == bag(rows_of(table))
            assert optimize(target_rows_per_file=4).compacted_file_count == 0

    run_examples(f"curve {curve}", 3, KEYS, check)

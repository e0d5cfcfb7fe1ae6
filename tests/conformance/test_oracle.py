"""Tests of the oracle: against the same merge in SQL, and of its values against Parquet."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from conformance import oracle
from conformance.datatypes import KEY_KINDS, VALUE_KINDS, Kind, on_disk
from conformance.effort import run_examples
from conformance.rows import bag, duckdb_rows, rows_of, second_reader, unreadable_by_duckdb

_ROWS = st.fixed_dictionaries({"k": st.none() | st.integers(0, 6), "p": st.sampled_from("ab"), "v": st.integers(0, 2)})

# Rows of a target, of a source without duplicates, joined on key and partition with nulls equal.
_JOINED = """
    from target t full join source s on t.k is not distinct from s.k and t.p = s.p
"""
_KEPT = {
    "upsert": "select coalesce(s.k, t.k) k, coalesce(s.p, t.p) p, coalesce(s.v, t.v) v" + _JOINED,
    "insert": "select coalesce(t.k, s.k) k, coalesce(t.p, s.p) p, coalesce(t.v, s.v) v" + _JOINED,
    "update": "select coalesce(t.k, s.k) k, t.p, coalesce(s.v, t.v) v" + _JOINED + "where t.p is not null",
    "full_merge": "select coalesce(s.k, t.k) k, s.p, s.v" + _JOINED + "where s.p is not null",
}
_MOVES = """select count(*) from source s where exists (from target t where t.k is not distinct from s.k)
            and not exists (from target t where t.k is not distinct from s.k and t.p = s.p)"""


@pytest.mark.parametrize("strategy", _KEPT)
def test_the_oracle_agrees_with_sql(strategy: str) -> None:
    tables = st.tuples(st.lists(_ROWS, max_size=8), st.lists(_ROWS, max_size=6))
    run_examples(strategy, 60, tables, lambda pair: _merge_in_sql_too(pair[0], pair[1], strategy))


def _merge_in_sql_too(target: list[oracle.Row], rows: list[oracle.Row], strategy: str) -> None:
    source = list({row["k"]: row for row in rows}.values())
    sql = second_reader()
    sql.register("target", _table(target))
    sql.register("source", _table(source))
    moves = sql.sql(_MOVES).fetchall()[0][0]
    expected = rows_of(sql.sql(_KEPT[strategy]).to_arrow_table())
    if moves:
        with pytest.raises(oracle.Refused, match="move"):
            oracle.merge(target, source, strategy, ["k"], partitions=["p"], null_keys="match")
        return
    outcome = oracle.merge(target, source, strategy, ["k"], partitions=["p"], null_keys="match")
    assert bag(outcome.rows) == bag(expected)
    assert len(expected) == len(target) + len(outcome.new) - outcome.deleted


@pytest.mark.parametrize("order_by", [[], ["v"], ["-v"], ["p", "-v"]], ids=str)
def test_deduplication_agrees_with_sql(order_by: list[str]) -> None:
    run_examples(str(order_by), 40, st.lists(_ROWS, max_size=8), lambda rows: _deduplicate_in_sql_too(rows, order_by))


def _deduplicate_in_sql_too(rows: list[oracle.Row], order_by: list[str]) -> None:
    order = [f"{n[1:]} asc nulls first" if n[0] == "-" else f"{n} desc nulls last" for n in order_by]
    numbered = "(select *, row_number() over () as pos from source)"
    ranked = f"row_number() over (partition by k order by {', '.join([*order, 'pos desc'])}) as rank"
    sql = second_reader()
    sql.register("source", _table(rows))
    expected = rows_of(
        sql.sql(f"select k, p, v from (select *, {ranked} from {numbered}) where rank = 1").to_arrow_table()
    )
    outcome = oracle.merge([], rows, "deduplicate", ["k"], order_by=order_by, null_keys="match")
    assert bag(outcome.rows) == bag(expected)


def _table(rows: list[oracle.Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema({"k": pa.int64(), "p": pa.string(), "v": pa.int64()}))


def test_duplicate_and_null_keys_of_the_oracle() -> None:
    twice = [{"k": 1, "v": "first"}, {"k": 1, "v": "last"}]
    with pytest.raises(oracle.Refused, match="duplicate"):
        oracle.merge([], twice, "upsert", ["k"])
    for pick in ("first", "last"):
        assert [row["v"] for row in oracle.merge([], twice, "upsert", ["k"], on_duplicate=pick).new] == [pick]
    with pytest.raises(oracle.Refused, match="null"):
        oracle.merge([{"k": None}], [{"k": 1}], "insert", ["k"])
    doubled = oracle.merge([{"k": 1, "v": 0}] * 2, [{"k": 1, "v": 0}], "update", ["k"])
    assert (doubled.updated, doubled.unchanged, len(doubled.rows)) == (2, 2, 2)


def test_canonical_values_survive_parquet_and_the_second_reader() -> None:
    for name, kind in (KEY_KINDS | VALUE_KINDS).items():

        def survive(values: list[object], kind: Kind = kind) -> None:
            target, source = (pa.table({"v": pa.array(values, side)}) for side in (kind.target, kind.source))
            assert rows_of(target) == rows_of(source) == _through_parquet(target)

        run_examples(name, 10, st.lists(st.none() | kind.values, min_size=1, max_size=5), survive)


def _through_parquet(table: pa.Table) -> list[oracle.Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.parquet")
        pq.write_table(table, path)
        read = pq.read_table(path)
        assert read.schema.types == [on_disk(type_) for type_ in table.schema.types]
        if not unreadable_by_duckdb(table.schema):
            assert duckdb_rows([path], table.column_names) == rows_of(table)
        return rows_of(read)

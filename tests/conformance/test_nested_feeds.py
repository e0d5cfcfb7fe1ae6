"""Nested change events: what a condition means where a column is named `source`, and events of Debezium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fsspeckit.common.errors import ExpressionError, KeyColumnError, SchemaMismatchError
from fsspeckit.core.ext import read_json

EVENTS = pa.table(
    {"id": [1, 2], "v": ["a", "b"], "source": [{"lsn": 1, "v": "x"}, {"lsn": 2, "v": "y"}], "op": ["c", "c"]}
)
KEY = {"strategy": "upsert", "key_columns": "id"}


def values(io: Any, path: str) -> dict[int, str]:
    return {row["id"]: row["v"] for row in io.read_parquet(path).to_pylist()}


@pytest.fixture
def path(io: Any, tmp_path: Path) -> str:
    """A dataset with a column that is named like the source of a merge."""
    io.write_dataset(EVENTS, str(tmp_path / "d"))
    return str(tmp_path / "d")


def changed(*, lsn: int) -> pa.Table:
    rows = [{"id": 1, "v": "A", "source": {"lsn": lsn, "v": "z"}, "op": "u"}]
    return pa.Table.from_pylist(rows, schema=EVENTS.schema)


@pytest.mark.parametrize(("lsn", "updated"), [(1, 0), (2, 1)])
def test_the_first_name_is_the_side_where_both_sides_can_be_named(io: Any, path: str, lsn: int, updated: int) -> None:
    result = io.merge(changed(lsn=lsn), path, **KEY, update_when="source.source.lsn > target.source.lsn")
    assert result.updated == updated


def test_a_prefix_is_never_taken_for_the_column(io: Any, path: str) -> None:
    with pytest.raises(ExpressionError, match=r"update_when: unknown column 'source\.lsn' (at character 1 of|in) "):
        io.merge(changed(lsn=2), path, **KEY, update_when="source.lsn > target.source.lsn")
    assert io.merge(changed(lsn=2), path, **KEY, update_when="source.v = 'A'").updated == 1
    with pytest.raises(ExpressionError, match="insert_when: the column 'op' has no prefix"):
        io.merge(changed(lsn=2), path, **KEY, insert_when="op = 'c'")


def test_conditions_over_one_side_have_no_prefix(io: Any, path: str) -> None:
    assert io.merge(changed(lsn=2), path, **KEY, delete_when="source.v = 'z'").deleted == 1
    with pytest.raises(ExpressionError, match="delete_when: unknown field of 'source' 'op'"):
        io.merge(changed(lsn=2), path, **KEY, delete_when="source.op = 'u'")
    with pytest.raises(ExpressionError, match="delete_when: unknown column 'source'"):
        io.merge(changed(lsn=2).drop_columns(["source"]), path + "2", **KEY, delete_when="source.op = 'u'")


def test_a_field_in_a_condition_does_not_hide_a_new_column(io: Any, path: str) -> None:
    rows = changed(lsn=2).append_column("lsn", pa.array([9]))
    with pytest.raises(SchemaMismatchError, match="lsn"):
        io.merge(rows, path, **KEY, delete_when="source.lsn = 5")
    assert values(io, path) == {1: "a", 2: "b"}


@pytest.mark.parametrize("options", [{"sequence_by": "source.lsn"}, {"key_columns": "source.lsn"}], ids=str)
def test_a_nested_field_is_not_a_key_or_a_sequence(io: Any, path: str, options: dict[str, str]) -> None:
    with pytest.raises(KeyColumnError, match=r"'source\.lsn' is a field of the column 'source'") as caught:
        io.apply_changes(changed(lsn=2), path, **{"key_columns": "id", "sequence_by": "id"} | options)
    assert str(caught.value).endswith("Select it as a column of its own first, such as lsn.")
    assert values(io, path) == {1: "a", 2: "b"}


def event(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    """An event of Debezium's connector for PostgreSQL, in the form of its JSON converter without schemas."""
    source = {
        "version": "3.1.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_762_000_000_000 + lsn,
        "snapshot": "false",
        "db": "shop",
        "sequence": f'["{lsn - 8}","{lsn}"]',
        "schema": "public",
        "table": "customers",
        "txId": 556,
        "lsn": lsn,
        "xmin": None,
    }
    ts = source["ts_ms"]
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": ts}


def with_schema(payload: dict[str, Any]) -> dict[str, Any]:
    """The same event with a schema, as the converter writes it by default."""
    field = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "field": "after"}
    return {
        "schema": {"type": "struct", "fields": [field], "name": "shop.public.customers.Envelope"},
        "payload": payload,
    }


ROW = pa.struct({"id": pa.int64(), "name": pa.string(), "email": pa.string()})
EVENT = {"before": ROW, "after": ROW, "source": pa.struct({"lsn": pa.int64()}), "op": pa.string()}


def flat_rows(path: Path, *, has_schema: bool) -> pa.Table:
    """Rows of changes: the new row, or of a delete the old one, with the position in the log and the operation."""
    schema = pa.schema({"payload": pa.struct(EVENT)} if has_schema else EVENT)
    events = read_json(str(path), schema=schema)
    if has_schema:
        events = pa.Table.from_struct_array(events["payload"])
    rows = pa.Table.from_struct_array(pc.coalesce(events["after"], events["before"]))
    lsn = pc.struct_field(events["source"], "lsn")
    return rows.append_column("lsn", lsn).append_column("op", events["op"])


@pytest.mark.parametrize("form", [dict, with_schema], ids=["plain", "with schema"])
def test_events_of_debezium(io: Any, tmp_path: Path, form: Any) -> None:
    feed = [
        event("r", None, {"id": 1001, "name": "Sally", "email": "sally@example.com"}, 24_023_000),
        event("c", None, {"id": 1004, "name": "Anne", "email": "anne@example.com"}, 24_023_128),
        event("u", None, {"id": 1004, "name": "Anne Marie", "email": "anne@example.com"}, 24_023_200),
        event("c", None, {"id": 1005, "name": "Bob", "email": None}, 24_023_300),
        event("d", {"id": 1001, "name": "", "email": None}, None, 24_023_400),
    ]
    (tmp_path / "events.json").write_text("".join(json.dumps(form(each)) + "\n" for each in feed))
    rows = flat_rows(tmp_path / "events.json", has_schema=form is with_schema)
    options = {"key_columns": "id", "sequence_by": "lsn", "delete_when": "op = 'd'", "except_columns": ["op"]}
    assert io.apply_changes(rows, str(tmp_path / "d"), **options).inserted == 2
    (tmp_path / "events.json").write_text(json.dumps(form(event("d", {"id": 1005}, None, 24_023_500))) + "\n")
    late = event("u", None, {"id": 1004, "name": "Anne", "email": None}, 24_023_128)
    with (tmp_path / "events.json").open("a") as file:
        file.write(json.dumps(form(late)) + "\n")
    rows = flat_rows(tmp_path / "events.json", has_schema=form is with_schema)
    result = io.apply_changes(rows, str(tmp_path / "d"), **options)
    assert (result.deleted, result.stale, result.total) == (1, 1, 1)
    found = io.read_parquet(str(tmp_path / "d")).to_pylist()
    assert found == [{"id": 1004, "name": "Anne Marie", "email": "anne@example.com", "lsn": 24_023_200}]

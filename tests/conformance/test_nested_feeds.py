"""Nested change events: what a condition means where a column is named `source`, and events of Debezium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import ExpressionError, KeyColumnError, SchemaMismatchError

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

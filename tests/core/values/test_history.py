"""The history of keys against a model of dictionaries, without files: random batches with late and repeated changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance import history as model
from fsspeckit.core.model import KeyColumn
from fsspeckit.core.values.history import CHANGE, DELETE, HistoryInput, HistoryLayout, change_history

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("w", pa.float64()),
        ("valid_from", pa.int64()),
        ("valid_to", pa.int64()),
        ("is_current", pa.bool_()),
    ]
)
LAYOUT = HistoryLayout((KeyColumn("id", pa.int64()),), ("v", "w"), ("v",))
CHANGES = st.builds(
    lambda key, v, w, lsn, op: {"id": key, "v": v, "w": w, "lsn": lsn, "op": op},
    st.sampled_from([-(2**63), 0, 2**63 - 1]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0.0, None]),
    st.integers(-4, 4) | st.sampled_from([-(2**63), 2**63 - 1]),
    st.sampled_from("uuud"),
)
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=12), min_size=1, max_size=4)


def changed(state: list[Row], batch: list[Row], layout: HistoryLayout) -> tuple[list[Row], Any]:
    """The history rows after a batch: replaced rows in place, removed rows gone, new rows last."""
    new = [{"id": c["id"], "v": c["v"], "w": c["w"], "valid_from": c["lsn"]} for c in batch]
    files = [*(7 for _ in state), *(DELETE if c["op"] == "d" else CHANGE for c in batch)]
    positions = [*range(len(state)), *range(len(batch))]
    table = pa.Table.from_pylist([*state, *new], SCHEMA)
    found = change_history(HistoryInput(np.array(files), np.array(positions), table), layout)
    rows = dict(enumerate(state))
    for position in found.removed_positions.tolist():
        del rows[position]
    for number, (position, row) in enumerate(zip(found.positions.tolist(), found.table.to_pylist(), strict=True)):
        assert position < 0 or row != rows[position], "a row without a change is not in the result"
        rows[position if position >= 0 else len(state) + number] = row
    return list(rows.values()), found


def as_tuples(state: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in state), key=lambda row: (row[0], row[3]))


@pytest.mark.parametrize("ignore_nulls", [False, True])
@given(batches=BATCHES)
def test_random_batches(ignore_nulls: bool, batches: list[list[Row]]) -> None:
    layout = HistoryLayout(LAYOUT.keys, LAYOUT.tracked, LAYOUT.partitions, ignore_nulls)
    state: list[Row] = []
    points: model.Points = {}
    for batch in batches:
        before = {(row["id"], row["valid_from"]): row["v"] for row in state}
        stale = model.apply(points, batch, ("v", "w"), ignore_nulls=ignore_nulls)
        state, found = changed(state, batch, layout)
        assert as_tuples(state) == model.rows_of(points)
        assert len(batch) - found.effective == stale
        keys = [((row["id"], row["valid_from"]), row["v"]) for row in state]
        assert found.moved == sum(key in before and before[key] != v for key, v in keys)
        again, nothing = changed(state, batch, layout)
        assert (again, nothing.effective, len(nothing.removed_positions)) == (state, 0, 0)


@given(changes=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 9)), unique=True), data=st.data())
def test_order_does_not_matter_if_all_values_differ(changes: list[tuple[int, int]], data: st.DataObject) -> None:
    rows = [{"id": key, "v": f"{time}", "w": None, "lsn": time, "op": "u"} for key, time in changes]
    state: list[Row] = []
    for row in data.draw(st.permutations(rows)):
        state, _ = changed(state, [row], LAYOUT)
    assert as_tuples(state) == (as_tuples(changed([], rows, LAYOUT)[0]) if rows else [])

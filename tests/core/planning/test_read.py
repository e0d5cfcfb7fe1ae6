"""Reading with a filter as text gives the rows that a plain Python function says, and reads no more than needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.expressions.generated import SCHEMA, Generated, Row, conditions, rows
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.engine.protocol import ReadRequest, RowSelection
from fsspeckit.core.planning.read import plan_read
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

Files = list[tuple[list[Row], int, bool]]
FILES: st.SearchStrategy[Files] = st.lists(st.tuples(rows(), st.integers(1, 5), st.booleans()), min_size=1, max_size=4)


def write_files(folder: Path, files: Files, without: str | None) -> list[Row]:
    """Write files of a dataset, and return their rows; the last file lacks a column."""
    expected = []
    for number, (found, rows_per_group, statistics) in enumerate(files):
        lacking = {without} if without is not None and number == len(files) - 1 > 0 else set()
        table = pa.Table.from_pylist(found, SCHEMA).drop_columns(list(lacking))
        path = folder / f"p={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, row_group_size=rows_per_group, write_statistics=statistics)
        expected += [{**row, **dict.fromkeys(lacking), "p": number % 2, "number": number} for row in found]
    return sorted(expected, key=lambda row: (row["p"], row["number"]))


@given(files=FILES, condition=conditions(), without=st.none() | st.sampled_from(SCHEMA.names), part=st.booleans())
def test_a_filter_keeps_the_rows_that_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory, files: Files, condition: Generated, without: str | None, part: bool
) -> None:
    folder = tmp_path_factory.mktemp("read")
    written = write_files(folder, files, without)
    text = f"({condition.sql}) AND p = 1" if part else condition.sql
    kept = [row for row in written if condition.of(row) is True and (not part or row["p"] == 1)]
    found = PyarrowDatasetIO().read_parquet(str(folder), filters=text)
    names = [*SCHEMA.names, "p"]
    assert sorted(found.column_names) == sorted(names)
    assert str(found.select(names).to_pylist()) == str([{name: row[name] for name in names} for row in kept])
    only = PyarrowDatasetIO().read_parquet(str(folder), filters=text, columns=["p", "s"])
    assert only.to_pylist() == [{"p": row["p"], "s": row["s"]} for row in kept]


def selections(folder: Path, text: str) -> dict[str, RowSelection]:
    place = Place.of(str(folder), None, None)
    _, planned = plan_read(place.storage, place.journal.view(), ReadRequest(filters=text))
    return dict(planned.selections or {})


def groups(folder: Path, text: str) -> dict[str, Any]:
    return {path: (found.row_groups, found.condition is None) for path, found in selections(folder, text).items()}


def test_files_and_row_groups_without_a_match_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"id": range(9), "v": [1, 2, 3] * 3})
    for day in ("mon", "tue"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(table, tmp_path / f"day={day}" / "a.parquet", row_group_size=3)
    mon, tue = "day=mon/a.parquet", "day=tue/a.parquet"
    assert groups(tmp_path, "day = 'tue' AND id >= 6") == {tue: ((2,), True)}
    assert groups(tmp_path, "id >= 6 OR day = 'mon'") == {mon: ((0, 1, 2), True), tue: ((2,), True)}
    assert groups(tmp_path, "id >= 4") == {mon: ((1, 2), False), tue: ((1, 2), False)}
    assert groups(tmp_path, "v + 0 = 2 AND id < 3 AND day = 'mon'") == {mon: ((0,), False)}
    assert groups(tmp_path, "id > 99") == {}


def test_bloom_filters_are_used(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 1000, 500, 2, 999, 501]})
    options: dict[str, Any] = {"bloom_filter_options": {"id": {"ndv": 10}}}
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3, **options)
    assert groups(tmp_path, "id = 501") == {"a.parquet": ((1,), False)}
    assert groups(tmp_path, "id IN (500, 77)") == {"a.parquet": ((0,), False)}

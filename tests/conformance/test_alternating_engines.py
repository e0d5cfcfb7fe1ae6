"""Random merges, deletes, updates and change feeds, each on another engine, against an oracle over dictionaries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from conformance.effort import run_examples
from conformance.test_row_changes import DAYS, SCHEMA, Change, Row, deletes, feeds, in_order, newer, rows, updates
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ENGINES = ("pyarrow", "duckdb", "spark")
STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")
_EXAMPLES = 25
_VALUES = st.none() | st.sampled_from([0.0, 1.0, 2.5])
_FEED_SCHEMA = pa.schema([*SCHEMA, ("op", pa.string())])


class Merge(NamedTuple):
    """The options of a merge."""

    strategy: str
    source: list[Row]
    update_columns: bool
    without_v: bool
    scoped: bool
    conditions: bool

    def call(self, io: Any, path: str) -> Any:
        options: dict[str, Any] = {"update_columns": ["lsn"]} if self.update_columns else {}
        options |= {"schema_mode": "evolve"} if self.without_v else {}
        options |= {"scope": "day = 'a'"} if self.scoped else {}
        if self.conditions and self.strategy != "insert":
            options["update_when"] = "source.lsn > target.id"
        if self.conditions and self.strategy != "update":
            options["insert_when"] = "source.id > 3"
        if self.strategy == "deduplicate":
            options["dedup_order_by"] = ["lsn"]
        table = pa.Table.from_pylist(self.source, SCHEMA)
        table = table.drop_columns("v") if self.without_v else table
        return io.merge(table, path, strategy=self.strategy, key_columns="id", partition_move="move", **options)

    def of(self, found: list[Row], partitioned: bool) -> list[Row]:
        """Return the rows after the merge."""
        left, by_id = [], _newest(self.source) if self.strategy == "deduplicate" else {r["id"]: r for r in self.source}
        for old in found:
            new = by_id.pop(old["id"], None)
            if new is None:
                in_scope = not self.scoped or old["day"] == "a"
                left += [] if self.strategy == "full_merge" and in_scope else [old]
            elif self.strategy == "insert" or not self._updates(new, old):
                left.append(old)
            else:
                left.append(self._replaced(old, new, partitioned))
        added = [] if self.strategy == "update" else [row for row in by_id.values() if self._inserts(row)]
        return left + [row | {"v": None} if self.without_v else row for row in added]

    def _updates(self, new: Row, old: Row) -> bool:
        return not self.conditions or (new["lsn"] is not None and new["lsn"] > old["id"])

    def _inserts(self, new: Row) -> bool:
        return not self.conditions or new["id"] > 3

    def _replaced(self, old: Row, new: Row, partitioned: bool) -> Row:
        """The new row. With partition_move="move", partition columns follow the source."""
        if self.update_columns:
            return old | {"lsn": new["lsn"]} | ({"day": new["day"]} if partitioned else {})
        return new | {"v": old["v"]} if self.without_v else new


def _newest(source: list[Row]) -> dict[int, Row]:
    """The row of each key with the highest number; nulls are lowest, and of equals the last one counts."""
    best: dict[int, Row] = {}
    for row in source:
        known = best.get(row["id"])
        if known is None or not newer(known["lsn"], row["lsn"]):
            best[row["id"]] = row
    return best


def _source_rows(*, unique: bool) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {"id": st.integers(0, 9), "day": st.sampled_from(DAYS), "lsn": st.none() | st.integers(0, 9), "v": _VALUES}
    )
    return st.lists(row, max_size=6, unique_by=(lambda found: found["id"]) if unique else None)


@st.composite
def merges(draw: st.DrawFn) -> Change:
    """A merge with any strategy and options."""
    strategy = draw(st.sampled_from(STRATEGIES))
    source = draw(_source_rows(unique=strategy != "deduplicate"))
    scoped = strategy == "full_merge" and draw(st.booleans())
    source = [row for row in source if not scoped or row["day"] == "a"]
    columns = strategy != "insert" and draw(st.booleans())
    merge = Merge(strategy, source, columns, not columns and draw(st.booleans()), scoped, draw(st.booleans()))
    return Change(merge.call, merge.of, str(merge))


@st.composite
def change_feeds(draw: st.DrawFn) -> Change:
    """A change feed in which a key may occur several times, unless NULL keeps values."""
    operations = st.lists(st.sampled_from("cud"), min_size=6, max_size=6)
    keep_nulls = draw(st.booleans())
    rows = [row | {"lsn": row["lsn"] or 0} for row in draw(_source_rows(unique=keep_nulls))]
    source = [row | {"op": op} for row, op in zip(rows, draw(operations), strict=False)]

    def call(io: Any, path: str) -> Any:
        return io.apply_changes(
            pa.Table.from_pylist(source, _FEED_SCHEMA),
            path,
            key_columns="id",
            sequence_by="lsn",
            delete_when="op = 'd'",
            except_columns="op",
            ignore_null_updates=keep_nulls,
        )

    def of(found: list[Row], _partitioned: bool) -> list[Row]:
        left, by_id = [], _newest(source)
        for old in found:
            new = by_id.pop(old["id"], None)
            if new is None or not newer(new["lsn"], old["lsn"]):
                left.append(old)
            elif new["op"] != "d":
                values = {name: new[name] for name in SCHEMA.names if not (keep_nulls and new[name] is None)}
                left.append(old | values)
        return left + [{name: row[name] for name in SCHEMA.names} for row in by_id.values() if row["op"] != "d"]

    return Change(call, of, f"apply_changes {source} {keep_nulls}")


class Story(NamedTuple):
    """A dataset and changes, each with the engine that makes it and the one that reads after it."""

    found: list[Row]
    steps: list[tuple[Change, str, str]]
    partitioned: bool
    groups: int


def stories() -> st.SearchStrategy[Story]:
    step = st.tuples(
        st.one_of(merges(), change_feeds(), deletes(), updates(), feeds()),
        st.sampled_from(ENGINES),
        st.sampled_from(ENGINES),
    )
    return st.builds(Story, rows(), st.lists(step, min_size=2, max_size=5), st.booleans(), st.integers(1, 3))


@pytest.fixture(scope="module")
def engines() -> dict[str, Any]:
    from fsspeckit.datasets.spark import SparkDatasetIO

    return {"pyarrow": PyarrowDatasetIO(), "duckdb": DuckDBDatasetIO(), "spark": SparkDatasetIO()}


@pytest.mark.spark
def test_engines_take_turns(engines: dict[str, Any], tmp_path: Path) -> None:
    folders = _folders(tmp_path)
    run_examples("engines take turns", _EXAMPLES, stories(), lambda story: _run(story, engines, next(folders)))


def test_two_engines_take_turns(tmp_path: Path) -> None:
    """The same without Spark, where an example costs little."""
    local: dict[str, Any] = {"pyarrow": PyarrowDatasetIO(), "duckdb": DuckDBDatasetIO()}
    local["spark"] = local["duckdb"]
    folders = _folders(tmp_path)
    run_examples("two engines", _EXAMPLES * 4, stories(), lambda story: _run(story, local, next(folders)))


def _folders(base: Path) -> Iterator[str]:
    return (str(base / str(number)) for number in itertools.count())


def _run(story: Story, engines: dict[str, Any], path: str) -> None:
    options = {"partition_by": ["day"]} if story.partitioned else {}
    options |= {"row_group_size": story.groups, "max_rows_per_file": 5}
    engines["pyarrow"].write_dataset(pa.Table.from_pylist(story.found, SCHEMA), path, **options)
    found = story.found
    for change, writer, reader in story.steps:
        expected = change.of(found, story.partitioned)
        result = change.call(engines[writer], path)
        assert result.total == len(expected) == len(found) + result.inserted - result.deleted, change
        found = expected
        if not found:
            return
        assert in_order(engines[reader].read_parquet(path).to_pylist()) == in_order(found), change

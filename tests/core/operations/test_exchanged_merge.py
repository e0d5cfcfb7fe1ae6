"""A merge whose rows workers decide about gives the same files, counts, plans and errors as one in memory."""

from __future__ import annotations

import os
import random
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.operations.routes import ExchangingEngine, exchanging, in_memory, many_pieces
from fsspeckit.common.errors import DamagedFileError, KeyColumnError
from fsspeckit.core.kernels.exchange import route_rows
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.storage import resolve
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

KEYS: dict[str, tuple[Any, Any]] = {
    "int": (pa.int32(), lambda n: n),
    "text": (pa.string(), lambda n: "k" * (n % 5) + str(n)),
    "float": (pa.float64(), lambda n: [float("nan"), -0.0, 0.5][n] if n < 3 else n / 4),
    "decimal": (pa.decimal128(20, 2), lambda n: Decimal(n) / 4),
    "time": (pa.timestamp("us", "UTC"), lambda n: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n)),
    "codes": (pa.dictionary(pa.int8(), pa.string()), lambda n: f"c{n}"),
}


FAILS = "10 / (v - 1) > 0"
"""A condition that cannot be computed for some rows."""


@pytest.fixture
def io(tmp_path: Path) -> PyarrowDatasetIO:
    """An engine that exchanges the rows of every source."""
    return exchanging(tmp_path / "scratch")


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    many_pieces(monkeypatch)


@dataclass
class Example:
    """A random merge."""

    seed: int
    feed: bool = False
    space: int = 40

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.kind = self.random.choice(list(KEYS))
        self.layout = self.random.choice(["flat", "flat", "folders", "two columns", "in key", "loose files"])
        self.keys = ["id", "p"] if self.layout == "in key" else ["id"]
        self.nulls = self.random.random() < 0.2
        self.extra = self.random.random() < 0.2
        self.own = 0.5 if self.layout == "in key" else self.random.choice([0.95, 0.95, 0.3])
        """The share of rows that are in the same partition in source and target."""
        self.values = self.random.choice([("x", "y", None), ("a/b=ü %", "01", None)])

    def rows(self, count: int, *, repeated: bool = False, extra: bool = False) -> pa.Table:
        draw = self.random
        numbers = [draw.randrange(self.space) for _ in range(count)] if repeated else draw.sample(range(60), count)
        type_, value = KEYS[self.kind]
        keys = [None if self.nulls and number == 7 else value(number) for number in numbers]
        columns: dict[str, Any] = {"id": pa.array(keys, type_)}
        if self.layout != "flat":
            columns["p"] = [self.values[n % 3] if draw.random() < self.own else "w" for n in numbers]
        if self.layout == "two columns":
            days = [(1, 20, None)[n % 3] if draw.random() < 0.95 else 3 for n in numbers]
            columns["q"] = pa.array(days, pa.int32())
        columns["v"] = pa.array([draw.randrange(3) for _ in numbers], pa.int32())
        return pa.table(columns | ({"w": [float(n) for n in numbers]} if extra else {}))

    def options(self) -> dict[str, Any]:
        draw = self.random
        self.repeated = draw.random() < 0.4
        found: dict[str, Any] = {
            "strategy": draw.choice(["upsert", "insert", "update", "full_merge", "deduplicate"]),
            "key_columns": self.keys,
        }
        if found["strategy"] == "deduplicate":
            found["dedup_order_by"] = draw.choice([[], ["v"], ["-v"]])
        if self.repeated:
            found["on_duplicate_source"] = draw.choice(["error", "first", "last"])
        if draw.random() < 0.3:
            found["max_rows_per_file"] = draw.choice([1, 3, 5])
        if self.nulls or "p" in self.keys:
            found["null_keys"] = draw.choice(["match", "match", "error"])
        if self.extra:
            found["schema_mode"] = "evolve"
        elif draw.random() < 0.3 and found["strategy"] not in ("insert", "deduplicate"):
            found["update_columns"] = ["v"]
        if draw.random() < 0.5 and self.layout in ("folders", "two columns", "loose files"):
            found["partition_move"] = draw.choice(["unchecked", "move", "move", "move"])
        elif self.own < 0.5 and "p" not in self.keys:
            found["partition_move"] = "move"
        found |= self.conditions(found["strategy"])
        if found["strategy"] == "full_merge" and draw.random() < 0.6:
            found["scope"] = draw.choice(self.scopes(found))
        return found

    @property
    def partition_by(self) -> list[str] | None:
        return {"flat": None, "two columns": ["p", "q"]}.get(self.layout, ["p"])

    def scopes(self, options: dict[str, Any]) -> list[str]:
        """Conditions that hold for all source rows or not, and for all, some or no rows of the files."""
        found = ["v < 3", "v >= 0 AND v < 5", "true", "v <> 1", "v = 2 OR v IS NULL", "10 / (v + 1) > 0"]
        found.append("10 / (v - 1) > 0")
        if self.kind == "int":
            found += ["id < 30", "id >= 0", "id BETWEEN 0 AND 100"]
        if self.layout != "flat":
            found += ["p = 'x'", "p IS NULL OR p <> 'q'", "p IN ('x', 'y', 'w') OR p IS NULL", "v < 2 OR p = 'w'"]
        return found

    def conditions(self, strategy: str) -> dict[str, Any]:
        draw, found = self.random, {}
        if draw.random() < 0.4:
            return found
        if strategy != "insert":
            found["delete_when"] = draw.choice(
                [*[None] * 6, *["v = 2", "v = 2 OR v IS NULL", "p IS NULL", "true"] * 2, FAILS]
            )
            found["newer_by"] = draw.choice([None, None, "v"])
            conditions = ["source.v <> target.v", "target.v = 1 AND source.v > 0", "source.v > 0"]
            fails = [FAILS.replace("v", "source.v"), FAILS.replace("v", "target.v")]
            found["update_when"] = draw.choice([*[None] * 4, *conditions * 2, *fails])
        if strategy != "update":
            found["insert_when"] = draw.choice([*[None] * 6, *["source.v > 0"] * 3, FAILS.replace("v", "source.v")])
        if self.layout == "flat" and found.get("delete_when") == "p IS NULL":
            found["delete_when"] = None
        elif self.layout != "flat" and draw.random() < 0.2 and "update_when" in found:
            found["update_when"] = "target.p = 'x' OR source.p IS DISTINCT FROM 'y'"
        return found

    def write_target(self, path: str) -> bool:
        rows = self.rows(self.random.randrange(31), extra=self.feed)
        if not rows.num_rows:
            return False
        if self.layout == "loose files":  # a file outside the folders has the values in its rows
            os.makedirs(f"{path}/p=x")
            pq.write_table(rows, f"{path}/loose.parquet", row_group_size=4)
            mine = self.rows(5, extra=self.feed).drop_columns(["p"])
            pq.write_table(mine.append_column("p", pa.array(["x"] * 5)), f"{path}/p=x/own.parquet", row_group_size=2)
            return True
        PyarrowDatasetIO().write_dataset(
            rows,
            path,
            partition_by=self.partition_by,
            max_rows_per_file=self.random.choice([4, 10, 100]),
            row_group_size=4,
        )
        return True


def _outcome(io: PyarrowDatasetIO, source: pa.Table, path: str, options: dict[str, Any]) -> Any:
    """Counts, the plan, and the rows of every file; or the error. Names of new files are random."""
    try:
        plan = io.merge(source, path, dry_run=True, **options)
        result = io.merge(source, path, **options)
    except ValueError as error:
        return type(error), str(error).replace(path, "")
    files = list(Path(path).rglob("*.parquet")) if os.path.exists(path) else []
    rows = sorted(
        (str(file.parent.relative_to(path)), str(pq.read_table(file, partitioning=None).to_pylist())) for file in files
    )
    entries = sorted(
        (e.action, os.path.dirname(e.path), e.rows, e.updated, e.deleted, _why(e.reason)) for e in plan.entries
    )
    counts = [(each.stale, each.moved, each.unchanged, each.deleted) for each in (plan, result)]
    return result.stats(), counts, plan.digest, entries, rows


def _why(reason: str) -> str:
    """A reason without the step that excluded a file: an exchange prunes with ranges of keys and not with all keys."""
    return "searched" if reason in ("partition", "statistics", "key scan", "empty") else reason


def check_merge(tmp_path: Path, io: PyarrowDatasetIO, seed: int) -> Any:
    """Compare a random merge by an exchange with one in memory, and return its outcome."""
    example = Example(seed)
    one, two = str(tmp_path / f"{seed}-one"), str(tmp_path / f"{seed}-two")
    options = example.options()
    if example.write_target(one):
        shutil.copytree(one, two)
    else:
        options["partition_by"] = example.partition_by
    source = example.rows(example.random.randrange(1, 40), repeated=example.repeated, extra=example.extra)
    ordered = example.random.random() < 0.8
    io.engine = ExchangingEngine(tmp_path / "scratch", ordered=ordered)
    expected = _outcome(in_memory(ordered=ordered), source, one, options)
    assert _outcome(io, source, two, options) == expected, f"seed {seed}: {example}, {options}, ordered={ordered}"
    return expected


@pytest.mark.parametrize("group", range(4))
def test_an_exchange_changes_nothing(tmp_path: Path, io: PyarrowDatasetIO, group: int) -> None:
    count = sweep_size().size(ci=25, full=1000)
    for seed in range(group * count, (group + 1) * count):
        check_merge(tmp_path, io, seed)


@pytest.mark.parametrize(
    "conditions",
    [
        {"update_when": "source.v > 105"},  # no column of the target is read
        {"update_when": "false"},
        {"update_when": "100 / (target.v - 12) > 0", "delete_when": "v = 112"},  # not computed for a deleted row
        {"update_when": "100 / (source.v - 112) > 0", "delete_when": "v = 112"},
    ],
)
def test_conditions_decide_about_the_same_rows(
    tmp_path: Path, io: PyarrowDatasetIO, conditions: dict[str, Any]
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    PyarrowDatasetIO().write_dataset(pa.table({"id": range(20), "v": range(20)}), one, max_rows_per_file=7)
    shutil.copytree(one, two)
    source = pa.table({"id": range(2, 30), "v": range(102, 130)})
    options = {"strategy": "upsert", "key_columns": "id", **conditions}
    expected = _outcome(PyarrowDatasetIO(), source, one, options)
    assert isinstance(expected[0], dict)
    assert _outcome(io, source, two, options) == expected


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("strategy", ["deduplicate", "upsert"])
@pytest.mark.parametrize("order_by", [[], ["-v"]])
@pytest.mark.parametrize("duplicates", ["error", "first", "last"])
def test_both_routes_need_an_order_only_where_it_decides(
    tmp_path: Path, io: PyarrowDatasetIO, ordered: bool, strategy: str, order_by: list[str], duplicates: str
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "v": [0, 0]}), one)
    shutil.copytree(one, two)
    options: dict[str, Any] = {"strategy": strategy, "key_columns": "id", "on_duplicate_source": duplicates}
    if strategy == "deduplicate":
        options["dedup_order_by"] = order_by
    source = pa.table({"id": [1, 3, 1, 3], "v": [5, 6, 4, 9]})
    io.engine = ExchangingEngine(tmp_path / "scratch", ordered=ordered)
    expected = _outcome(in_memory(ordered=ordered), source, one, options)
    assert _outcome(io, source, two, options) == expected
    keeps_arbitrary = not order_by if strategy == "deduplicate" else duplicates != "error"
    has_no_order = not ordered and keeps_arbitrary
    assert ("no order" in str(expected)) == has_no_order
    assert isinstance(expected[0], dict) != (has_no_order or (strategy, duplicates) == ("upsert", "error"))


@pytest.mark.parametrize(("matched", "fits"), [(1, False), (9, True)])
def test_only_sequences_of_matched_rows_are_compared(
    tmp_path: Path, io: PyarrowDatasetIO, matched: int, fits: bool
) -> None:
    """A sequence is compared in the type of the dataset, and that of a row without a match need not fit."""
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    rows = pa.table({"id": [1, 2], "v": [1, 2], "at": pa.array([1, 2], pa.timestamp("us"))})
    PyarrowDatasetIO().write_dataset(rows, one)
    shutil.copytree(one, two)
    late = pa.array([10**18, 1000], pa.int64()).cast(pa.timestamp("s"))
    source = pa.table({"id": [matched, 2], "v": [8, 9], "at": late})
    options: dict[str, Any] = {
        "strategy": "update",
        "key_columns": "id",
        "update_columns": ["v"],
        "newer_by": "at",
    }
    expected = _outcome(PyarrowDatasetIO(), source, one, options)
    assert _outcome(io, source, two, options) == expected
    assert isinstance(expected[0], dict) == fits


@pytest.mark.parametrize("fault", ["moves", "null", "duplicates", "folder"])
@pytest.mark.parametrize("condition", ["update_when", "insert_when", "scope", "delete_when"])
def test_a_condition_that_fails_is_the_last_error(
    tmp_path: Path, io: PyarrowDatasetIO, fault: str, condition: str
) -> None:
    """Both routes name the same of two faults: a condition is the last one, if it is not needed to read the source."""
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    ids = pa.array([1, 2, 3, None if fault == "null" else 4])
    rows = pa.table({"id": ids, "p": ["x", "y", "x", "y"], "v": [1, 1, 1, 1]})
    if fault == "folder":
        os.makedirs(f"{one}/p=x")
        os.makedirs(f"{one}/p=y")
        pq.write_table(rows.slice(0, 2), f"{one}/p=x/0.parquet")
        pq.write_table(rows.slice(2, 1), f"{one}/p=y/0.parquet")
    else:
        PyarrowDatasetIO().write_dataset(rows, one, partition_by=["p"])
    shutil.copytree(one, two)
    source = pa.table({"id": [1, 3, 7, 8], "p": ["x", "x", "x", "x"], "v": [1, 1, 1, 2]})
    if fault == "moves":
        source = source.set_column(1, "p", [["x", "y", "x", "x"]])
    elif fault == "duplicates":
        source = pa.concat_tables([source, source.slice(0, 1)])
    prefix = {"update_when": "target.", "insert_when": "source."}.get(condition, "")
    options = {"key_columns": "id", condition: FAILS.replace("v", f"{prefix}v")}
    options["strategy"] = "full_merge" if condition == "scope" else "upsert"
    expected = _outcome(PyarrowDatasetIO(), source, one, options)
    assert _outcome(io, source, two, options) == expected
    assert (condition in expected[1]) == (condition == "delete_when")


@pytest.mark.parametrize("move", ["error", "move"])
def test_conditions_are_not_computed_for_a_key_of_another_partition_that_stays(
    tmp_path: Path, io: PyarrowDatasetIO, move: str
) -> None:
    path = str(tmp_path / "d")
    rows = pa.table({"id": [1, 1, 2], "p": ["x", "y", "x"], "v": [5, 0, 5]})
    PyarrowDatasetIO().write_dataset(rows, path, partition_by=["p"])
    source = pa.table({"id": [1], "p": ["x"], "v": [7]})
    options = {} if move == "error" else {"partition_move": move}
    result = io.merge(source, path, strategy="upsert", key_columns="id", update_when="10 / target.v > 0", **options)
    assert (result.updated, result.moved) == (1, 0)
    assert sorted(io.read_parquet(path)["v"].to_pylist()) == [0, 5, 7]


@pytest.mark.parametrize("values", [["many"], [2**40]])
def test_a_column_that_is_not_written_may_have_any_type(tmp_path: Path, io: PyarrowDatasetIO, values: Any) -> None:
    rows = pa.table({"id": [1, 2], "v": [1, 2], "n": pa.array([5, 6], pa.int32())})
    source = pa.table({"id": [1], "v": [9], "n": values})
    for each in (PyarrowDatasetIO(), io):
        path = str(tmp_path / type(each.engine).__name__)
        each.write_dataset(rows, path)
        each.merge(source, path, strategy="update", key_columns="id", update_columns=["v"])
        assert each.read_parquet(path).equals(rows.set_column(1, "v", [[9, 2]]))


def test_a_plan_in_memory_is_applied_by_an_exchange(tmp_path: Path, io: PyarrowDatasetIO) -> None:
    path = str(tmp_path / "d")
    PyarrowDatasetIO().write_dataset(pa.table({"id": range(20), "v": range(20)}), path, max_rows_per_file=5)
    source = pa.table({"id": [3, 4, 17, 30], "v": [0, 4, 0, 0]})
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": "id"}
    plan = PyarrowDatasetIO().merge(source, path, dry_run=True, **call)
    assert io.merge(source, path, dry_run=True, **call).digest == plan.digest
    assert io.merge(source.slice(1), path, dry_run=True, **call).digest != plan.digest


def test_a_row_group_reads_only_the_runs_with_its_rows(tmp_path: Path) -> None:
    storage, folder = resolve(str(tmp_path))
    table = pa.table({"id": range(100)})
    tables, reads = TableFolder(storage, folder), list[TablePlace]()
    with tables.writer() as writer:
        runs = [(writer.add(table.slice(start, 10)), 10) for start in range(0, 100, 10)]
    rows = route_rows.RoutedRows(tables, table.schema, runs, table["id"].to_numpy()[::-1].copy())
    read = rows._read
    rows._read = lambda number, names: reads.append(number) or read(number, names)  # type: ignore
    assert rows.take(range(5, 25), table.schema)["id"].to_pylist() == list(range(94, 74, -1))
    assert reads == [7, 8, 9]


def test_tables_are_read_from_any_storage() -> None:
    storage, folder = resolve("memory://exchanged-tables")
    storage.make_dirs(folder)
    tables = TableFolder(storage, folder)
    with tables.writer() as writer:
        places = [writer.add(pa.table({"id": range(count)})) for count in (3, 0, 5)]
    assert [tables.read(place).num_rows for place in places] == [3, 0, 5]


def test_rows_that_are_lost_on_the_way_are_an_error(tmp_path: Path, io: PyarrowDatasetIO, monkeypatch: Any) -> None:
    path = str(tmp_path / "d")
    rows = pa.table({"id": range(20), "v": range(20)})
    PyarrowDatasetIO().write_dataset(rows, path)
    decisions = route_rows.RouteRows._decisions
    monkeypatch.setattr(
        route_rows.RouteRows, "_decisions", lambda self, *item: tuple(v[:-1] for v in decisions(self, *item))
    )
    with pytest.raises(DamagedFileError, match="are not those of the plan"):
        io.merge(pa.table({"id": range(20), "v": [7] * 20}), path, strategy="upsert", key_columns="id")
    assert io.read_parquet(path).equals(rows)


def test_positions_that_are_lost_on_the_way_are_an_error(
    tmp_path: Path, io: PyarrowDatasetIO, monkeypatch: Any
) -> None:
    path = str(tmp_path / "d")
    rows = pa.table({"id": range(20), "v": range(20)})
    PyarrowDatasetIO().write_dataset(rows, path)
    drops = route_rows.RouteRows._positions
    monkeypatch.setattr(
        route_rows.RouteRows, "_positions", lambda self, decisions, kind: drops(self, decisions.slice(1), kind)
    )
    with pytest.raises(DamagedFileError, match="are not those of the plan"):
        io.merge(pa.table({"id": range(9), "v": [7] * 9}), path, key_columns="id", delete_when="v = 7")
    assert io.read_parquet(path).equals(rows)


@pytest.mark.parametrize("conditions", [{}, {"update_when": "source.v <> 13"}, {"delete_when": "v = 11"}])
@pytest.mark.parametrize("partition_by", [None, ["p"]])
def test_rows_outside_the_scope_stay_or_are_updated(
    tmp_path: Path, io: PyarrowDatasetIO, partition_by: list[str] | None, conditions: dict[str, Any]
) -> None:
    """Target rows outside the scope are not deleted; those with keys of the source are updated, as all others."""
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    rows = pa.table({"id": range(30), "p": [n // 10 for n in range(30)], "v": range(30)})
    PyarrowDatasetIO().write_dataset(rows, one, partition_by=partition_by, max_rows_per_file=7, row_group_size=3)
    shutil.copytree(one, two)
    source = pa.table({"id": [3, 11, 13, 14, 25, 40], "p": [0, 1, 1, 1, 2, 1], "v": [11, 11, 13, 12, 15, 10]})
    options: dict[str, Any] = {"strategy": "full_merge", "key_columns": "id", "scope": "v BETWEEN 10 AND 19"}
    expected = _outcome(PyarrowDatasetIO(), source, one, options | conditions)
    assert expected[0]["deleted"] >= 7
    assert _outcome(io, source, two, options | conditions) == expected


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("keeps", ["update_columns", "evolve"])
def test_rows_that_move_and_keep_values_are_divided_into_files(
    tmp_path: Path, io: PyarrowDatasetIO, keeps: str, most: int
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    rows = pa.table({"id": range(40), "p": [n % 4 for n in range(40)], "v": range(40), "w": range(40)})
    PyarrowDatasetIO().write_dataset(rows, one, partition_by=["p"], max_rows_per_file=6)
    shutil.copytree(one, two)
    draw = random.Random(most)
    numbers = draw.sample(range(45), 36)
    source = pa.table({"id": numbers, "p": [draw.choice([1, 9]) for _ in numbers], "v": [100 + n for n in numbers]})
    options: dict[str, Any] = {"strategy": "upsert", "key_columns": "id", "partition_move": "move"}
    if keeps == "evolve":
        options["schema_mode"] = "evolve"
    else:
        source = source.append_column("w", pa.array(range(36)))
        options["update_columns"] = ["v"]
    options["max_rows_per_file"] = most
    expected = _outcome(PyarrowDatasetIO(), source, one, options)
    assert _outcome(io, source, two, options) == expected
    (_, moved, _, _), _ = expected[1]
    assert moved > 20


@pytest.mark.parametrize("strategy", ["upsert", "full_merge"])
@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_the_partition_of_a_discarded_row_is_not_compared_with_folders(
    tmp_path: Path, io: PyarrowDatasetIO, strategy: str, duplicates: str
) -> None:
    """The folder `p=01` and the number 1 are two values, which is an error only for rows that are written."""
    path = tmp_path / "d"
    for name, key in (("01", 1), ("x", 2)):
        (path / f"p={name}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [key], "v": [0]}), path / f"p={name}" / "a.parquet")
    shutil.copytree(path, tmp_path / "e")
    source = pa.table({"id": [7, 7], "p": [1, 5], "v": [1, 1]})
    call: dict[str, Any] = {"strategy": strategy, "key_columns": "id", "on_duplicate_source": duplicates}
    expected = _outcome(PyarrowDatasetIO(), source, str(path), call)
    assert _outcome(io, source, str(tmp_path / "e"), call) == expected
    assert isinstance(expected[0], dict) == (duplicates == "last")


@pytest.mark.parametrize("types", [("float", "double"), ("double", "float"), ("float", "float")])
@pytest.mark.parametrize("move", ["check", "move", "unchecked"])
def test_partition_values_in_rows_are_compared_in_the_wider_type(
    tmp_path: Path, io: PyarrowDatasetIO, types: tuple[str, str], move: str
) -> None:
    """0.1 of 32 bits and of 64 bits have one text and are two values."""
    stored, given = ({"float": pa.float32(), "double": pa.float64()}[name] for name in types)
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "p=0.5").mkdir(parents=True)
    rows = pa.table({"id": [1, 2, 3], "p": pa.array([0.1, 0.5, float("nan")], stored), "v": [0, 0, 0]})
    pq.write_table(rows, one / "loose.parquet")
    pq.write_table(pa.table({"id": [4], "p": pa.array([0.5], stored), "v": [0]}), one / "p=0.5" / "own.parquet")
    shutil.copytree(one, two)
    source = pa.table({"id": [1, 2, 3, 4], "p": pa.array([0.1, 0.5, float("nan"), 0.5], given), "v": [1, 1, 1, 1]})
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": "id", "partition_move": move}
    expected = _outcome(PyarrowDatasetIO(), source, str(one), call)
    assert _outcome(io, source, str(two), call) == expected


def _feed(example: Example) -> pa.Table:
    """Changes with an operation and a sequence; the image of a deleted row may be empty, other values may be NULL."""
    draw = example.random
    count = draw.choice([1, 5, 40])
    feed = example.rows(count, repeated=draw.random() < 0.6)
    ops = [draw.choice("uuid") for _ in range(count)]
    feed = feed.append_column("op", pa.array(ops))
    for name in {"p", "q"} & set(feed.column_names) - set(example.keys):
        at, type_ = feed.column_names.index(name), feed.schema.field(name).type
        image = [None if op == "d" else value for op, value in zip(ops, feed[name].to_pylist(), strict=True)]
        feed = feed.set_column(at, name, pa.array(image, type_))
    values = [draw.choice([None, 1, 2]) for _ in range(count)]
    feed = feed.append_column("w", pa.array(values, pa.float64()))
    return feed.set_column(feed.column_names.index("v"), "v", pa.array(draw.sample(range(50), count), pa.int32()))


def _applied(io: PyarrowDatasetIO, feed: pa.Table, path: str, options: dict[str, Any]) -> Any:
    """Counts, the plan, and all rows; or the error."""
    try:
        plan = io.apply_changes(feed, path, except_columns=["op"], dry_run=True, **options)
        result = io.apply_changes(feed, path, except_columns=["op"], **options)
    except ValueError as error:
        return type(error), str(error).replace(path, "")
    rows = sorted(map(str, io.read_parquet(path).to_pylist())) if os.path.exists(path) else []
    entries = sorted((e.action, os.path.dirname(e.path), e.rows, e.updated, e.deleted) for e in plan.entries)
    counts = [(each.stale, each.moved, each.unchanged, each.deleted) for each in (plan, result)]
    return result.stats(), counts, plan.digest, entries, rows


def check_feed(tmp_path: Path, io: PyarrowDatasetIO, seed: int) -> Any:
    """Compare a random feed that is applied by an exchange with one in memory, and return its outcome."""
    example = Example(seed, feed=True)
    example.nulls = False
    draw = example.random
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    options: dict[str, Any] = {"key_columns": example.keys, "sequence_by": "v"}
    if draw.random() < 0.8:
        options["delete_when"] = "op = 'd'"
    options["ignore_null_updates"] = draw.random() < 0.5
    if example.write_target(one):
        shutil.copytree(one, two)
    else:
        options["partition_by"] = example.partition_by
    feed = _feed(example)
    expected = _applied(PyarrowDatasetIO(), feed, one, options)
    assert _applied(io, feed, two, options) == expected, f"seed {seed}: {example}, {options}"
    return expected


@pytest.mark.parametrize("group", range(2))
def test_a_feed_is_applied_by_an_exchange_as_in_memory(tmp_path: Path, io: PyarrowDatasetIO, group: int) -> None:
    count = sweep_size().size(ci=20, full=1000)
    for seed in range(group * count, (group + 1) * count):
        (tmp_path / str(seed)).mkdir()
        check_feed(tmp_path / str(seed), io, seed)


def check_history(tmp_path: Path, io: PyarrowDatasetIO, seed: int) -> Any:
    """Compare a random history that an exchange changes with one in memory, and return its outcome."""
    example = Example(seed, feed=True, space=6 if seed % 2 else 40)
    example.nulls = example.nulls and seed % 7 == 0
    example.layout = {"loose files": "folders"}.get(example.layout, example.layout)
    draw = example.random
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    options: dict[str, Any] = {"key_columns": example.keys, "sequence_by": "v", "scd_type": 2}
    if draw.random() < 0.8:
        options["delete_when"] = "op = 'd'"
    options["ignore_null_updates"] = draw.random() < 0.4
    options["partition_by"] = example.partition_by
    if example.layout == "folders" and draw.random() < 0.3:
        options["partition_by"] = ["is_current"]
    for _ in range(draw.randrange(3)):
        with suppress(KeyColumnError):
            PyarrowDatasetIO().apply_changes(_feed(example), one, except_columns=["op"], **options)
    if os.path.exists(one):
        shutil.copytree(one, two)
    feed = _feed(example)
    expected = _applied(PyarrowDatasetIO(), feed, one, options)
    assert _applied(io, feed, two, options) == expected, f"seed {seed}: {example}, {options}"
    return expected


@pytest.mark.parametrize("group", range(2))
def test_a_history_is_changed_by_an_exchange_as_in_memory(tmp_path: Path, io: PyarrowDatasetIO, group: int) -> None:
    count = sweep_size().size(ci=20, full=1000)
    for seed in range(group * count, (group + 1) * count):
        (tmp_path / str(seed)).mkdir()
        check_history(tmp_path / str(seed), io, seed)


@pytest.mark.parametrize("partition_by", [None, ["p"], ["is_current"]])
def test_a_history_of_several_files_is_changed_by_an_exchange(
    tmp_path: Path, io: PyarrowDatasetIO, partition_by: list[str] | None
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    options: dict[str, Any] = {"key_columns": "id", "sequence_by": "v", "scd_type": 2, "partition_by": partition_by}

    def changes(numbers: Any, sequence: int, value: str) -> pa.Table:
        ids = list(numbers)
        values = {"w": [value] * len(ids), "op": ["d" if n % 7 == 3 else "u" for n in ids]}
        return pa.table({"id": ids, "p": [n % 2 for n in ids], "v": [sequence] * len(ids), **values})

    for first in range(3):
        PyarrowDatasetIO().apply_changes(changes(range(first, 60, 3), 10, "a").drop_columns(["op"]), one, **options)
    shutil.copytree(one, two)
    gone, early = changes(range(3, 60, 7), 10, ""), changes(range(40), 5, "early")
    feed = pa.concat_tables([changes(range(1, 70, 2), 20, "b"), early, gone])
    options["delete_when"] = "op = 'd'"
    expected = _applied(PyarrowDatasetIO(), feed, one, options)
    assert min(expected[0].values()) > 0
    assert _applied(io, feed, two, options) == expected


def check_write(tmp_path: Path, io: PyarrowDatasetIO, seed: int) -> Any:
    """Compare a random write by an exchange with one in memory, and return its outcome."""
    example = Example(seed)
    draw = example.random
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    options: dict[str, Any] = {"mode": draw.choice(["append", "overwrite", "overwrite_partitions"])}
    options["max_rows_per_file"] = draw.choice([1, 3, 7, 100])
    if not example.write_target(one) or draw.random() < 0.1:
        options["partition_by"] = example.partition_by
    if os.path.exists(one):
        shutil.copytree(one, two)
    if options["mode"] == "overwrite" and draw.random() < 0.4:
        options["replace_where"] = draw.choice(["v < 3", "v < 2", "v IS NOT NULL"])
    if draw.random() < 0.2:
        options["basename_template"] = f"{seed}-{{i}}.parquet"
    source = example.rows(draw.randrange(1, 40), repeated=True)
    if draw.random() < 0.3:
        source = source.set_column(
            source.column_names.index("v"), "v", source["v"].cast(draw.choice([pa.int16(), pa.int64()]))
        )
    found = []
    for each, path in ((PyarrowDatasetIO(), one), (io, two)):
        try:
            result = each.write_dataset(source, path, **options)
        except ValueError as error:
            found.append((type(error), str(error).replace(path, "")))
            continue
        files = sorted(
            (os.path.dirname(str(file.relative_to(path))), str(pq.read_table(file, partitioning=None)))
            for file in Path(path).rglob("*.parquet")
        )
        found.append((result.rows, len(result.files), len(result.deleted_files), result.replaced, files))
    assert found[0] == found[1], f"seed {seed}: {example}, {options}"
    return found[0]


@pytest.mark.parametrize("group", range(2))
def test_a_write_by_an_exchange_writes_the_same_files(tmp_path: Path, io: PyarrowDatasetIO, group: int) -> None:
    count = sweep_size().size(ci=20, full=1000)
    for seed in range(group * count, (group + 1) * count):
        (tmp_path / str(seed)).mkdir()
        check_write(tmp_path / str(seed), io, seed)


def test_many_rows_of_one_key_are_counted(tmp_path: Path, io: PyarrowDatasetIO) -> None:
    source = pa.table({"id": [1, *[5] * 300, 2, 2], "v": range(303)})
    with pytest.raises(
        KeyColumnError, match=re.escape("has 2 duplicate key(s) for ['id']: 5 (300 times), 2 (2 times)")
    ):
        io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns="id")
    io.merge(source, str(tmp_path / "d"), strategy="deduplicate", key_columns="id", dedup_order_by=["-v"])
    assert io.read_parquet(str(tmp_path / "d")).to_pylist() == [
        {"id": 1, "v": 0},
        {"id": 5, "v": 1},
        {"id": 2, "v": 301},
    ]

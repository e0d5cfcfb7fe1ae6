"""A merge whose rows workers decide about gives the same files, counts, plans and errors as one in memory."""

from __future__ import annotations

import os
import random
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

from fsspeckit.common.errors import DamagedFileError, KeyColumnError
from fsspeckit.core.kernels.exchange import route_rows
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from routes import ExchangingEngine, exchanging, in_memory, many_pieces
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


def test_a_plan_in_memory_is_applied_by_an_exchange(tmp_path: Path, io: PyarrowDatasetIO) -> None:
    path = str(tmp_path / "d")
    PyarrowDatasetIO().write_dataset(pa.table({"id": range(20), "v": range(20)}), path, max_rows_per_file=5)
    source = pa.table({"id": [3, 4, 17, 30], "v": [0, 4, 0, 0]})
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": "id"}
    plan = PyarrowDatasetIO().merge(source, path, dry_run=True, **call)
    assert io.merge(source, path, dry_run=True, **call).digest == plan.digest
    assert io.merge(source.slice(1), path, dry_run=True, **call).digest != plan.digest


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

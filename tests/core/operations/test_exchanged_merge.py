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
from fsspeckit.core.kernels.exchange.route_rows import RouteRows
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import by_exchange, few_rows_are_many
from sweeps import sweep_size

KEYS: dict[str, tuple[Any, Any]] = {
    "int": (pa.int32(), lambda n: n),
    "text": (pa.string(), lambda n: "k" * (n % 5) + str(n)),
    "float": (pa.float64(), lambda n: [float("nan"), -0.0, 0.5][n] if n < 3 else n / 4),
    "decimal": (pa.decimal128(20, 2), lambda n: Decimal(n) / 4),
    "time": (pa.timestamp("us", "UTC"), lambda n: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n)),
    "codes": (pa.dictionary(pa.int8(), pa.string()), lambda n: f"c{n}"),
}


_MEASURED = ("seconds", "commit_seconds", "source_route", "share_limit", "settings", "path", "stamp", "size_bytes")
FAILS = "10 / (v - 1) > 0"
"""A condition that cannot be computed for some rows."""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows_are_many(monkeypatch)


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
        most = self.random.choice([4, 10, 100])
        options = {"partition_by": self.partition_by, "max_rows_per_file": most, "row_group_size": 4}
        PyarrowDatasetIO().write_dataset(rows, path, **options)
        return True

    def changes(self) -> pa.Table:
        """Changes with an operation and a sequence; the image of a deleted row may be empty."""
        draw = self.random
        count = draw.choice([1, 5, 40])
        feed = self.rows(count, repeated=draw.random() < 0.6)
        ops = [draw.choice("uuid") for _ in range(count)]
        feed = feed.append_column("op", pa.array(ops))
        for name in {"p", "q"} & set(feed.column_names) - set(self.keys):
            at, type_ = feed.column_names.index(name), feed.schema.field(name).type
            image = [None if op == "d" else value for op, value in zip(ops, feed[name].to_pylist(), strict=True)]
            feed = feed.set_column(at, name, pa.array(image, type_))
        feed = feed.append_column("w", pa.array([draw.choice([None, 1, 2]) for _ in range(count)], pa.float64()))
        return feed.set_column(feed.column_names.index("v"), "v", pa.array(draw.sample(range(50), count), pa.int32()))

    def applied(self, scd_type: int) -> dict[str, Any]:
        """The arguments of an application of changes."""
        found: dict[str, Any] = {"key_columns": self.keys, "sequence_by": "v", "except_columns": ["op"]}
        found |= {"scd_type": scd_type, "ignore_null_updates": self.random.random() < 0.5}
        return found | ({"delete_when": "op = 'd'"} if self.random.random() < 0.8 else {})


Call = tuple[str, pa.Table, dict[str, Any]]
"""A method, its source, and its arguments."""


def merge(seed: int, target: str) -> tuple[Example, Call]:
    example = Example(seed)
    options = example.options()
    if not example.write_target(target):
        options["partition_by"] = example.partition_by
    source = example.rows(example.random.randrange(1, 40), repeated=example.repeated, extra=example.extra)
    return example, ("merge", source, options)


def feed(seed: int, target: str) -> tuple[Example, Call]:
    example = Example(seed, feed=True)
    example.nulls = False
    options = example.applied(1)
    if not example.write_target(target):
        options["partition_by"] = example.partition_by
    return example, ("apply_changes", example.changes(), options)


def history(seed: int, target: str) -> tuple[Example, Call]:
    example = Example(seed, feed=True, space=6 if seed % 2 else 40)
    example.nulls = example.nulls and seed % 7 == 0
    example.layout = {"loose files": "folders"}.get(example.layout, example.layout)
    options = example.applied(2) | {"partition_by": example.partition_by}
    if example.layout == "folders" and example.random.random() < 0.3:
        options["partition_by"] = ["is_current"]
    for _ in range(example.random.randrange(3)):
        with suppress(KeyColumnError):
            PyarrowDatasetIO().apply_changes(example.changes(), target, **options)
    return example, ("apply_changes", example.changes(), options)


def write(seed: int, target: str) -> tuple[Example, Call]:
    example = Example(seed)
    draw = example.random
    options: dict[str, Any] = {"mode": draw.choice(["append", "overwrite", "overwrite_partitions"])}
    options["max_rows_per_file"] = draw.choice([1, 3, 7, 100])
    if not example.write_target(target) or draw.random() < 0.1:
        options["partition_by"] = example.partition_by
    if options["mode"] == "overwrite" and draw.random() < 0.4:
        options["replace_where"] = draw.choice(["v < 3", "v < 2", "v IS NOT NULL"])
    source = example.rows(draw.randrange(1, 40), repeated=True)
    if draw.random() < 0.3:
        at = source.column_names.index("v")
        source = source.set_column(at, "v", source["v"].cast(draw.choice([pa.int16(), pa.int64()])))
    return example, ("write_dataset", source, options)


def outcome(call: Any, io: Any, folder: Path, path: str, *, in_order: bool) -> Any:
    """Run a call on a copy of a dataset: what a caller can see, a dry run and the result, or errors, and the files."""
    if os.path.exists(folder / "target"):
        shutil.copytree(folder / "target", path)
    before = _files(path)
    found: list[Any] = []
    for dry_run in (True, False):
        try:
            result = call(io, path, dry_run=dry_run)
        except Exception as error:  # noqa: BLE001 - the same on each route
            found.append((type(error), str(error).replace(path, "PATH")))
            assert _files(path) == before, "an error changes nothing"
        else:
            found.append(_plain(result.to_dict(), path, set(before)))
    return [*found, _contents(path, in_order=in_order)]


def _files(path: str) -> dict[str, float]:
    files = (file for file in Path(path).rglob("*.parquet") if ".fsspeckit" not in str(file))
    return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in files}


def _contents(path: str, *, in_order: bool) -> list[tuple[str, str]]:
    found = []
    for name in _files(path):
        table = pq.read_table(os.path.join(path, name), partitioning=None)
        rows = [str(row) for row in table.to_pylist()]
        found.append((os.path.dirname(name), f"{table.schema.names} {rows if in_order else sorted(rows)}"))
    return sorted(found)


def _plain(value: Any, path: str, before: set[str]) -> Any:
    """Return a value without what differs from run to run: times, names of new files, and the path of the copy."""
    if isinstance(value, dict):
        shown = {key: _plain(each, path, before) for key, each in value.items() if key not in _MEASURED}
        return shown | ({"reason": _why(shown["reason"])} if "reason" in shown else {})
    if isinstance(value, list | tuple):
        return sorted((_plain(each, path, before) for each in value), key=str)
    if isinstance(value, str) and value.endswith(".parquet"):
        name = os.path.relpath(value, path) if os.path.isabs(value) else value
        return name if name in before else f"{os.path.dirname(name)}/new"
    return value


def _why(reason: str) -> str:
    """A reason without the step that excluded a file: an exchange prunes with ranges of keys and not with all keys."""
    return "searched" if reason in ("partition", "statistics", "key scan", "empty", "bloom") else reason


def same(folder: Path, call: Call, other: Any) -> Any:
    """Compare a call on the engine of this process with another one; the order of a history is not defined."""
    method, source, options = call
    in_order = options.get("scd_type") != 2

    def run(io: Any, path: str, *, dry_run: bool) -> Any:
        return getattr(io, method)(source, path, dry_run=dry_run, **options)

    expected, found = (
        outcome(run, io, folder, f"{folder}/{name}", in_order=in_order)
        for name, io in (("memory", PyarrowDatasetIO()), ("other", other))
    )
    differences = [f"{a}\n  {b}" for a, b in zip(expected, found, strict=True) if a != b]
    assert not differences, "\n  ".join([f"{method} {options}", *differences])
    return found[1]


def check(folder: Path, operation: Any, seed: int, other: Any) -> None:
    folder.mkdir()
    example, call = operation(seed, str(folder / "target"))
    try:
        same(folder, call, other)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {example}, {error}") from error


@pytest.mark.sweep
@pytest.mark.parametrize("operation", [merge, feed, history, write], ids=lambda each: each.__name__)
def test_an_exchange_changes_nothing(tmp_path: Path, operation: Any) -> None:
    other = by_exchange(PyarrowDatasetIO())
    for seed in range(sweep_size().size(ci=60 if operation is merge else 20, full=2000)):
        check(tmp_path / str(seed), operation, seed, other)


@pytest.mark.sweep
def test_a_join_finds_the_rows_that_the_engine_of_this_process_finds(tmp_path: Path) -> None:
    """DuckDB joins very many keys only."""
    for seed in range(sweep_size().size(ci=40, full=1000)):
        check(tmp_path / str(seed), merge, seed, DuckDBDatasetIO())


@pytest.mark.parametrize("most", [1, 3, 7])
def test_rows_that_move_and_keep_values_are_divided_into_files(tmp_path: Path, most: int) -> None:
    draw, target = random.Random(most), str(tmp_path / "target")
    rows = pa.table({"id": range(40), "p": [n % 4 for n in range(40)], "v": range(40), "w": range(40)})
    PyarrowDatasetIO().write_dataset(rows, target, partition_by=["p"], max_rows_per_file=6)
    ids = draw.sample(range(45), 36)
    source = pa.table({"id": ids, "p": [draw.choice([1, 9]) for _ in ids], "v": [100 + n for n in ids], "w": range(36)})
    options = {"key_columns": "id", "partition_move": "move", "update_columns": ["v"], "max_rows_per_file": most}
    assert same(tmp_path, ("merge", source, options), by_exchange(PyarrowDatasetIO()))["moved"] > 20


@pytest.mark.parametrize("partition_by", [None, ["p"], ["is_current"]])
def test_a_history_of_several_files_is_changed_by_an_exchange(tmp_path: Path, partition_by: list[str] | None) -> None:
    options: dict[str, Any] = {"key_columns": "id", "sequence_by": "v", "scd_type": 2, "partition_by": partition_by}

    def changes(ids: list[int], sequence: int, value: str) -> pa.Table:
        values = {"w": [value] * len(ids), "op": ["d" if n % 7 == 3 else "u" for n in ids]}
        return pa.table({"id": ids, "p": [n % 2 for n in ids], "v": [sequence] * len(ids), **values})

    for first in range(3):
        old = changes([*range(first, 60, 3)], 10, "a").drop_columns(["op"])
        PyarrowDatasetIO().apply_changes(old, str(tmp_path / "target"), **options)
    gone, early = changes([*range(3, 60, 7)], 10, ""), changes([*range(40)], 5, "early")
    source = pa.concat_tables([changes([*range(1, 70, 2)], 20, "b"), early, gone])
    call = ("apply_changes", source, options | {"delete_when": "op = 'd'"})
    found = same(tmp_path, call, by_exchange(PyarrowDatasetIO()))
    assert min(found[name] for name in ("inserted", "updated", "deleted")) > 0


@pytest.mark.parametrize("lost", ["rows", "positions"])
def test_what_is_lost_on_the_way_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    io, path, rows = by_exchange(PyarrowDatasetIO()), str(tmp_path / "d"), pa.table({"id": range(20), "v": range(20)})
    PyarrowDatasetIO().write_dataset(rows, path)
    decisions, drops = RouteRows._decisions, RouteRows._positions
    if lost == "rows":
        monkeypatch.setattr(RouteRows, "_decisions", lambda self, *item: tuple(v[:-1] for v in decisions(self, *item)))
    else:
        monkeypatch.setattr(RouteRows, "_positions", lambda self, found, kind: drops(self, found.slice(1), kind))
    with pytest.raises(DamagedFileError, match="are not those of the plan"):
        io.merge(pa.table({"id": range(9), "v": [7] * 9}), path, key_columns="id", delete_when="v = 7 AND id < 5")
    assert io.read_parquet(path).equals(rows)

"""Random calls with several faults at once: of keys, sequences, values, folders, partitions, scopes and conditions."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.operations.routes import Routes
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

FAULTS = (
    "source nulls",
    "target nulls",
    "sequence nulls",
    "sequence type",
    "key type",
    "duplicates",
    "folder values",
    "spelling",
    "moves",
    "values",
    "conditions",
    "source values",
    "target values",
)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TIME, _SECONDS = pa.timestamp("us", "UTC"), pa.timestamp("s", "UTC")
_FAILS = ["10 / ({0}v - 1) > 0", "CAST({0}w AS TINYINT) > -9", "10 / ({0}v - 1) > 0 OR CAST({0}w AS TINYINT) > 0"]
"""Conditions that cannot be computed for some rows, for several reasons."""
_KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "int": (pa.int32(), lambda n: n),
    "text": (pa.string(), lambda n: f"k{n}"),
    "time": (_TIME, lambda n: _START + timedelta(seconds=n)),
    "decimal": (pa.decimal128(9, 2), lambda n: Decimal(n) / 4),
}


@dataclass
class FaultyCall:
    """A random call. Its dataset and its source have faults with some chance."""

    seed: int

    def __post_init__(self) -> None:
        self.random = draw = random.Random(self.seed)
        self.operation = draw.choice(["merge"] * 5 + ["scd1", "scd2", "write"])
        self.kind = draw.choice(list(_KEYS))
        self.layout = draw.choice(["flat", "folders", "folders", "stored", "numbers"])
        if self.operation == "scd2" and self.layout == "stored":
            self.layout = "folders"
        self.keys = ["id", "p"] if self.layout != "flat" and draw.random() < 0.2 else ["id"]
        self.ordered = draw.random() < 0.7
        chance = draw.choice([0.05, 0.15, 0.3])
        self.faults = {name for name in FAULTS if draw.random() < chance}
        if draw.random() < 0.25:  # conditions come last, so some calls have few other faults
            others = draw.choice(["moves", "duplicates", "values"])
            self.faults = {"conditions", "source values", "target values", others}

    def write_target(self, path: str) -> None:
        """Write the dataset, with the faults of datasets."""
        draw = self.random
        rows = self._rows(draw.sample(range(50), draw.choice([1, 8, 30])))
        if draw.random() < 0.05:
            self.faults -= {"key type", "sequence type"}  # times too late for any file fail at different rows of one
            return
        if self.operation == "scd2":
            self._write_history(rows, path)
            return
        if "target values" in self.faults:
            rows = self._changed(rows, "v", [1])
            rows = self._changed(rows, "w", [300.0, -500.0], 0.3)
        if "target nulls" in self.faults:
            rows = self._changed(rows, draw.choice(self.keys), [None])
        for folder, group in self._folders(rows):
            size = draw.choice([2, 9])
            os.makedirs(os.path.join(path, folder), exist_ok=True)
            for number, start in enumerate(range(0, group.num_rows, size)):
                name = os.path.join(path, folder, f"{number}-{size}-{draw.randrange(99)}.parquet")
                pq.write_table(group.slice(start, size), name, row_group_size=3)

    def source(self) -> pa.Table:
        """Return the rows of the call, with the faults of sources."""
        draw, faults = self.random, self.faults
        numbers = draw.sample(range(60), draw.choice([1, 6, 25]))
        if "duplicates" in faults:
            numbers += [draw.choice(numbers) for _ in range(draw.randrange(1, 8))]
            draw.shuffle(numbers)
        rows = self._rows(numbers, moves="moves" in faults)
        if "values" in faults:
            wide = rows.set_column(rows.column_names.index("v"), "v", rows["v"].cast(pa.int64()))
            rows = self._changed(wide, "v", [1 << 40, -(1 << 35), 1 << 33])
        if "key type" in faults and self.kind == "time":
            rows = self._late(rows, "id")
        if "source values" in faults:
            rows = self._changed(rows, "v", [1])
            rows = self._changed(rows, "w", [300.0, -500.0, 400.0], 0.3)
        if "source nulls" in faults:
            rows = self._changed(rows, draw.choice(self.keys), [None])
        if "sequence nulls" in faults:
            rows = self._changed(rows, "at", [None])
        if "sequence type" in faults:
            rows = self._late(rows, "at")
        if self.operation in ("scd1", "scd2"):
            rows = rows.append_column("op", pa.array([draw.choice("uud") for _ in numbers]))
        return rows

    def options(self) -> dict[str, Any]:
        """Return the arguments of the call."""
        if self.operation == "write":
            return self._write_options()
        if self.operation == "merge":
            return self._merge_options() | {"key_columns": self.keys}
        found = {"key_columns": self.keys, "sequence_by": "at", "except_columns": ["op"]}
        if self.random.random() < 0.6:
            found["delete_when"] = self._condition("", ["op = 'd'", "false", "op = 'd' OR v = 3"])
        return found | {"scd_type": int(self.operation[-1]), "ignore_null_updates": self.random.random() < 0.4}

    def run(self, folder: Path) -> Any:
        """Compare the call on all routes, and return its outcome."""
        routes = Routes(folder, ordered=self.ordered, rows_in_order=self.operation != "scd2")
        self.write_target(routes.target)
        options, source = self.options(), self.source()
        if not os.path.exists(routes.target) and self.layout != "flat":
            options["partition_by"] = ["p"]
        method = {"merge": "merge", "write": "write_dataset"}.get(self.operation, "apply_changes")

        def call(io: Any, path: str, *, dry_run: bool) -> Any:
            return getattr(io, method)(source, path, dry_run=dry_run, **options)

        try:
            return routes.outcome(call)
        except AssertionError as error:
            raise AssertionError(f"{self}, {sorted(self.faults)}, {method} {options}\n{error}") from error

    def _rows(self, numbers: list[int], *, moves: bool = False) -> pa.Table:
        draw, (type_, value) = self.random, _KEYS[self.kind]
        columns: dict[str, Any] = {"id": pa.array([value(n) for n in numbers], type_)}
        if self.layout != "flat":
            values = [self._partition(n, moves=moves) for n in numbers]
            columns["p"] = pa.array(values, pa.int64() if self.layout == "numbers" else pa.string())
        columns["v"] = pa.array([draw.choice([0, 2, 3, None]) for _ in numbers], pa.int32())
        columns["w"] = pa.array([draw.choice([0.0, 1.0, None]) for _ in numbers], pa.float64())
        columns["at"] = pa.array([_START + timedelta(seconds=draw.randrange(50)) for _ in numbers], _TIME)
        return pa.table(columns)

    def _partition(self, number: int, *, moves: bool) -> Any:
        value = (number + self.random.randrange(2)) % 3 if moves and self.random.random() < 0.3 else number % 3
        return value if self.layout == "numbers" else "xyz"[value]

    def _changed(self, table: pa.Table, name: str, values: list[Any], share: float = 0.1) -> pa.Table:
        """Return a table with other values in some rows of a column; at least in one."""
        draw, column, type_ = self.random, list(table[name]), table[name].type
        chosen = {draw.randrange(len(column)), *(i for i in range(len(column)) if draw.random() < share)}
        new = [pa.scalar(draw.choice(values), type_) if i in chosen else value for i, value in enumerate(column)]
        return table.set_column(table.column_names.index(name), name, pa.array(new, type_))

    def _late(self, table: pa.Table, name: str) -> pa.Table:
        """Return a table with times in seconds, of which some are too late for microseconds."""
        draw, column = self.random, table[name].cast(_SECONDS).cast(pa.int64()).to_pylist()
        new = [draw.choice([10**17, 10**18]) if draw.random() < 0.1 else value for value in column]
        return table.set_column(table.column_names.index(name), name, pa.array(new, pa.int64()).cast(_SECONDS))

    def _folders(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield folders and their rows: with the partition column in layouts that store it, else without it."""
        draw = self.random
        if self.layout == "flat":
            yield "", rows
            return
        texts = [None if value is None else str(value) for value in rows["p"].to_pylist()]
        for text in sorted(set(texts), key=str):
            group = rows.filter(pa.array([each == text for each in texts]))
            folder = f"p={'__HIVE_DEFAULT_PARTITION__' if text is None else text}"
            if self.layout == "stored":
                if "folder values" in self.faults and draw.random() < 0.6:
                    group = self._changed(group, "p", ["x", "z"])
                yield "" if draw.random() < 0.2 else folder, group
            elif "spelling" in self.faults and self.layout == "numbers" and draw.random() < 0.5:
                yield folder.replace("=", "=0"), group.drop_columns(["p"])
            else:
                yield folder, group.drop_columns(["p"])

    def _write_history(self, rows: pa.Table, path: str) -> None:
        """Write a history; rows with a wrong `is_current` are its fault."""
        PyarrowDatasetIO().apply_changes(
            rows,
            path,
            key_columns=self.keys,
            sequence_by="at",
            scd_type=2,
            partition_by=None if self.layout == "flat" else ["p"],
        )
        for file in sorted(Path(path).rglob("*.parquet")) if "target values" in self.faults else ():
            pq.write_table(self._changed(pq.read_table(file, partitioning=None), "is_current", [False, None]), file)

    def _condition(self, prefix: str, plain: list[str]) -> str:
        """Return a condition, which fails for some rows if that is a fault."""
        fails = "conditions" in self.faults and self.random.random() < 0.7
        return self.random.choice(_FAILS).format(prefix) if fails else self.random.choice(plain)

    def _write_options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"mode": self.random.choice(["append", "overwrite", "overwrite_partitions"])}
        if found["mode"] == "overwrite" and self.random.random() < 0.7:
            found["replace_where"] = self._condition("", ["v < 3 OR v IS NULL", "true", "v IS NULL OR v <> 0"])
        return found

    def _merge_options(self) -> dict[str, Any]:
        draw = self.random
        strategy = draw.choice(["upsert", "insert", "update", "full_merge", "full_merge", "deduplicate"])
        found: dict[str, Any] = {
            "on_duplicate_source": draw.choice(["error", "first", "last"]),
            "null_keys": draw.choice(["error", "error", "match"]),
            "partition_move": draw.choice(["check", "check", "move", "unchecked"]),
            "max_rows_per_file": draw.choice([1, 3, 100, 100]),
        }
        if "sequence type" in self.faults and draw.random() < 0.8:  # the sequence is compared and not written
            strategy, found = "update", found | {"update_columns": ["v"], "newer_by": "at"}
        elif strategy != "insert" and draw.random() < 0.3:
            found["update_columns"] = draw.choice([["v"], ["w"], ["v", "w"]])
        elif draw.random() < 0.2:
            found["schema_mode"] = "evolve"
        if strategy == "deduplicate":
            found["dedup_order_by"] = draw.choice([[], ["v"], ["-v", "w"]])
        return found | self._conditions(strategy) | {"strategy": strategy}

    def _conditions(self, strategy: str) -> dict[str, Any]:
        draw, found = self.random, dict[str, Any]()
        if strategy != "insert":
            if draw.random() < 0.3:
                found["newer_by"] = draw.choice(["at", "at", "v"])
            if draw.random() < 0.3:
                found["delete_when"] = self._condition("", ["v = 2", "true", "v IS NULL", "w = 1"])
            if draw.random() < 0.5:
                plain = ["source.v <> target.v", "target.w IS NULL", "true"]
                found["update_when"] = self._condition(draw.choice(["source.", "target."]), plain)
        if strategy != "update" and draw.random() < 0.4:
            found["insert_when"] = self._condition("source.", ["source.v > 0", "source.w IS NULL"])
        if strategy == "full_merge" and draw.random() < 0.6:
            found["scope"] = self._condition("", ["v < 9 OR v IS NULL", "v IS NULL OR v <> 2", "true", "w IS NULL"])
        return found

"""Random steps of a dataset's life: each is a call of the library as Python text, and a function of the rows.

A value of the text is a value of the call, so a failed story can be printed as a program and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from conformance import history, oracle
from conformance.datatypes import KEY_KINDS, VALUE_KINDS
from conformance.oracle import Refused, Row
from conformance.rows import rows_of

PLACES = ("a", "b", None, "a/b=ü %", "01", "..", "x+y:c?")
PLAIN_KEYS = ("int64", "string", "decimal128(9,2)", "timestamp[us,UTC]", "float64", "dictionary")
KEYS = [*PLAIN_KEYS, *(name for name in KEY_KINDS if "<-" not in name)]
VALUES = [name for name in VALUE_KINDS if "<-" not in name]
CODECS = ("snappy", "zstd", "gzip", "none")


class Text(str):
    """The text of a condition or of an expression, and what it means for a row."""

    __slots__ = ("of",)

    def __new__(cls, text: str, of: Callable[..., Any]) -> Self:
        made = super().__new__(cls, text)
        made.of = of
        return made


CONDITIONS = (
    Text("n < 2", lambda row: row["n"] is not None and row["n"] < 2),
    Text("NOT n < 2", lambda row: row["n"] is not None and not row["n"] < 2),
    Text("day = 'a' OR n = 3", lambda row: row["day"] == "a" or row["n"] == 3),
    Text("day IS NULL OR day = 'a/b=ü %'", lambda row: row["day"] in (None, "a/b=ü %")),
    Text("day NOT IN ('a', '01')", lambda row: row["day"] not in (None, "a", "01")),
    Text("lsn % 2 = 0 AND v IS NULL", lambda row: row["lsn"] is not None and row["lsn"] % 2 == 0 and row["v"] is None),
    Text("s BETWEEN 3 AND 12", lambda row: 3 <= row["s"] <= 12),
    Text("s IN (2, 5, 9, 14, 20)", lambda row: row["s"] in (2, 5, 9, 14, 20)),
    Text("v IS NOT NULL AND s >= 10", lambda row: row["v"] is not None and row["s"] >= 10),
    Text("lsn IS DISTINCT FROM 5", lambda row: row["lsn"] != 5),
    Text("coalesce(lsn, n) > 3", lambda row: ((row["n"] if row["lsn"] is None else row["lsn"]) or 0) > 3),
)
ALL = Text("true", lambda row: True)
DELETED = Text("op = 'd'", lambda row: row["op"] == "d")
UPDATE_WHEN = (
    Text("source.s <> target.s", lambda new, old: new["s"] != old["s"]),
    Text("source.n IS NOT NULL AND target.day = 'a'", lambda new, old: new["n"] is not None and old["day"] == "a"),
    Text("target.n < 3", lambda new, old: old["n"] is not None and old["n"] < 3),
)
INSERT_WHEN = (
    Text("source.n > 1", lambda new: new["n"] is not None and new["n"] > 1),
    Text("source.day IS NOT NULL", lambda new: new["day"] is not None),
)
SETS: tuple[dict[str, Text], ...] = (
    {"n": Text("NULL", lambda row: None)},
    {"n": Text("3", lambda row: 3), "v": Text("NULL", lambda row: None)},
    {"lsn": Text("coalesce(lsn, 0) + s % 3", lambda row: (row["lsn"] or 0) + row["s"] % 3)},
    {"lsn": Text("s", lambda row: row["s"])},
    {"day": Text("'b'", lambda row: "b")},
    {"day": Text("coalesce(day, '?') || '/'", lambda row: f"{row['day'] or '?'}/")},
    {"day": Text("NULL", lambda row: None), "lsn": Text("7", lambda row: 7)},
)


@dataclass(frozen=True)
class State:
    """The rows of a dataset, the types of its columns, and the counts of the last change that the result must have."""

    rows: list[Row]
    types: Mapping[str, pa.DataType]
    counts: Mapping[str, int] = field(default_factory=dict)
    points: history.Points = field(default_factory=dict)
    """For each key the values at each sequence, of a dataset with a history of type 2."""
    tombstones: frozenset[Any] = frozenset()
    """The keys that feeds have deleted, with their sequences."""

    def after(self, rows: list[Row], types: Mapping[str, pa.DataType], counts: Mapping[str, int]) -> State:
        """The state after a change of rows."""
        return replace(self, rows=rows, types=types, counts=counts)


@dataclass(frozen=True)
class Step:
    """A call of a method of `DatasetIO`, and what it does to a state; the function raises `Refused` for an error."""

    call: str
    of: Callable[[State], State]
    planned: bool = False
    """Whether the method takes a plan of a dry run."""
    loses_versions: bool = False


@dataclass(frozen=True)
class Shape:
    """What a dataset looks like: the kinds of its key and value, its partitions, and the values that rows have."""

    keys: tuple[str, ...]
    types: dict[str, pa.DataType]
    partitions: tuple[str, ...]
    null_keys: bool
    pool: dict[str, list[Any]]

    def canonical(self, name: str, value: Any) -> Any:
        return rows_of(pa.table({name: pa.array([value], self.types[name])}))[0][name]

    def raw(self, name: str, value: Any) -> Any:
        """A value as Python writes it, from its canonical form."""
        known = self.pool.get(name, ())
        return next((each for each in known if self.canonical(name, each) == value), value)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """A plain or an odd key, of one or two columns, and any type of value."""
    kind, value = KEY_KINDS[draw(st.sampled_from(KEYS))], VALUE_KINDS[draw(st.sampled_from(VALUES))]
    null_keys = draw(st.sampled_from([False, False, False, True]))
    keys = draw(st.sampled_from([("k",), ("k",), ("k", "k2"), ("k", "day")]))
    partitions = draw(st.sampled_from([(), ("day",), ("day",), ("day", "n")])) if "day" not in keys else ("day",)
    pool = {
        "k": draw(st.lists(kind.values, min_size=4, max_size=8)) + ([None] if null_keys else []),
        "k2": ["x", "y"],
        "v": [None, *draw(st.lists(value.values, min_size=1, max_size=3))],
    }
    types = {"k": kind.target, "k2": pa.string(), "s": pa.int64(), "lsn": pa.int64(), "n": pa.int32()}
    return Shape(keys, types | {"v": value.target, "day": pa.string()}, partitions, null_keys, pool)


class Steps:
    """Draws steps that fit a state. Serial numbers in the column ``s`` tell rows apart."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], shape: Shape, serial: int = 0) -> None:
        self.draw, self.shape, self.serial = draw, shape, serial

    def some(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def rarely(self, often: int) -> bool:
        return bool(self.draw(st.integers(1, often)) == often)

    def _key(self, row: Row) -> Any:
        return oracle.key_of(row, self.shape.keys)

    def rows(self, state: State, most: int, *, unique: bool = True, at_home: bool = True) -> list[Row]:
        """Rows in canonical form; most of them have a key that exists, and are in its partition."""
        homes = {self._key(row): row for row in state.rows}
        found = []
        for _ in range(self.draw(st.integers(0 if self.rarely(6) else 1, most))):
            row = self._row(state)
            old = homes.get(self._key(row))
            if old is not None and self.rarely(6):
                row = {name: old[name] for name in row}
            elif old is not None and (at_home or not self.rarely(3)):
                row |= {name: old[name] for name in self.shape.partitions}
            found.append(row)
        return list({self._key(row): row for row in found}.values()) if unique else found

    def _row(self, state: State) -> Row:
        self.serial += 1
        drawn = {name: self.shape.canonical(name, self.some(*self.shape.pool[name])) for name in ("k", "k2", "v")}
        lsn, n = self.some(None, *range(9)), self.some(None, *range(5))
        row = drawn | {"s": self.serial, "lsn": lsn, "n": n, "day": self.some(*PLACES)}
        row |= {name: self.some(None, 1, 2) for name in state.types if name.startswith("x")}
        if "n" in self.shape.partitions and n is None:  # folders of nulls alone do not tell the type
            row["n"] = 0
        return {name: row[name] for name in state.types}

    def respelled(self, types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Types of a source that the dataset does not have, and whose values fit: the types of the dataset stay."""
        if not self.rarely(3):
            return dict(types)
        others = {
            "n": (pa.int8(), pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.uint64()),
            "s": (pa.int32(), pa.uint64(), pa.decimal128(30, 5)),
            "lsn": (pa.int8(), pa.int32(), pa.float64()),
        }
        found = {name: self.some(*kinds) for name, kinds in others.items() if name not in self.shape.partitions}
        return {name: found.get(name, type_) for name, type_ in types.items()}

    def table(self, rows: Sequence[Row], types: Mapping[str, pa.DataType]) -> str:
        """Rows as the text of an Arrow table."""
        columns = [
            f"{name!r}: pa.array({[self.shape.raw(name, row[name]) for row in rows]!r}, {spelled(type_)})"
            for name, type_ in types.items()
        ]
        return f"pa.table({{{', '.join(columns)}}})"

    def limits(self) -> dict[str, Any]:
        """Options of files, which change no row."""
        options: dict[str, Any] = {}
        if self.rarely(2):
            options["max_rows_per_file"] = self.some(1, 2, 5)
        if self.rarely(2):
            options["row_group_size"] = self.some(1, 2, 100)
        if self.rarely(4):
            options["compression"] = self.some(*CODECS)
        return options

    def retries(self) -> dict[str, Any]:
        return {"retries": 0} if self.rarely(5) else {}

    def folder(self) -> dict[str, Any]:
        """An option that restricts upkeep to a folder of the first partition, which may be absent."""
        name = self.shape.partitions[0] if self.shape.partitions else ""
        return {"partition_filter": f"{name}={self.some('a', 'b', '01')}/"} if name == "day" else {}

    def memory(self) -> dict[str, Any]:
        """Options of memory, which change no row."""
        options: dict[str, Any] = {"batch_rows": self.some(1, 2, 5)} if self.rarely(5) else {}
        return options | ({"memory_limit": self.some(1, 10_000, "1MB")} if self.rarely(6) else {})

    def first_write(self) -> tuple[str, State]:
        """The call that creates the dataset."""
        empty = State([], self.shape.types)
        rows = [row for _ in range(3) for row in self.rows(empty, 6, at_home=False)]
        rows = list({self._key(row): row for row in rows}.values())
        while not rows:
            rows = self.rows(empty, 6)
        options = self.limits() | {"partition_by": list(self.shape.partitions) or None}
        return _call("write_dataset", self.table(rows, empty.types), options), replace(empty, rows=rows)

    def write(self, state: State) -> Step:
        mode = self.some("append", "append", "overwrite", "overwrite_partitions", "error", "ignore", "where", "where")
        types = dict(state.types) if mode != "overwrite" else dict(self.shape.types)
        rows = self.rows(replace(state, types=types), 5)
        options: dict[str, Any] = {"mode": mode} | self.limits() | self.retries()
        condition = None
        if mode == "where":
            condition = self.some(*CONDITIONS, ALL)
            if not self.rarely(8):
                rows = [row for row in rows if condition.of(row)]
            options |= {"mode": "overwrite", "replace_where": condition}
        if mode == "overwrite":
            options["partition_by"] = list(self.shape.partitions) or None
        rows = rows if mode not in ("overwrite", "overwrite_partitions") or rows else [self._row(state)]

        def place(row: Row) -> tuple[Any, ...]:
            return tuple(row[name] for name in self.shape.partitions)

        where = set(map(place, rows))

        def of(now: State) -> State:
            if mode == "error":
                raise Refused("exists")
            if mode == "overwrite_partitions" and not self.shape.partitions:
                raise Refused("no partitions")
            if mode == "where" and any(not condition.of(row) for row in rows):
                raise Refused("outside the condition")
            kept = {
                "ignore": now.rows,
                "error": [],
                "append": now.rows,
                "overwrite": [],
                "overwrite_partitions": [row for row in now.rows if place(row) not in where],
                "where": [row for row in now.rows if condition is not None and not condition.of(row)],
            }[mode]
            new = [] if mode == "ignore" else _padded(rows, now.types if mode != "overwrite" else types)
            counts = {"rows": len(rows), "replaced": len(now.rows) - len(kept)} if mode == "where" else {}
            after = now.after(_padded(kept, types) + new, types if mode == "overwrite" else now.types, counts)
            return replace(after, tombstones=frozenset()) if mode == "overwrite" else after

        given = types if mode == "overwrite" else self.respelled(types)
        return Step(_call("write_dataset", self.table(rows, given), options), of)

    def merge(self, state: State) -> Step:
        options, strategy = self._merge_options(state), self.some(*oracle.STRATEGIES, "upsert", "upsert")
        repeats = strategy == "deduplicate" or "on_duplicate_source" in options
        move = options.get("partition_move", "check")
        rows = self.rows(state, 6, unique=not repeats, at_home=move == "check" and not self.rarely(10))
        types = dict(state.types)
        options |= {"strategy": strategy, "key_columns": list(self.shape.keys)}
        options |= self.limits() | self.retries() | self.memory()
        if self.shape.partitions and self.rarely(6):
            options[self.some("partition_by", "partition_columns")] = list(self.shape.partitions)
        order = options.pop("order", ["lsn"])
        if strategy == "deduplicate":
            options["dedup_order_by"] = order
        if strategy == "insert":
            options = {k: v for k, v in options.items() if k not in ("newer_by", "update_when", "update_columns")}
        if strategy == "update":
            options.pop("insert_when", None)
        if options.pop("op", False) and strategy != "insert":
            options["delete_when"] = DELETED
            types["op"] = pa.string()
            rows = [row | {"op": self.some("c", "c", "d")} for row in rows]
        if strategy == "full_merge" and self.rarely(2):
            options["scope"] = self.some(*CONDITIONS)
            if not self.rarely(8):
                rows = [row for row in rows if options["scope"].of(row) or row.get("op") == "d"]
        evolve = options.pop("evolve", "")
        if evolve and "delete_when" not in options:  # evolve would add its column
            options |= {"schema_mode": "evolve", "evolve_files": self.some(None, "touched", "touched", "all")}
            rows, types = self._evolved(evolve, rows, types, options)
        given = types if "schema_mode" in options else self.respelled(types)
        return Step(
            _call("merge", self.table(rows, given), options), lambda now: self._merged(now, rows, types, options), True
        )

    def _merge_options(self, state: State) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.shape.null_keys and not self.rarely(8):
            options["null_keys"] = "match"
        if self.rarely(4):
            options["on_duplicate_source"] = self.some("first", "last", "error")
        if self.rarely(2):
            options["partition_move"] = self.some("move", "move", "unchecked")
        if self.rarely(4):
            options["update_columns"] = self.some(["v"], ["n", "lsn"], ["s", "v", "lsn"])
        elif self.rarely(4):
            options["evolve"] = self.some("more", "fewer", "wider")
        if self.rarely(3):
            options["newer_by"] = self.some("lsn", "s")
        if self.rarely(4):
            options["update_when"] = self.some(*UPDATE_WHEN)
        if self.rarely(4):
            options["insert_when"] = self.some(*INSERT_WHEN)
        if self.rarely(3):
            options["op"] = True
        if self.rarely(6):
            options["skip_unchanged"] = False
        options["order"] = self.some(["lsn"], ["-lsn", "n"], [], ["s"])
        return options

    def _evolved(
        self, how: str, rows: list[Row], types: dict[str, pa.DataType], options: dict[str, Any]
    ) -> tuple[list[Row], dict[str, pa.DataType]]:
        """A source with another column, without a column, or with a wider type."""
        named = [options.get(name, "") for name in ("scope", "update_when", "insert_when")]
        if how == "more":
            name = f"x{sum(name.startswith('x') for name in types)}"
            return [row | {name: self.some(None, 1, 2)} for row in rows], types | {name: pa.int64()}
        if how == "fewer" and not any("v " in text for text in named):
            return [{n: v for n, v in row.items() if n != "v"} for row in rows], {
                n: t for n, t in types.items() if n != "v"
            }
        if how == "wider" and "n" not in self.shape.partitions:
            return [row | {"n": self.some(row["n"], 2**40)} for row in rows], types | {"n": pa.int64()}
        return rows, types

    def _merged(
        self, now: State, rows: list[Row], types: Mapping[str, pa.DataType], options: Mapping[str, Any]
    ) -> State:
        given = [name for name in types if name != "op"]
        source = [{name: row.get(name) for name in (*now.types, *types)} for row in rows]
        after = dict(now.types) | {name: types[name] for name in given}
        found = oracle.merge(
            _padded(now.rows, after),
            source,
            options["strategy"],
            self.shape.keys,
            partitions=self.shape.partitions,
            columns=options.get("update_columns", given),
            order_by=options.get("dedup_order_by", ()),
            on_duplicate=options.get("on_duplicate_source", "error"),
            null_keys=options.get("null_keys", "error"),
            partition_move=options.get("partition_move", "check"),
            newer_by=options.get("newer_by"),
            **{
                name: options[name].of
                for name in ("delete_when", "update_when", "insert_when", "scope")
                if name in options
            },
        )
        counts = {"inserted": found.inserted, "updated": found.updated, "deleted": found.deleted}
        counts |= {"stale": found.stale, "moved": found.moved, "total": len(found.rows)}
        return now.after(_padded(found.rows, after), after, counts)

    def delete(self, state: State) -> Step:
        where = self.some(*CONDITIONS, *CONDITIONS, ALL)
        erase = {"erase_history": True} if self.rarely(6) else {}

        def of(now: State) -> State:
            left = [row for row in now.rows if not where.of(row)]
            after = now.after(left, now.types, {"deleted": len(now.rows) - len(left), "total": len(left)})
            return replace(after, tombstones=frozenset()) if erase else after

        options = {"where": where} | erase | self.retries() | self.memory()
        return Step(_call("delete", None, options), of, not erase, loses_versions=bool(erase))

    def update(self, state: State) -> Step:
        where, values = self.some(*CONDITIONS, ALL), self.some(*SETS)
        fixed = [name for name in values if name in self.shape.keys or (name in self.shape.partitions and name == "n")]
        values = SETS[3] if fixed else values

        def of(now: State) -> State:
            hits = [where.of(row) for row in now.rows]
            rows = [
                row | {name: value.of(row) for name, value in values.items()} if hit else row
                for row, hit in zip(now.rows, hits, strict=True)
            ]
            return now.after(rows, now.types, {"updated": sum(hits), "total": len(rows)})

        return Step(_call("update", None, {"set": values, "where": where} | self.retries() | self.memory()), of, True)

    def feed(self, state: State) -> Step:
        """A change feed of type 1."""
        keep_nulls = self.rarely(3) and len({self._key(row) for row in state.rows}) == len(state.rows)
        rows = self.rows(state, 6, unique=keep_nulls, at_home=False)
        rows = [row | {"lsn": row["lsn"] or 0, "op": self.some("c", "u", "d")} for row in rows]
        options: dict[str, Any] = {"key_columns": list(self.shape.keys), "sequence_by": "lsn"} | self.retries()
        options |= {"delete_when": DELETED, "except_columns": ["op"]}
        options |= {"ignore_null_updates": True} if keep_nulls else {}
        kept = not self.rarely(8)
        options |= {} if kept else {"tombstones": "0"}

        def of(now: State) -> State:
            found = oracle.merge(
                now.rows,
                rows,
                "upsert" if keep_nulls else "deduplicate",
                self.shape.keys,
                partitions=self.shape.partitions,
                columns=list(now.types),
                order_by=["lsn"],
                partition_move="move",
                keep_nulls=keep_nulls,
                newer_by="lsn",
                delete_when=DELETED.of,
                tombstones=now.tombstones if kept else frozenset(),
            )
            counts = {"inserted": found.inserted, "updated": found.updated, "deleted": found.deleted}
            after = now.after(_padded(found.rows, now.types), now.types, counts | {"stale": found.stale})
            return replace(after, tombstones=found.tombstones if kept else frozenset())

        types = self.respelled(state.types) | {"op": pa.string()}
        return Step(_call("apply_changes", self.table(rows, types), options), of, True)

    def past_feed(self, state: State) -> Step:
        """A change feed of type 2, of the dataset that keeps the history of its keys."""
        drawn = self.rows(State([], self.shape.types), 6, unique=False)
        rows = [
            {"id": row["s"] % 4, "lsn": row["lsn"] or 0, "op": self.some("c", "u", "d")}
            | {name: row[name] for name in ("v", "day")}
            for row in drawn
        ]
        keep_nulls = self.rarely(4)
        options = {"key_columns": "id", "sequence_by": "lsn", "delete_when": DELETED}
        options |= {"columns": ["v", "day"]} if self.rarely(3) else {"except_columns": ["op"]}
        options |= {"scd_type": 2} | ({"ignore_null_updates": True} if keep_nulls else {}) | self.retries()
        if not state.rows and self.shape.partitions:
            options["partition_by"] = self.some("day", "is_current", None)

        def of(now: State) -> State:
            points = {key: dict(each) for key, each in now.points.items()}
            before = history.rows_of(points)
            stale = history.apply(points, rows, ("v", "day"), ignore_nulls=keep_nulls)
            names = ("id", "v", "day", "valid_from", "valid_to", "is_current")
            found = history.rows_of(points)
            after = [dict(zip(names, row, strict=True)) for row in found]
            return State(after, now.types, history.differences(before, found) | {"stale": stale}, points)

        types = {"id": pa.int64(), "lsn": pa.int64(), "op": pa.string()}
        types |= {name: self.shape.types[name] for name in ("v", "day")}
        return Step(_call("apply_changes", self.table(rows, types), options, "past"), of, True)

    def upkeep(self, path: str = "path") -> Step:
        """A compaction, a sort, or one that does nothing to rows in several commits."""
        several = {"max_groups_per_commit": 1} if self.rarely(4) else {"max_files": 3} if self.rarely(4) else {}
        options = several | ({"compression": self.some(*CODECS)} if self.rarely(4) else {}) | self.retries()
        options |= {"target_mb_per_file": self.some(0.003, 1)} if self.rarely(3) else {}
        if "target_mb_per_file" not in options or self.rarely(3):
            options["target_rows_per_file"] = self.some(2, 4, 100)
        options |= {"max_bytes": self.some(1, 5000, 20_000)} if self.rarely(5) else {}
        options |= self.folder() if path == "path" and self.rarely(3) else {}

        def of(now: State) -> State:
            _in_folder(now, options)
            return replace(now, counts={})

        if self.rarely(2):
            return Step(_call("compact_parquet_dataset", None, options, path), of)
        by = self.some(["n"], ["lsn", "s"], ["s"]) if path == "path" else ["id"]
        if "n" in self.shape.partitions:
            by = [name for name in by if name != "n"] or ["s"]
        options |= {"zorder_columns": by, "curve": self.some("linear", "linear", "zorder", "hilbert")}
        options |= {"bloom_filter_columns": by} if self.rarely(4) else {}
        options |= {"force": True} if self.rarely(4) else {}
        return Step(_call("optimize_parquet_dataset", None, options, path), of)

    def deduplicate(self, state: State) -> Step:
        """Rows that only differ in their order have one serial number, so the order decides."""
        order, keys = self.some(["s", "lsn", "n"], ["-s", "lsn", "n"]), list(self.shape.keys)
        order = [name for name in order if name not in self.shape.partitions]
        if _ties(state.rows, [*keys, "s", "lsn", "n"]):
            return self.upkeep()
        options = {"null_keys": "match"} if self.shape.null_keys else {}
        folder = self.folder() if self.rarely(3) else {}
        extra = {"dedup_order_by": order} | self.retries() | folder

        def of(now: State) -> State:
            chosen, others = _in_folder(now, folder)
            return now.after(others + oracle.deduplicate(chosen, keys, order, **options), now.types, {})

        if self.rarely(2):
            extra |= {"deduplicate_key_columns": keys, "zorder_columns": ["s"]}
            return Step(_call("optimize_parquet_dataset", None, options | extra), of)
        return Step(_call("deduplicate_parquet_dataset", None, options | {"key_columns": keys} | extra), of)


def _in_folder(state: State, options: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
    """The rows in the folder that options name, or all, and the others; a folder without a file is refused."""
    if "partition_filter" not in options:
        return state.rows, []
    day = options["partition_filter"].removeprefix("day=").removesuffix("/")
    chosen = [row for row in state.rows if row["day"] == day]
    if not chosen:
        raise Refused("no file is in the folder")
    return chosen, [row for row in state.rows if row["day"] != day]


def _ties(rows: Sequence[Row], names: Sequence[str]) -> bool:
    """Whether rows that differ are equal in some columns."""
    different = {tuple(row.items()) for row in rows}
    return len({tuple(dict(row)[name] for name in names) for row in different}) < len(different)


def _padded(rows: Sequence[Row], types: Mapping[str, pa.DataType]) -> list[Row]:
    return [{name: row.get(name) for name in types} for row in rows]


def _call(method: str, table: str | None, options: Mapping[str, Any], path: str = "path") -> str:
    named = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    return f"{method}({', '.join(([table] if table else []) + [path] + named)})"


def spelled(type_: pa.DataType) -> str:
    """The Python expression of an Arrow type."""
    nested = {"list": "list_", "large_list": "large_list", "list_view": "list_view"}
    name = str(type_).partition("<")[0]
    if pt.is_dictionary(type_):
        return f"pa.dictionary({spelled(type_.index_type)}, {spelled(type_.value_type)})"
    if pt.is_fixed_size_list(type_):
        return f"pa.list_({spelled(type_.value_type)}, {type_.list_size})"
    if name in nested:
        return f"pa.{nested[name]}({spelled(type_.value_type)})"
    if pt.is_map(type_):
        return f"pa.map_({spelled(type_.key_type)}, {spelled(type_.item_type)})"
    if pt.is_struct(type_):
        return f"pa.struct([{', '.join(f'({each.name!r}, {spelled(each.type)})' for each in type_)}])"
    if pt.is_fixed_size_binary(type_) and not pt.is_decimal(type_):
        return f"pa.binary({type_.byte_width})"
    if pt.is_timestamp(type_):
        return f"pa.timestamp({type_.unit!r}, {type_.tz!r})"
    if pt.is_time(type_) or pt.is_duration(type_):
        return f"pa.{name.partition('[')[0]}({type_.unit!r})"
    odd = {"bool": "bool_", "halffloat": "float16", "float": "float32", "double": "float64"}
    plain = name.partition("[")[0]
    return f"pa.{type_}" if pt.is_decimal(type_) else f"pa.{odd.get(plain, plain)}()"

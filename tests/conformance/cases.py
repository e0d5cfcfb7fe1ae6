"""Whole merges as data: a target of several files, a source, and the options of one call.

A case draws a small pool of keys and a small pool of values, and builds all rows from them, so that keys meet and rows
turn out equal often. Each key has a home partition; only a case with ``strays`` lets rows stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from conformance import oracle
from conformance.datatypes import KEY_KINDS, VALUE_KINDS, Kind
from conformance.layouts import INTEGERS, LAYOUTS, ODD_VALUES, Layout, folder, write_file
from conformance.rows import canonical, rows_of

Draw = Callable[[st.SearchStrategy[Any]], Any]
ORDER = "seq"  # a nullable int32 column that every case has; dedup_order_by uses it


@dataclass(frozen=True, slots=True)
class TargetFile:
    """One file of the target: its rows without partition columns, and the values its folder stands for."""

    path: str
    table: pa.Table
    layout: Layout
    partitions: dict[str, str | None]

    def rows(self) -> list[oracle.Row]:
        return [row | self.partitions for row in rows_of(self.table)]


@dataclass(frozen=True, slots=True)
class Case:
    """A target, a source and a call of ``merge``."""

    kinds: tuple[Kind, ...]
    value: Kind
    partitions: tuple[str, ...]
    files: tuple[TargetFile, ...]
    source: pa.Table
    strategy: str
    options: dict[str, Any] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        return [*(f"k{i}" for i in range(len(self.kinds))), *self.partition_keys]

    @property
    def promotes(self) -> bool:
        return any(kind.promotes for kind in self.columns.values())

    @property
    def columns(self) -> dict[str, Kind]:
        """The kinds of key and value columns, by name."""
        return {f"k{i}": kind for i, kind in enumerate(self.kinds)} | {"v": self.value}

    def build(self, dataset: Path) -> None:
        """Write the target's files."""
        for file in self.files:
            write_file(dataset / file.path, file.table, file.layout)

    def call(self) -> dict[str, Any]:
        """The keyword arguments of ``io.merge``."""
        return {"strategy": self.strategy, "key_columns": self.keys, **self.options}

    def expect(self, target: Sequence[oracle.Row]) -> oracle.Outcome:
        """What the oracle makes of this case; raises Refused."""
        options = {
            "on_duplicate": self.options.get("on_duplicate_source", "error"),
            "order_by": self.options.get("dedup_order_by") or (),
            "null_keys": self.options.get("null_keys", "error"),
        }
        source = rows_of(self.source, self.partitions)
        return oracle.merge(target, source, self.strategy, self.keys, partitions=self.partitions, **options)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints a failing case."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        files = "\n".join(f"  {f.path!r} ({f.layout.name}): {f.table.to_pylist()}" for f in self.files)
        kinds = {name: kind.name for name, kind in self.columns.items()}
        return f"Case({self.call()} over {kinds}\n{files}\n  source: {self.source.schema} {self.source.to_pylist()})"


def composites() -> st.SearchStrategy[tuple[Kind, ...]]:
    """One key column mostly, sometimes two or three, of any kind."""
    kind = st.sampled_from(sorted(KEY_KINDS)).map(KEY_KINDS.__getitem__)
    return st.one_of(st.tuples(kind), st.tuples(kind, kind), st.tuples(kind, kind, kind))


@st.composite
def cases(
    draw: Draw,
    kinds: st.SearchStrategy[tuple[Kind, ...]] | None = None,
    values: st.SearchStrategy[Kind] | None = None,
    layouts: Sequence[Layout] = LAYOUTS,
    partitioned: st.SearchStrategy[tuple[str, ...]] = st.just(()),  # noqa: B008 - strategies are immutable
    strategies: st.SearchStrategy[str] = st.sampled_from(oracle.STRATEGIES),  # noqa: B008
) -> Case:
    """Any merge over the given kinds of keys, values, layouts and partition columns."""
    kind = draw(kinds if kinds is not None else composites())
    any_value = st.sampled_from(sorted(VALUE_KINDS)).map(VALUE_KINDS.__getitem__)
    value = draw(values if values is not None else any_value)
    names = draw(partitioned)
    strategy = draw(strategies)
    options = draw(_options(strategy))
    builder = _Builder(draw, kind, value, names, null_keys=options.get("null_keys") == "match")
    dirty = strategy == "deduplicate" or draw(_rarely(12)) or "on_duplicate_source" in options
    files = builder.files(layouts)
    keyed = names[: draw(st.sampled_from([0, 0, 1, 2]))]
    return Case(kind, value, names, files, builder.source(unique=not dirty), strategy, options, keyed)


@st.composite
def _options(draw: Draw, strategy: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if draw(_rarely(6)):
        options["null_keys"] = "match"
    if strategy == "deduplicate":
        orders: list[list[str] | None] = [None, [ORDER], ["-" + ORDER]]
        options["dedup_order_by"] = draw(st.sampled_from(orders))
    elif draw(_rarely(6)):
        options["on_duplicate_source"] = draw(st.sampled_from(["first", "last"]))
    options["max_rows_per_file"] = draw(st.sampled_from([1, 2, 3, 1_000_000]))
    if draw(_rarely(4)):
        options["memory_limit"] = draw(st.sampled_from([1, 10_000, "1MB"]))
    if draw(st.booleans()):
        options["batch_rows"] = draw(st.sampled_from([1, 2, 5]))
    return options


def _rarely(odds: int) -> st.SearchStrategy[bool]:
    """True once in so many draws."""
    return st.sampled_from([False] * (odds - 1) + [True])


class _Builder:
    """Draws the pools of a case, then rows from them."""

    def __init__(
        self, draw: Draw, kinds: tuple[Kind, ...], value: Kind, partitions: tuple[str, ...], *, null_keys: bool
    ) -> None:
        self.draw, self.kinds, self.value, self.partitions, self.nulls = draw, kinds, value, partitions, null_keys
        key = st.tuples(*(st.none() | kind.values if null_keys else kind.values for kind in kinds))
        self.pool = draw(st.lists(key, min_size=4, max_size=12))
        self.identities = [self._identity(key) for key in self.pool]
        self.values = draw(st.lists(st.none() | value.values, min_size=1, max_size=3))
        self.partition_types = [
            draw(st.sampled_from([pa.string(), pa.string(), pa.int64(), pa.int16()])) for _ in partitions
        ]
        some = [st.none() | st.sampled_from(ODD_VALUES if t == pa.string() else INTEGERS) for t in self.partition_types]
        places = st.lists(st.tuples(*some), min_size=1, max_size=4, unique=True)
        self.places = draw(places) if partitions else [()]
        self.homes = {key: draw(st.sampled_from(self.places)) for key in dict.fromkeys(self.identities)}
        self.strays = bool(partitions) and draw(_rarely(8))

    def _identity(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(canonical(pa.array([v], kind.target)[0]) for v, kind in zip(key, self.kinds, strict=True))

    def files(self, layouts: Sequence[Layout]) -> tuple[TargetFile, ...]:
        layout = st.sampled_from(layouts)
        return tuple(self._file(i, self.draw(layout)) for i in range(self.draw(st.integers(1, 4))))

    def _file(self, number: int, layout: Layout) -> TargetFile:
        place = self.draw(st.sampled_from(self.places))
        here = [i for i, key in enumerate(self.identities) if self.strays or self.homes[key] == place]
        picks = self._picks(here, 8)
        values = dict(zip(self.partitions, place, strict=True))
        return TargetFile(f"{folder(values)}f{number}.parquet", self._table(picks, "target"), layout, values)

    def _picks(self, among: Sequence[int], most: int) -> list[int]:
        """A few of the given keys; none at all in one of eight draws, which is as often as it is worth."""
        least = self.draw(st.sampled_from([4, 4, 4, 4, 4, 2, 2, 0]))
        if not among or least == 0:
            return []
        picks: list[int] = self.draw(st.lists(st.sampled_from(among), min_size=least, max_size=most))
        return picks

    def source(self, *, unique: bool) -> pa.Table:
        picks = self._picks(range(len(self.pool)), 10)
        if unique:
            picks = list({self.identities[i]: i for i in picks}.values())
        table = self._table(picks, "source")
        for position, name in enumerate(self.partitions):
            column = pa.array([self._place(i)[position] for i in picks], pa.string())
            table = table.append_column(name, column.cast(self.partition_types[position]))
        return table

    def _place(self, pick: int) -> tuple[str | None, ...]:
        home: tuple[str | None, ...] = self.homes[self.identities[pick]]
        return home

    def _table(self, picks: list[int], side: str) -> pa.Table:
        """Rows of the picked keys; the target's schema carries metadata that a rewrite has to keep."""
        values = [self.values[self.draw(st.integers(0, len(self.values) - 1))] for _ in picks]
        seq = [self.draw(st.sampled_from([None, 0, 1, 2])) for _ in picks]
        note = {"unit": "piece"} if side == "target" else None
        fields = [
            pa.field(f"k{i}", getattr(kind, side), nullable=self.nulls or side == "source", metadata=note)
            for i, kind in enumerate(self.kinds)
        ]
        fields += [pa.field("v", getattr(self.value, side), metadata=note), pa.field(ORDER, pa.int32())]
        keys = [pa.array([self.pool[p][i] for p in picks], getattr(kind, side)) for i, kind in enumerate(self.kinds)]
        columns = [*keys, pa.array(values, getattr(self.value, side)), pa.array(seq, pa.int32())]
        metadata = {"owner": "finance"} if side == "target" else None
        return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))

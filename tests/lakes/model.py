"""The lakes that `scripts/make_lakes.py` made, and the values that must be in them, as canonical rows."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from conformance.rows import rows_of

FOLDER = Path(__file__).parent
Rows = dict[int, dict[str, Any]]
"""Canonical rows by id."""

_MODEL = json.loads((FOLDER / "rows.json").read_text("utf-8"))
_SIMPLE: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "bigint": (pa.int64(), int),
    "int": (pa.int32(), int),
    "string": (pa.string(), str),
    "double": (pa.float64(), float),
    "float": (pa.float32(), float),
    "boolean": (pa.bool_(), bool),
    "date": (pa.date32(), dt.date.fromisoformat),
    "timestamp": (pa.timestamp("us", "UTC"), dt.datetime.fromisoformat),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime.fromisoformat),
    "binary": (pa.binary(), bytes.fromhex),
}


@dataclass(frozen=True, slots=True)
class Lake:
    """One folder that a writer made."""

    name: str
    writer: str
    note: str
    columns: list[str]
    partitions: list[str] = field(default_factory=list)
    without: list[int] = field(default_factory=list)
    """Rows that the writer left out."""
    missing: dict[str, list[int]] = field(default_factory=dict)
    """Columns that some files lack, and the rows in these files."""
    mixed: list[str] = field(default_factory=list)
    """Columns with different types in different files, of which a reader may choose one."""
    refused: str = ""
    """Words of the error that every operation raises."""

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return FOLDER / self.name

    def table(self, change: Callable[[dict[str, Any]], dict[str, Any]] = dict, ids: Iterable[int] = ()) -> pa.Table:
        """All rows, or some, as an Arrow table in the types of the model, each row changed."""
        chosen = set(ids) or {each["id"] for each in _MODEL["rows"]} - set(self.without)
        rows = []
        for each in _MODEL["rows"]:
            if each["id"] in chosen:
                values = {name: _value(_MODEL["types"][name], each[name]) for name in self.columns}
                rows.append(
                    change({n: None if each["id"] in self.missing.get(n, ()) else v for n, v in values.items()})
                )
        return pa.table({name: pa.array([row[name] for row in rows], self.type_of(name)) for name in self.columns})

    def type_of(self, column: str) -> pa.DataType:
        """The type of a column in the model."""
        return _type(_MODEL["types"][column])

    def rows(self) -> Rows:
        """All rows, canonical."""
        return self.canonical(self.table())

    def canonical(self, table: pa.Table) -> Rows:
        """Rows of a table in canonical form; partition columns are texts, as in the names of folders."""
        return {row["id"]: row for row in rows_of(table, self.partitions)}


LAKES = [Lake(name, **facts) for name, facts in json.loads((FOLDER / "lakes.json").read_text("utf-8")).items()]


def ddl(columns: Iterable[str]) -> str:
    """The types of columns in SQL; of others than those of the model, string."""
    return ", ".join(f"{name} {_MODEL['types'].get(name, 'string')}" for name in columns)


def _split(text: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += letter in "<("
        depth -= letter in ">)"
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _inner(kind: str) -> tuple[str, list[str]]:
    outer, _, inner = kind.partition("<")
    return outer, _split(inner[:-1])


def _type(kind: str) -> pa.DataType:
    """The Arrow type of a type in SQL."""
    if kind in _SIMPLE:
        return _SIMPLE[kind][0]
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    outer, inner = _inner(kind)
    if outer == "array":
        return pa.list_(_type(inner[0]))
    if outer == "map":
        return pa.map_(_type(inner[0]), _type(inner[1]))
    return pa.struct([(name, _type(of)) for name, of in (each.split(":", 1) for each in inner)])


def _value(kind: str, value: Any) -> Any:
    """A value of a type from its form in JSON."""
    if value is None:
        return None
    if kind in _SIMPLE:
        return _SIMPLE[kind][1](value)
    if kind.startswith("decimal"):
        return Decimal(value)
    outer, inner = _inner(kind)
    if outer == "array":
        return [_value(inner[0], each) for each in value]
    if outer == "map":
        return [(_value(inner[0], key), _value(inner[1], each)) for key, each in value.items()]
    return {name: _value(of, value[name]) for name, of in (each.split(":", 1) for each in inner)}

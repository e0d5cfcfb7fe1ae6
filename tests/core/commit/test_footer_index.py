"""The footer index saves the reading of footers and never changes a result, whatever its files contain."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import StorageError
from fsspeckit.core.commit import file_kinds
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.file_names import name_stem
from fsspeckit.core.operations.index import rebuild_index
from fsspeckit.core.parquet import footer_format
from fsspeckit.core.parquet.footer_table import FILES, STATISTICS, FooterTable, SharedFacts
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

COUNT = 20
ROWS = 10
HIT = 7
"""The number of the file that the tests change."""


def rows_of(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": [f"name {number} {i}" for i in ids],
        "day": pa.array([i * 86_400_000_000 for i in ids], pa.timestamp("us")),
        "x": [float(i) for i in ids],
        "flag": [i % 2 == 0 for i in ids],
        "maybe": [None if i % 3 else i for i in ids],
        "list": [[i] for i in ids],
    }
    return pa.table(columns)


class Dataset:
    """A dataset of 20 files with a current index."""

    def __init__(self, root: Path) -> None:
        self.root, self.io = root, PyarrowDatasetIO()
        root.mkdir(parents=True)
        for number in range(COUNT):
            bloom = {"id": {"ndv": ROWS, "fpp": 0.01}}
            pq.write_table(
                rows_of(number), self.path(number), row_group_size=5, bloom_filter_options=bloom, compression="none"
            )
        rebuild_index(self.place)

    def path(self, number: int) -> Path:
        return self.root / f"part-{number:03}.parquet"

    @property
    def place(self) -> Place:
        return Place.of(str(self.root), None, None)

    @property
    def parts(self) -> list[Path]:
        return sorted(self.root.parent.glob(f".{self.root.name}.fsspeckit/index/*.footers"))

    def upsert(self, key: int = HIT * ROWS + 3) -> None:
        source = rows_of(key // ROWS).slice(key % ROWS, 1).set_column(1, "name", [["new"]])
        self.io.merge(source, str(self.root), strategy="upsert", key_columns="id")

    def names(self) -> Counter[Any]:
        """The rows of all files, read without fsspeckit."""
        return Counter(pq.read_table(self.root, columns=["id", "name"]).to_pandas().itertuples(index=False, name=None))


@pytest.fixture(autouse=True)
def _few_files_have_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsspeckit.core.dataset.indexed_files.MIN_LOCAL_FILES", COUNT)
    monkeypatch.setattr("fsspeckit.core.commit.file_kinds.MIN_LOCAL_FILES", COUNT)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset(tmp_path / "lake" / "ds")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The data files that were opened, by name without the part that each rewrite changes."""
    found: Counter[str] = Counter()
    for method in ("read_tail", "open_input"):
        call = getattr(LocalStorage, method)

        def counted(self: LocalStorage, path: str, *args: Any, call: Callable[..., Any] = call) -> Any:
            if path.endswith((".parquet", "_0")):
                found[f"{name_stem(path)}.parquet"] += 1
            return call(self, path, *args)

        monkeypatch.setattr(LocalStorage, method, counted)
    return found


def expected(changed: int | None = HIT * ROWS + 3) -> Counter[Any]:
    rows = [(i, f"name {i // ROWS} {i}") for i in range(COUNT * ROWS)]
    return Counter((i, "new" if i == changed else name) for i, name in rows)


def test_only_the_changed_file_is_opened(dataset: Dataset, opened: Counter[str]) -> None:
    dataset.upsert()
    assert set(opened) == {dataset.path(HIT).name}
    assert dataset.names() == expected()
    for number, where in ((4, "name = 'name 4 44'"), (3, "id BETWEEN 31 AND 33"), (0, "id < 10")):
        opened.clear()
        dataset.io.delete(str(dataset.root), where=where)
        assert set(opened) == {dataset.path(number).name}, "the index has the bounds of every column"
    assert len(dataset.parts) <= 3


def test_the_index_has_the_facts_of_the_footers(dataset: Dataset) -> None:
    columns = rows_of(0).column_names
    place = dataset.place
    with_index = load_snapshot(place.storage, place.journal.view(), stats_for=columns)
    without = load_snapshot(place.storage, replace(place.journal.view(), index=None), stats_for=columns)
    assert all(file.from_index for file in with_index.files)
    assert not any(file.from_index for file in without.files)
    assert tuple(with_index.files) == tuple(without.files)
    assert with_index.schema == without.schema


# Damage: the digest detects it, and the index is not used.


def _damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    for share in (0.01, 0.3, 0.9):
        yield f"cut at {share}", data[: int(len(data) * share)]
    yield "one byte short", data[:-1]
    yield "longer", data + b"x"
    yield "other program", b"PAR1" + data
    yield "other version", data.replace(b"FOOTERS 2", b"FOOTERS 9", 1)
    for at in range(0, len(data), max(1, len(data) // 60)):
        yield f"bit at {at}", data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def test_damage_costs_time_only(dataset: Dataset, opened: Counter[str]) -> None:
    part = dataset.parts[0]
    before = part.read_bytes()
    for name, data in _damages(before):
        part.write_bytes(data)
        opened.clear()
        place = dataset.place
        files = load_snapshot(place.storage, place.journal.view(), stats_for=["id"]).files
        assert not any(file.from_index for file in files), name
        assert len(opened) == COUNT, name
    dataset.upsert()
    assert dataset.names() == expected()
    assert part not in dataset.parts, "the next commit removes the damaged file"


def test_stale_entry_of_a_file_with_the_same_size_and_time(dataset: Dataset, opened: Counter[str]) -> None:
    """Another program exchanges the rows of two files in place, and sets the times back."""
    one, other = dataset.path(HIT), dataset.path(HIT + 1)
    assert one.stat().st_size == other.stat().st_size
    contents = one.read_bytes(), other.read_bytes()
    for path, data in ((one, contents[1]), (other, contents[0])):
        times = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    dataset.upsert()
    assert set(opened) == {one.name, other.name}
    assert dataset.names() == expected()


# Falsified fields with a right digest: the index is not used, or a file that is opened shows the difference.


def _with_value(array: pa.Array, at: int, value: Any) -> pa.Array:
    values = array.to_pylist()
    values[at] = value
    return pa.array(values, array.type)


def _file_field(name: str, value: Any) -> Callable[[FooterTable], FooterTable]:
    def change(table: FooterTable) -> FooterTable:
        at = table.files.schema.get_field_index(name)
        old = table.files.column(at)
        new = _with_value(old, HIT, value(old[HIT].as_py()) if callable(value) else value)
        return replace(table, files=table.files.set_column(at, table.files.schema.field(at), new))

    return change


def _group_rows(*changes: int) -> Callable[[FooterTable], FooterTable]:
    def change(table: FooterTable) -> FooterTable:
        rows = table.group_rows.copy()
        for number, difference in enumerate(changes):
            rows[2 * HIT + number] += difference
        return replace(table, group_rows=rows)

    return change


def _overflowing_counts(table: FooterTable) -> FooterTable:
    """The numbers of row groups have the right sum in 64 bits."""
    at = table.files.schema.get_field_index("row_groups")
    counts = table.numbers("row_groups").copy()
    counts[:4] += 2**62
    return replace(table, files=table.files.set_column(at, table.files.schema.field(at), pa.array(counts)))


def _statistic(part: str, column: str, value: Any) -> Callable[[FooterTable], FooterTable]:
    def change(table: FooterTable) -> FooterTable:
        facts = table.columns[column]
        array = getattr(facts, part)
        new = _with_value(array, 2 * HIT, value(array[2 * HIT].as_py()) if callable(value) else value)
        return replace(table, columns={**table.columns, column: replace(facts, **{part: new})})

    return change


def _shared(**changes: Callable[[SharedFacts], Any]) -> Callable[[FooterTable], FooterTable]:
    def change(table: FooterTable) -> FooterTable:
        found = {name: value(table.shared) for name, value in changes.items()}
        return replace(table, shared=replace(table.shared, **found))

    return change


def _native(type_: pa.DataType | None) -> Callable[[FooterTable], FooterTable]:
    return _shared(natives=lambda own: {**own.natives, "id": type_})


def _fields_with(schema: pa.Schema, name: str, field: pa.Field) -> pa.Schema:
    return schema.set(schema.get_field_index(name), field)


@dataclass(frozen=True)
class Falsified:
    """A change to an index, and what detects it: the index itself, the listing, or the opened file."""

    field: str
    change: Callable[[FooterTable], FooterTable]
    detected_by: str


SORT = {"curve": "linear", "columns": ["id"], "run": "r", "rows": ROWS, "ends": [[0], [9]], "target": [1, 1]}
SORT_NOTE = json.dumps(SORT).encode()
FALSIFIED = {
    "path of another file": Falsified("path", _file_field("path", "part-999.parquet"), "listing"),
    "path outside": Falsified("path", _file_field("path", "../../etc/passwd"), "listing"),
    "size": Falsified("size", _file_field("size", lambda size: size + 1), "listing"),
    "version": Falsified("version", _file_field("version", "1:2:3"), "listing"),
    "rows": Falsified("rows", _file_field("rows", lambda rows: rows + 1), "index"),
    "negative rows": Falsified("rows", _file_field("rows", -1), "index"),
    "fewer row groups": Falsified("row_groups", _file_field("row_groups", 1), "index"),
    "row groups with an overflow": Falsified("row_groups", _overflowing_counts, "index"),
    "uncompressed": Falsified("uncompressed", _file_field("uncompressed", 1), "file"),
    "codec": Falsified("codec", _file_field("codec", 2), "file"),
    "unknown codec": Falsified("codec", _file_field("codec", 99), "index"),
    "footer": Falsified("footer", _file_field("footer", lambda size: size - 1), "file"),
    "small footer": Falsified("footer", _file_field("footer", 3), "index"),
    "sort note": Falsified("sort_note", _file_field("sort_note", SORT_NOTE), "file"),
    "rows moved between row groups": Falsified("group rows", _group_rows(1, -1), "file"),
    "lower bound": Falsified("lower", _statistic("lower", "id", lambda bound: bound - 1), "file"),
    "upper bound": Falsified("upper", _statistic("upper", "id", lambda bound: bound + 1), "file"),
    "nulls": Falsified("nulls", _statistic("nulls", "id", 1), "file"),
    "more nulls than rows": Falsified("nulls", _statistic("nulls", "id", 6), "index"),
    "filter elsewhere": Falsified("bloom_offset", _statistic("bloom_offset", "id", lambda at: at + 1), "file"),
    "filter size": Falsified("bloom_size", _statistic("bloom_size", "id", lambda size: size - 1), "file"),
    "large filter": Falsified("bloom_size", _statistic("bloom_size", "id", 2**62), "index"),
    "schema: type": Falsified(
        "schema", _shared(schema=lambda own: _fields_with(own.schema, "x", pa.field("x", pa.float32()))), "file"
    ),
    "schema: no key": Falsified(
        "schema", _shared(schema=lambda own: _fields_with(own.schema, "id", pa.field("other", pa.int64()))), "index"
    ),
    "int96": Falsified("int96", _shared(int96=lambda _: ("day",)), "index"),
    "natives: other width": Falsified("natives", _native(pa.int32()), "index"),
    "natives: unknown": Falsified("natives", _native(None), "file"),
}


def test_every_field_is_falsified() -> None:
    fields = {*FILES.names, *STATISTICS, *SharedFacts.__slots__, "group rows"}
    assert {each.field for each in FALSIFIED.values()} == fields


@pytest.mark.parametrize("name", FALSIFIED)
def test_falsified_field_changes_no_row(dataset: Dataset, opened: Counter[str], name: str) -> None:
    falsified = FALSIFIED[name]
    part = dataset.parts[0]
    tables = footer_format.from_bytes(part.read_bytes())
    part.write_bytes(footer_format.to_bytes([falsified.change(table) for table in tables]))
    before = {path: path.read_bytes() for path in dataset.root.iterdir()}
    if falsified.detected_by == "file":
        with pytest.raises(StorageError, match="--rebuild-index"):
            dataset.upsert()
        assert {path: path.read_bytes() for path in dataset.root.iterdir()} == before
        rebuild_index(dataset.place)
    dataset.upsert()
    if falsified.detected_by == "index":
        assert len(opened) == COUNT
    assert dataset.names() == expected()


def test_files_without_an_ending_are_looked_at_once(dataset: Dataset, opened: Counter[str]) -> None:
    """Later processes know from the index which of them are Parquet, until their size or version changes."""
    names = [f"{number:06}_0" for number in range(2 * COUNT)]
    for number, name in enumerate(names):
        path = dataset.root / name
        if number % 2:
            pq.write_table(rows_of(COUNT + number), path)
        else:
            path.write_bytes(b"x" * 100)
        os.utime(path, (1, 1))
    dataset.upsert()
    for key in (11, 12, 13):
        file_kinds._KNOWN.clear()
        opened.clear()
        dataset.upsert(key)
        assert not {name for name in opened if name.removesuffix(".parquet") in names}
    (dataset.root / names[0]).write_bytes((dataset.root / names[1]).read_bytes())
    file_kinds._KNOWN.clear()
    assert dataset.io.read_parquet(str(dataset.root), columns=["id"]).num_rows == ROWS * (2 * COUNT + 1)

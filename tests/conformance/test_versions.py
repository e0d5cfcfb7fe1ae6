"""Kept versions on every engine: random sequences of operations against an oracle that keeps every version."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds
import pytest

from fsspeckit.common.errors import VersionNotFoundError

_STEPS = {"pyarrow": 25, "pyarrow-exchange": 12, "duckdb": 12, "spark": 8, "spark-exchange": 6}
_KEYS = 30
COLUMNS = ("id", "value", "day")
REMOVED, ADDED = ("delete", "update_before"), ("insert", "update_after")
Rows = Counter[tuple[Any, ...]]


def rows_of(table: pa.Table) -> Rows:
    columns = (table[name].to_pylist() for name in COLUMNS)
    return Counter(zip(*columns, strict=True))


@dataclass
class Dataset:
    """A dataset with kept versions, and the rows of every version as another reader saw them."""

    io: Any
    path: str
    seen: Callable[[], Rows]
    rng: random.Random
    versions: dict[int, Rows] = field(default_factory=dict)

    def note(self) -> None:
        self.versions[self.io.history(self.path)[0].version] = self.seen()

    def some_rows(self, count: int) -> pa.Table:
        ids = self.rng.sample(range(_KEYS), count)
        values = [self.rng.choice(["a", "b", None]) for _ in ids]
        return pa.table({"id": ids, "value": values, "day": [f"d{key % 3}" for key in ids]})

    def upsert(self) -> None:
        self.io.merge(self.some_rows(4), self.path, strategy="upsert", key_columns="id")

    def append(self) -> None:
        self.io.write_dataset(self.some_rows(3), self.path)

    def delete(self) -> None:
        self.io.delete(self.path, where=f"id % 5 = {self.rng.randrange(5)}")

    def update(self) -> None:
        self.io.update(self.path, set={"value": "'u'"}, where=f"id < {self.rng.randrange(_KEYS)}")

    def overwrite(self) -> None:
        self.io.write_dataset(self.some_rows(8), self.path, mode="overwrite_partitions")

    def deduplicate(self) -> None:
        self.io.deduplicate_parquet_dataset(self.path, key_columns="id")

    def compact(self) -> None:
        self.io.compact_parquet_dataset(self.path, target_mb_per_file=1)

    def optimize(self) -> None:
        self.io.optimize_parquet_dataset(self.path, zorder_columns="id", target_rows_per_file=7, force=True)

    def restore(self) -> None:
        wanted = self.rng.choice(sorted(self.versions))
        self.io.restore(self.path, version=wanted)
        assert self.seen() == self.versions[wanted]

    def step(self) -> None:
        operations = (self.append, self.delete, self.update, self.overwrite, self.deduplicate, self.compact)
        chosen = self.rng.choice((self.upsert, self.upsert, self.restore, self.optimize, *operations))
        chosen()
        self.note()


def start(io: Any, path: str, seen: Callable[[], Rows], rng: random.Random) -> Dataset:
    dataset = Dataset(io, path, seen, rng)
    io.write_dataset(dataset.some_rows(20), path, partition_by="day")
    io.keep_history(path, retain="1d")
    dataset.note()
    return dataset


def check_all_versions(dataset: Dataset) -> None:
    readable = {each.version for each in dataset.io.history(dataset.path) if each.readable}
    assert readable == set(dataset.versions)
    for version, rows in dataset.versions.items():
        assert rows_of(dataset.io.read_parquet(dataset.path, version=version)) == rows, version


def feed_of(dataset: Dataset, **options: Any) -> list[dict[str, Any]]:
    feed = dataset.io.changes(dataset.path, **options)
    rows = feed.to_pylist() if isinstance(feed, pa.Table) else [row.asDict() for row in feed.collect()]
    return sorted(rows, key=lambda row: row["_version"])


def check_changes(dataset: Dataset) -> None:
    """The changes since a version, applied to its rows, give the rows of every later version."""
    numbers = sorted(dataset.versions)
    operations = {each.version: each.operation for each in dataset.io.history(dataset.path)}
    for keys in (None, "id"):
        feed = feed_of(dataset, since=numbers[0], key_columns=keys)
        assert not {row["_version"] for row in feed if operations[row["_version"]] in ("compact", "optimize")}
        rows = Counter(dataset.versions[numbers[0]])
        for number in numbers[1:]:
            own = [row for row in feed if row["_version"] == number]
            gone = [tuple(row[name] for name in COLUMNS) for row in own if row["_change_type"] in REMOVED]
            come = [tuple(row[name] for name in COLUMNS) for row in own if row["_change_type"] in ADDED]
            assert len(gone) + len(come) == len(own)
            assert not Counter(gone) & Counter(come)
            assert not Counter(gone) - rows
            rows = rows - Counter(gone) + Counter(come)
            assert rows == dataset.versions[number], number
            check_updates(own, keys)
    middle, last = numbers[len(numbers) // 2], numbers[-1]
    part = feed_of(dataset, since=middle, until=last, key_columns="id")
    assert Counter(map(str, part)) == Counter(str(row) for row in feed if row["_version"] > middle)
    assert feed_of(dataset, since=last) == []


def check_updates(rows: list[dict[str, Any]], keys: str | None) -> None:
    """A key is updated if a commit removed and added rows of it."""
    gone = {row["id"] for row in rows if row["_change_type"] in REMOVED}
    both = gone & {row["id"] for row in rows if row["_change_type"] in ADDED} if keys else set()
    for row in rows:
        assert row["_change_type"].startswith("update") == (row["id"] in both)


def test_random_sequences_read_every_version(io: Any, engine: str, tmp_path: Path, rng: random.Random) -> None:
    path = str(tmp_path / "d")
    schema = pa.schema([("id", pa.int64()), ("value", pa.string()), ("day", pa.string())])
    foreign = lambda: pds.dataset(path, schema, partitioning="hive").to_table()  # noqa: E731
    dataset = start(io, path, lambda: rows_of(foreign()), rng)
    for _ in range(_STEPS[engine]):
        dataset.step()
    check_all_versions(dataset)
    check_changes(dataset)
    oldest = min(dataset.versions)
    if hasattr(io, "read"):
        assert rows_of(pa.Table.from_pandas(io.read(path, version=oldest).toPandas())) == dataset.versions[oldest]
    io.vacuum(path, older_than="0s")
    with pytest.raises(VersionNotFoundError, match="Versions from"):
        io.read_parquet(path, version=oldest)
    assert rows_of(io.read_parquet(path)) == dataset.seen()


def test_sequence_on_an_object_store(
    make_io: Callable[..., Any], engine: str, s3_server: Any, s3_bucket: str, rng: random.Random
) -> None:
    io, path = make_io(storage_options=s3_server.storage_options), f"s3://{s3_bucket}/lake/{uuid.uuid4().hex}"
    other = s3_server.filesystem()

    def foreign() -> Rows:
        other.invalidate_cache()
        folder = path.removeprefix("s3://")
        files = [name for name in other.find(folder) if name.endswith(".parquet")]
        return rows_of(pds.dataset(files, filesystem=other, partition_base_dir=folder, partitioning="hive").to_table())

    dataset = start(io, path, foreign, rng)
    for _ in range(_STEPS[engine] // 3):
        dataset.step()
    check_all_versions(dataset)
    check_changes(dataset)

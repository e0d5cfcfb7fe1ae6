"""Bloom filters drop only row groups that contain none of the keys."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.planning.bloom import drop_by_bloom, xxh64
from fsspeckit.core.planning.statistics import KeySet
from fsspeckit.core.storage import resolve
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = 4000


def values_of(kind: str) -> tuple[pa.Array, pa.Array]:
    """Values in the file (every other one of a range), and values that are not."""
    numbers = list(range(0, 2 * ROWS, 2))
    absent = [number + 1 for number in numbers]
    if kind == "string":
        return pa.array([f"key-{n}" for n in numbers]), pa.array([f"key-{n}" for n in absent])
    if kind == "uuid":
        present = [str(uuid.UUID(int=n * 2**64)) for n in numbers]
        return pa.array(present), pa.array([str(uuid.UUID(int=n * 2**64)) for n in absent])
    types = {"int64": pa.int64(), "int32": pa.int32(), "uint32": pa.uint32(), "ts": pa.timestamp("us")}
    return pa.array(numbers, types[kind]), pa.array(absent, types[kind])


@pytest.mark.parametrize("kind", ["int64", "int32", "uint32", "ts", "string", "uuid"])
def test_probe_has_no_false_negatives_and_few_false_positives(tmp_path, kind):
    present, absent = values_of(kind)
    folder = tmp_path / "data"
    folder.mkdir()
    table = pa.table({"k": present})
    pq.write_table(
        table, folder / "a.parquet", row_group_size=1000, bloom_filter_options={"k": {"ndv": 1000, "fpp": 0.01}}
    )
    storage, root = resolve(folder)
    file = load_snapshot(storage, Journal(storage, root).view(), stats_for=["k"]).files[0]
    for group in range(4):
        for start in range(group * 1000, group * 1000 + 1000, 50):
            keys = KeySet.of(pa.chunked_array([present.slice(start, 20)]))
            assert group in drop_by_bloom(storage, file, (0, 1, 2, 3), {"k": keys})
    probes = [KeySet.of(pa.chunked_array([absent.slice(i, 1)])) for i in range(0, ROWS, 40)]
    alarms = sum(len(drop_by_bloom(storage, file, (0, 1, 2, 3), {"k": keys})) for keys in probes)
    assert alarms < 0.1 * 4 * len(probes)


def test_hash_agrees_with_published_vectors():
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    assert xxh64(b"Call me Ishmael. Some years ago--never mind how long precisely-") == 0x02A2E85470D6FD96


def test_a_merge_names_the_filter_as_the_reason(tmp_path):
    """A key inside the file's range that is not in the file is excluded without reading the key column."""
    folder = tmp_path / "events"
    folder.mkdir()
    numbers = pa.array(range(0, 2000, 2))
    table = pa.table({"id": numbers, "at": pa.array([dt.date(2026, 1, 1)] * 1000)})
    pq.write_table(table, folder / "a.parquet", bloom_filter_options={"id": {"ndv": 1000, "fpp": 0.001}})
    io = PyarrowDatasetIO(publish="replace")
    row = pa.table({"id": [501], "at": [dt.date(2026, 1, 2)]})
    plan = io.merge(row, folder, strategy="update", key_columns="id", dry_run=True)
    assert [(entry.action, entry.reason) for entry in plan.entries] == [("keep", "bloom")]
    row = pa.table({"id": [502], "at": [dt.date(2026, 1, 2)]})
    io.merge(row, folder, strategy="update", key_columns="id")
    after = pq.ParquetFile(folder / "a.parquet").metadata.row_group(0).column(0)
    assert after.bloom_filter_offset is not None


def test_a_filter_is_probed_with_all_keys_or_not_at_all(tmp_path, monkeypatch):
    """Of very many strings only the bounds are kept; probing only those would lose all keys between them."""
    monkeypatch.setattr("fsspeckit.core.planning.statistics._MAX_SORTED_TEXTS", 50)
    folder = tmp_path / "events"
    folder.mkdir()
    texts = [f"k{i:04d}" for i in range(100)]
    rows = pa.table({"id": texts[40:60], "v": [0] * 20})
    pq.write_table(rows, folder / "a.parquet", bloom_filter_options={"id": {"ndv": 20, "fpp": 0.001}})
    source = pa.table({"id": texts, "v": [1] * 100})
    result = PyarrowDatasetIO().merge(source, folder, strategy="upsert", key_columns="id")
    assert result.stats() == {"inserted": 80, "updated": 20, "deleted": 0, "total": 100}

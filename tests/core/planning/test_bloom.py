"""Bloom filters drop only row groups that contain none of the keys."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.planning.bloom import drop_by_bloom, xxh64
from fsspeckit.core.planning.statistics import KeySet
from fsspeckit.core.storage import resolve

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

"""The join gives the same matches as the local engine, for keys of every type, in groups and in parts."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from conformance.datatypes import KEY_KINDS
from conformance.effort import run_examples
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.model import KeyColumn, KeySetSpec, Scan
from fsspeckit.core.storage import resolve
from fsspeckit.core.values.keys import key_type
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, matching
from fsspeckit.datasets.duckdb.matching import match_by_join


def unique(values, nulls):
    seen = {}
    for value in values:
        seen.setdefault(repr(value + 0.0) if isinstance(value, (float, np.floating)) else repr(value), value)
    return [*seen.values(), *([None] if nulls else [])]


def both_ways(folder, source, specs, groups):
    storage, root = resolve(folder)
    snapshot = load_snapshot(storage, Journal(storage, root).view())
    scans = [Scan(f, tuple(range(len(f.row_groups))), g) for f, g in zip(snapshot.files, groups, strict=True)]
    scans = [replace(scan, row_groups=scan.row_groups[1:]) if i == 1 else scan for i, scan in enumerate(scans)]
    connection = duckdb.connect(config={"default_collation": "NOCASE"})
    done = []
    joined = match_by_join(connection, storage, source, specs, scans, done.append)
    assert sum(done) == len(scans)
    shared = LocalEngine().match(storage, source, specs, scans, done.append)
    for ours, theirs in zip(joined, shared, strict=True):
        assert ours.positions.tolist() == theirs.positions.tolist()
        assert ours.source_rows.tolist() == theirs.source_rows.tolist()
    return joined


@pytest.mark.parametrize("name", KEY_KINDS)
@pytest.mark.parametrize("composite", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_keys_of_every_type(name, composite):
    kind = KEY_KINDS[name]

    def check(drawn):
        target, source, nulls = drawn
        wanted = pa.array(unique(source, nulls), kind.source)
        columns = {"k": wanted} | ({"c": pa.array(["x"] * len(wanted))} if composite else {})
        keys = tuple(KeyColumn(n, key_type(kind.stored if n == "k" else pa.string())) for n in columns)
        with tempfile.TemporaryDirectory() as folder:
            for i, part in enumerate((target, [*target, *source])):
                values = pa.array([*part, *([None] if nulls else [])], kind.target)
                file = pa.table({"k": values, "c": ["x", "y", "X"] * (len(values) // 3) + ["x"] * (len(values) % 3)})
                pq.write_table(file, f"{folder}/{i}.parquet", row_group_size=3)
            rows = Source(pa.table(columns))
            both_ways(folder, rows, [KeySetSpec(range(rows.rows), keys)], [0, 0])

    values = st.lists(kind.values, min_size=1, max_size=8)
    run_examples(f"join {name} {composite}", 4, st.tuples(values, values, st.booleans()), check)


def texts(folder, files):
    for number, names in enumerate(files):
        pq.write_table(pa.table({"k": pa.array(names, pa.string())}), f"{folder}/{number}.parquet", row_group_size=2)


def test_each_file_is_compared_with_the_rows_of_its_group(tmp_path):
    texts(tmp_path, [["a", "b"], ["z", "z", "b", "c"], ["a", "c"], ["b"]])
    source = Source(pa.table({"k": ["a", "b", "a", "c", "b"]}))
    keys = (KeyColumn("k", pa.string()),)
    specs = [KeySetSpec(range(2), keys), KeySetSpec(np.array([2, 3, 4]), keys), KeySetSpec(range(0), keys)]
    found = both_ways(str(tmp_path), source, specs, [0, 1, 0, 2])
    assert [match.source_rows.tolist() for match in found] == [[0, 1], [4, 3], [0], []]
    assert [match.positions.tolist() for match in found] == [[0, 1], [2, 3], [0], []]


def test_null_keys_match_each_other(tmp_path):
    texts(tmp_path, [["a", None], [None, None, None, "b"]])
    source = Source(pa.table({"k": pa.array([None, "b"], pa.string())}))
    found = both_ways(str(tmp_path), source, [KeySetSpec(range(2), (KeyColumn("k", pa.string()),))], [0, 0])
    assert [match.source_rows.tolist() for match in found] == [[0], [0, 1]]


def test_small_parts_give_the_same_matches(tmp_path, monkeypatch):
    texts(tmp_path, [[f"{i}-{j}" for j in range(5)] for i in range(7)])
    source = Source(pa.table({"k": [f"{i}-{j}" for i in range(7) for j in (4, 1, 9)]}))
    specs = [KeySetSpec(range(source.rows), (KeyColumn("k", pa.string()),))]
    whole = both_ways(str(tmp_path), source, specs, [0] * 7)
    monkeypatch.setattr(matching, "MAX_BATCH_ROWS", 8)
    parts = both_ways(str(tmp_path), source, specs, [0] * 7)
    assert [m.positions.tolist() for m in whole] == [m.positions.tolist() for m in parts]


def test_many_rows_are_returned_in_order(tmp_path):
    """Enough rows for several DuckDB threads and vectors; the only row group of the second file is not scanned."""
    io = DuckDBDatasetIO()
    rows = io.connection.sql("SELECT md5(range::VARCHAR) AS k FROM range(450000)").to_arrow_table()
    io.write_dataset(rows, str(tmp_path / "d"), max_rows_per_file=150_000)
    order = np.random.default_rng(7).permutation(450_000)
    source = Source(rows.take(pa.array(order)))
    found = both_ways(
        str(tmp_path / "d"), source, [KeySetSpec(range(450_000), (KeyColumn("k", pa.string()),))], [0] * 3
    )
    assert [len(match.positions) for match in found] == [150_000, 0, 150_000]

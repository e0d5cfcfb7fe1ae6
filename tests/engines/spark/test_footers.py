"""Executors read the footers of very many files, and the plan is the one of an engine that reads them itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from inside import footer_chunk, lower
from inside import snapshot_module as snapshot

pytestmark = pytest.mark.more

FILES = 30


def test_executors_read_many_footers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "footers of a job", 10)
    lower(monkeypatch, "files of an index")
    monkeypatch.setattr(snapshot, "_CHUNK", 7)
    answers: list[bytes] = []
    read = snapshot.from_bytes
    monkeypatch.setattr(snapshot, "from_bytes", lambda data: answers.append(data) or read(data))
    root = tmp_path / "ds"
    root.mkdir()
    for number in range(FILES):
        table = pa.table({"id": range(number * 10, number * 10 + 10), "v": [number] * 10})
        pq.write_table(table, root / f"{number:03}.parquet")
    source = pa.table({"id": [55, 1000], "v": [-1, -1]})

    def plan(io: Any) -> Any:
        return io.merge(source, str(root), strategy="upsert", key_columns="id", dry_run=True)

    expected = plan(PyarrowDatasetIO())
    assert not answers
    found = plan(SparkDatasetIO())
    assert len(answers) == 5
    kept = [(e.path, e.action, e.reason, e.rows) for e in found.entries if e.action != "insert"]
    assert kept == [(e.path, e.action, e.reason, e.rows) for e in expected.entries if e.action != "insert"]
    SparkDatasetIO().merge(source, str(root), strategy="upsert", key_columns="id")
    answers.clear()
    monkeypatch.setattr(footer_chunk, "read_data_files", None)
    assert plan(SparkDatasetIO()).updated == 2
    assert not answers, "the commit put the footers into the index"
    (root / "999.parquet").write_bytes(b"no Parquet")
    lower(monkeypatch, "footers of a job", 1)
    with pytest.raises(DamagedFileError, match=r"999\.parquet"):
        SparkDatasetIO().delete(str(root), where="v = 5")

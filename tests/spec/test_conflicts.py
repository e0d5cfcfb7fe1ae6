"""The table of conflicts in docs/guarantees.md is what happens, on local disk and on S3."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from spec.conflicts import PAGE, page_with, pairs, render, table_of_page, try_pair
from sweeps import Sweep

_IN_CI = {"local": 6, "s3": 1}


def test_the_table_of_conflicts_has_every_pair() -> None:
    cells = table_of_page()
    assert set(cells) == set(pairs())
    assert PAGE.read_text("utf-8") == page_with(render(cells)), "docs/guarantees.md is stale: run `make conflicts`"


def test_pairs_on_local_disk(tmp_path: Path, sweep: Sweep, rng: random.Random) -> None:
    cells, chosen = table_of_page(), pairs() if sweep.full else rng.sample(pairs(), _IN_CI["local"])
    found = {pair: try_pair(PyarrowDatasetIO(), str(tmp_path), *pair) for pair in chosen}
    assert found == {pair: cells[pair] for pair in chosen}


def test_pairs_on_s3(s3_server: Any, s3_bucket: str, sweep: Sweep, rng: random.Random) -> None:
    io = PyarrowDatasetIO(storage_options=s3_server.storage_options)
    cells, chosen = table_of_page(), pairs() if sweep.full else rng.sample(pairs(), _IN_CI["s3"])
    found = {pair: try_pair(io, f"s3://{s3_bucket}", *pair) for pair in chosen}
    assert found == {pair: cells[pair] for pair in chosen}

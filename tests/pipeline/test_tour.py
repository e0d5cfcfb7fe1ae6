"""The tour of `make demo`, with few rows."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytestmark = pytest.mark.spark
TOUR = Path(__file__).parents[2] / "examples" / "tour.py"


def test_the_tour_shows_a_join_a_change_feed_a_quarantine_and_history(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(TOUR))["tour"](tmp_path, 4_000)
    shown = capsys.readouterr().out
    for text in ("in the quarantine", "by a feed of the changes", "The versions of the orders", "skipped", "Reports:"):
        assert text in shown
    lake, io = tmp_path / "lake", PyarrowDatasetIO()
    wrong = io.read_parquet(str(min(lake.glob("wrong-*"))))
    assert set(wrong["quarantine_reason"].to_pylist()) == {"positive"}
    assert set(wrong["cents"].to_pylist()) == {0}
    orders = io.read_parquet(str(lake / "orders"), columns=["order_id", "cents"])
    totals = io.read_parquet(str(lake / "totals"))
    assert sum(totals["orders"].to_pylist()) == orders.num_rows == len(set(orders["order_id"].to_pylist()))
    assert sum(version.readable for version in io.history(str(lake / "orders"))) > 3

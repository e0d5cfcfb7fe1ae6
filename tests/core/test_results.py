"""What operations give back shows itself in a notebook: each as a table of HTML, with names quoted."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


class Cells(HTMLParser):
    """The text of each cell, and tags that do not belong into a table."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.strange: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.strange |= {tag} - {"table", "tr", "td", "th"}
        self.texts += [""] if tag in ("td", "th") else []

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


def test_every_result_is_a_table_of_html(tmp_path: Path) -> None:
    io, folder = PyarrowDatasetIO(), str(tmp_path / "<b>&amp;")
    rows = pa.table({"id": [1, 2]})
    written = io.write_dataset(rows, folder)
    io.write_dataset(rows.slice(1), folder)
    plan = io.merge(rows, folder, strategy="insert", key_columns="id", dry_run=True)
    merged = io.merge(rows, folder, strategy="insert", key_columns="id")
    single = io.deduplicate_parquet_dataset(folder, ["id"])
    joined = io.compact_parquet_dataset(folder, target_mb_per_file=1)
    sorted_ = io.optimize_parquet_dataset(folder, ["id"], force=True)
    for result in (written, plan, merged, single, joined, sorted_, io.recover(folder)):
        cells = Cells(result._repr_html_())
        assert cells.strange == set(), result
        shown = dict(zip(cells.texts[::2], cells.texts[1::2], strict=True))
        assert len(shown) >= 2
        assert all(f"{name}" in str(result) and value in str(result) for name, value in shown.items())
    assert folder in Cells(plan._repr_html_()).texts[1]

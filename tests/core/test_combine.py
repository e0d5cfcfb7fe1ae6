"""The kernel that joins files: many small pieces gathered into row groups, and footers of any length."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.footer import read_footer
from fsspeckit.core.storage_local import LocalStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

_FILES, _ROWS, _GROUP = 57, 7, 100


def test_rows_of_many_small_files_keep_their_order_and_fill_row_groups(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    ids = list(range(_FILES * _ROWS))
    rows = pa.table(
        {"id": ids, "state": [f"s{i % 11}" for i in ids], "text": [None if i % 5 else f"t{i}" for i in ids]}
    )
    for i in range(_FILES):
        pq.write_table(rows.slice(i * _ROWS, _ROWS), folder / f"part-{i:03d}.parquet")

    PyarrowDatasetIO().compact_parquet_dataset(str(folder), target_rows_per_file=10_000, row_group_size=_GROUP)

    (joined,) = folder.glob("*.parquet")
    meta = pq.read_metadata(joined)
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [100, 100, 100, 99]
    assert pq.ParquetFile(joined, page_checksum_verification=True).read().equals(rows)


def test_a_footer_longer_than_the_first_read_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"a column with a long name {i}": [i] for i in range(300)}), path)

    reader, length = read_footer(LocalStorage(), str(path), path.stat().st_size)

    assert length > 16 * 1024
    assert reader.metadata.num_columns == 300

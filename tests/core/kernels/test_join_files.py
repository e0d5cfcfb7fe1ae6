"""The kernel that joins files: many small files are joined into row groups, and footers may have any length."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.commit.transaction import Journal
from fsspeckit.core.dataset import snapshot
from fsspeckit.core.kernels import join_files
from fsspeckit.core.kernels.join_files import RowForm, lead_footer, read_file
from fsspeckit.core.parquet.footer import read_footer
from fsspeckit.core.storage.local import LocalStorage
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


def test_a_footer_longer_than_the_first_read_is_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"a column with a long name {i}": [i] for i in range(300)}), path)

    footer = read_footer(LocalStorage(), str(path), path.stat().st_size)

    assert len(footer.data) > 16 * 1024
    assert len(footer.leaves) == 300


def test_blocks_of_joined_pieces_end_where_row_groups_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_files, "_BLOCK_ROWS", 30)
    test_rows_of_many_small_files_keep_their_order_and_fill_row_groups(tmp_path)


def test_footers_are_kept_only_on_request_and_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, rows = LocalStorage(), pa.table({"id": [1, 2], "text": ["a", None]})
    for i in range(3):
        pq.write_table(rows, tmp_path / f"part-{i}.parquet")
    view = Journal(storage, str(tmp_path)).view()
    size = pq.read_metadata(tmp_path / "part-0.parquet").serialized_size
    monkeypatch.setattr(snapshot, "_KEPT_FOOTERS", 2 * size)

    without, kept = (snapshot.load_snapshot(storage, view, keep_footers=keep).files for keep in (False, True))

    assert [file.raw_footer is not None for file in kept] == [True, True, False]
    assert [file.raw_footer for file in without] == [None] * 3
    assert kept == without == tuple(pickle.loads(pickle.dumps(kept)))
    for file in kept:
        (table,) = read_file(storage, file, RowForm.of([file], rows.schema, lead_footer(storage, [file])))
        assert table.equals(rows)


def test_a_file_replaced_since_its_footer_was_kept_is_not_read(tmp_path: Path) -> None:
    storage, path = LocalStorage(), tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    (file,) = snapshot.load_snapshot(storage, Journal(storage, str(tmp_path)).view(), keep_footers=True).files
    path.unlink()
    pq.write_table(pa.table({"id": [3, 4, 5]}), path)

    with pytest.raises(FileNotFoundError, match="replaced since it was listed"):
        list(read_file(storage, file, RowForm.of([file], file.schema, None)))

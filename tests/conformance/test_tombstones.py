"""Deleted keys of change feeds: late changes are dropped, on every engine and by every route."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import ColumnNameError, CommitConflictError, DamagedFileError, SchemaMismatchError, StorageError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import tombstones_module as module
from kit import look, tree_of

FEED: dict[str, Any] = {
    "key_columns": "id",
    "sequence_by": "lsn",
    "delete_when": "op = 'd'",
    "except_columns": "op",
}


def feed(*rows: tuple[Any, ...], key: pa.DataType | None = None, lsn: pa.DataType | None = None) -> pa.Table:
    """Changes with id, value, sequence and operation."""
    types = (key or pa.int64(), pa.string(), lsn or pa.int64(), pa.string())
    columns = [pa.array(values, type_) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(columns, ["id", "v", "lsn", "op"])


def stored(base: Path) -> list[Path]:
    return sorted((base / ".d.fsspeckit" / "tombstones").glob("*"))


def test_a_late_change_of_a_deleted_key_is_dropped(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    io.apply_changes(feed((1, "a", 10, "c"), (2, "b", 10, "c"), (3, None, 20, "d")), path, **FEED)
    io.apply_changes(feed((1, None, 20, "d"), (2, None, 5, "d")), path, **FEED)
    late = feed((1, "late", 20, "u"), (3, "late", 19, "c"), (2, "new", 11, "u"), (4, "new", 1, "c"), (1, None, 7, "d"))
    plan = io.apply_changes(late, path, dry_run=True, **FEED)
    result = io.apply_changes(late, path, plan=plan, **FEED)
    for found in (plan, result):
        assert (found.inserted, found.updated, found.deleted, found.stale, found.total) == (1, 1, 0, 2, 2)
    assert look(tmp_path / "d", "id", "v") == [(2, "new"), (4, "new")]
    before = tree_of(tmp_path)
    assert io.apply_changes(late, path, **FEED).stale == 4
    assert tree_of(tmp_path) == before

    newer = feed((1, "again", 21, "c"), (3, None, 30, "d"))
    assert io.apply_changes(newer, path, **FEED).inserted == 1
    result = io.apply_changes(feed((1, "late", 20, "u"), (3, "late", 25, "c")), path, **FEED)
    assert (result.stale, result.commit_seq) == (2, None)
    assert look(tmp_path / "d", "id", "v") == [(1, "again"), (2, "new"), (4, "new")]


def test_a_feed_that_only_deletes_creates_a_dataset_without_rows(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    assert io.apply_changes(feed((1, None, 5, "d")), path, **FEED).total == 0
    assert io.read_parquet(path).num_rows == 0
    assert io.apply_changes(feed((1, "late", 4, "c"), (2, "b", 1, "c")), path, **FEED).stale == 1
    assert look(tmp_path / "d", "id") == [(2,)]


def test_keys_in_folders_and_types_that_become_wider(io: Any, tmp_path: Path) -> None:
    path, options = str(tmp_path / "d"), FEED | {"key_columns": ["id", "day"]}

    def changes(rows: pa.Table, day: str) -> pa.Table:
        return rows.append_column("day", pa.array([day] * rows.num_rows))

    narrow = feed((1, "a", 1, "c"), (2, "b", 1, "c"), key=pa.int16(), lsn=pa.int16())
    io.apply_changes(changes(narrow, "x"), path, partition_by="day", **options)
    wide = feed((1, None, 2**40, "d"), (2**40, None, 9, "d"))
    assert io.apply_changes(changes(wide, "x"), path, **options).deleted == 1
    late = feed((1, "late", 3, "u"), (2, "new", 3, "u"), key=pa.int8(), lsn=pa.int8())
    result = io.apply_changes(changes(late, "x"), path, **options)
    assert (result.stale, result.updated, result.inserted) == (1, 1, 0)
    more = changes(feed((1, "other", 3, "c"), (2**40, "c", 9, "c")), "y")
    with pytest.raises(SchemaMismatchError, match=f"{2**40} of column 'id'"):
        io.apply_changes(more, path, **options)
    result = io.apply_changes(more, path, **options, schema_mode="widen")
    assert (result.stale, result.inserted) == (0, 2)
    texts = feed(("1", "late", 3, "u"), key=pa.string())
    with pytest.raises(SchemaMismatchError):
        io.apply_changes(changes(texts, "x"), path, **options)


def test_types_of_later_feeds_without_a_common_type(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")  # pandas turns whole numbers into floats where a value is missing
    io.apply_changes(feed((1, "a", 1, "c"), (2, None, 5, "d")), path, **FEED)
    for kind in (pa.float64(), pa.uint64()):
        late = feed((2, "late", 4, "u"), (1, "b", 1, "u"), (3, None, 7, "d"), key=kind, lsn=kind)
        io.apply_changes(late, path, **FEED)
        assert look(tmp_path / "d", "id", "v") == [(1, "a")]
    for values in ((2, "x", 5.5, "u"), (2, None, 5.5, "d")):
        with pytest.raises(
            SchemaMismatchError, match=r"5\.5 of column 'lsn' .* source row 0, .* cannot be stored as int64"
        ):
            io.apply_changes(feed(values, lsn=pa.float64()), path, **FEED)


@pytest.mark.parametrize("key", [pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.binary(2)])
def test_types_of_keys(io: Any, tmp_path: Path, key: pa.DataType) -> None:
    names = pa.array([b"ab", b"cd"], pa.binary(2)) if pa.types.is_fixed_size_binary(key) else pa.array(["ab", "cd"])

    def keyed(table: pa.Table) -> pa.Table:
        return table.set_column(0, "id", names.take(table["id"].combine_chunks()).cast(key))

    path = str(tmp_path / "d")
    io.apply_changes(keyed(feed((0, "a", 1, "c"), (1, "b", 1, "c"), (0, None, 3, "d"))), path, **FEED)
    assert io.apply_changes(keyed(feed((0, "late", 2, "u"), (1, None, 2, "d"))), path, **FEED).stale == 1
    assert io.apply_changes(keyed(feed((1, "late", 1, "u"), (0, "new", 4, "u"))), path, **FEED).stale == 1
    assert look(tmp_path / "d", "v") == [("new",)]


def test_tombstones_can_be_turned_off_and_belong_to_one_feed(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    io.apply_changes(feed((1, "a", 1, "c"), (1, None, 5, "d"), (2, "b", 1, "c")), path, **FEED)
    with pytest.raises(ColumnNameError, match=r"deleted keys of .* have the columns \['id', 'lsn'\]"):
        io.apply_changes(feed((1, "a", 1, "c")), path, **FEED | {"key_columns": ["id", "v"]})
    assert io.apply_changes(feed((1, "late", 4, "c")), path, tombstones=None, **FEED).inserted == 1
    assert stored(tmp_path) == []
    io.apply_changes(feed((1, None, 6, "d")), path, tombstones="0", **FEED)
    assert io.apply_changes(feed((1, "late", 3, "c")), path, **FEED).inserted == 1


def test_overwrite_restore_and_erasure_remove_them(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "d")
    io.apply_changes(feed((1, None, 5, "d"), (2, "b", 1, "c"), (4, "d", 1, "c")), path, **FEED)
    kept = io.keep_history(path)
    io.apply_changes(feed((2, None, 5, "d")), path, **FEED)
    io.restore(path, version=kept)  # the feed since then is applied again
    result = io.apply_changes(feed((1, "late", 4, "u"), (2, "again", 4, "u")), path, **FEED)
    assert (result.stale, result.updated) == (1, 1)
    io.delete(path, where="id = 4", erase_history=True)
    assert stored(tmp_path) == []
    io.apply_changes(feed((2, None, 6, "d")), path, **FEED)
    io.write_dataset(feed((3, "c", 1, "c")).drop_columns(["op"]), path, mode="overwrite")
    assert stored(tmp_path) == []
    assert io.apply_changes(feed((2, "new", 1, "c")), path, **FEED).inserted == 1


def test_a_join_does_not_make_deletes_newer_for_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 2)
    io, path = PyarrowDatasetIO(), str(tmp_path / "d")
    io.apply_changes(feed((9, "z", 1, "c"), (1, None, 5, "d")), path, **FEED)
    io.apply_changes(feed((2, None, 5, "d")), path, **FEED)
    kept = io.keep_history(path)
    io.apply_changes(feed((3, None, 5, "d")), path, **FEED)  # joins the first two
    io.restore(path, version=kept)
    late = feed((1, "late", 4, "c"), (2, "late", 4, "c"), (3, "again", 4, "c"))
    assert io.apply_changes(late, path, **FEED).stale == 2


def test_they_expire_stay_few_and_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io, path, now = PyarrowDatasetIO(), str(tmp_path / "d"), time.time()
    monkeypatch.setattr("time.time", lambda: now)
    for number in range(60):
        now += 3600 * 4
        io.apply_changes(feed((number, None, 5, "d"), (number, "a", 1, "c"), (99, "z", number, "c")), path, **FEED)
    kept = {row["id"] for file in stored(tmp_path) for row in pq.read_table(file).to_pylist()}
    assert set(range(18, 60)) <= kept <= set(range(10, 60))  # seven days; files that are joined expire together
    assert len(stored(tmp_path)) < 16
    assert io.apply_changes(feed((30, "late", 4, "c"), (3, "late", 4, "c")), path, **FEED).stale == 1
    monkeypatch.setattr(module, "MOST_ROWS", 8)
    io.apply_changes(feed((60, None, 5, "d")), path, **FEED)
    rows = sum(pq.read_metadata(file).num_rows for file in stored(tmp_path))
    assert 1 <= rows <= 8
    now += 86400 * 9
    assert io.vacuum(path, dry_run=True).removed_files == len(stored(tmp_path))
    assert io.vacuum(path).removed_files
    assert stored(tmp_path) == []
    assert io.read_parquet(path).num_rows == 2


def test_a_damaged_or_forged_list_is_an_error(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "d")
    io.apply_changes(feed((1, None, 5, "d"), (2, "b", 1, "c")), path, **FEED)
    late, (file,) = feed((1, "late", 4, "c")), stored(tmp_path)
    (mark,) = (tmp_path / ".d.fsspeckit" / "log").glob("tombstones-*")
    good, listed = file.read_bytes(), mark.read_bytes()
    pq.write_table(pa.table({"id": [7, 8], "lsn": [1, 1]}), file)
    other = file.read_bytes()
    for data in (good[:-9], b"", good[:8] + bytes(20) + good[28:], other, None):
        file.unlink() if data is None else file.write_bytes(data)
        with pytest.raises(DamagedFileError):
            io.apply_changes(late, path, **FEED)
    file.write_bytes(good)
    slot = b'"slot":1'
    for forged in (b"{", listed.replace(slot, b'"slot":"../../x"'), listed.replace(slot, b'"slot":2'), b"[]"):
        mark.write_bytes(forged)
        with pytest.raises(StorageError, match="list of deleted keys"):
            io.apply_changes(late, path, **FEED)
    assert io.read_parquet(path).num_rows == 1
    assert io.apply_changes(late, path, tombstones=None, **FEED).inserted == 1


def test_two_feeds_do_not_lose_the_deletes_of_each_other(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "d")
    done: list[int] = []
    io.apply_changes(feed((9, "z", 1, "c")), path, **FEED)

    def once(key: int) -> Any:
        """Return a progress function that deletes a key in another feed."""
        done.clear()

        def rival(*_: Any) -> None:
            if not done:
                done.append(key)
                io.apply_changes(feed((key, None, 5, "d")), path, **FEED)

        return rival

    mine = feed((1, "late", 4, "c"), (2, None, 5, "d"), (3, "c", 1, "c"))
    result = io.apply_changes(mine, path, progress=once(1), **FEED)
    assert (done, result.stale, result.inserted) == ([1], 1, 1)
    assert io.apply_changes(feed((1, "late", 4, "c"), (2, "late", 4, "c")), path, **FEED).stale == 2
    with pytest.raises(CommitConflictError, match="deleted keys"):
        io.apply_changes(feed((4, None, 5, "d")), path, progress=once(5), retries=0, **FEED)

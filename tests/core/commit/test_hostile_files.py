"""Other programs change folders and files during an operation, or plant files that are no plain files.

No file outside of the dataset and its journal is changed, no row is lost, and nothing blocks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import DatasetLostError, FsspeckitError, NestedDatasetError, StorageError
from fsspeckit.core.commit import log
from fsspeckit.core.commit.replay import Replayer
from fsspeckit.core.commit.transaction import Transaction
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import tree_of

IO = PyarrowDatasetIO()
ROWS = pa.table({"id": [1, 2, 3, 4], "day": [1, 2, 1, 2]})
OPERATIONS: dict[str, Callable[..., Any]] = {
    "append": lambda path, **options: IO.write_dataset(ROWS, path, partition_by=["day"], **options),
    "overwrite": lambda path, **options: IO.write_dataset(
        ROWS, path, partition_by=["day"], mode="overwrite_partitions", **options
    ),
    "merge": lambda path, **options: IO.merge(
        pa.table({"id": [1, 9], "day": [1, 1]}), path, strategy="upsert", key_columns=["id"], **options
    ),
    "compact": lambda path, **options: IO.compact_parquet_dataset(path, target_rows_per_file=100, **options),
}


class Killed(BaseException):
    """Nothing catches this."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A dataset ``ds`` with two partitions of two files each, and a folder that belongs to someone else."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "keep.txt").write_text("precious")
    IO.write_dataset(ROWS, str(tmp_path / "ds"), partition_by=["day"])
    IO.write_dataset(ROWS.set_column(0, "id", pa.array([5, 6, 7, 8])), str(tmp_path / "ds"), partition_by=["day"])
    return tmp_path


def log_of(base: Path, name: str = "ds") -> Path:
    return base / f".{name}.fsspeckit" / "log"


def record(**fields: Any) -> dict[str, Any]:
    lists: dict[str, Any] = {"publish": [], "retire": [], "folders": [], "fenced": []}
    return lists | {"seq": 3, "kind": "commit", "owner": "0" * 32, "info": {}, "format": 1} | fields


def ids(path: Path) -> list[int]:
    return sorted(IO.read_parquet(str(path))["id"].to_pylist())


def kill_in(monkeypatch: pytest.MonkeyPatch, method: str, run: Callable[[], Any]) -> None:
    """Run an operation that is killed at the first call of a method of `Replayer`."""

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Replayer, method, kill)
        patch.setattr(Transaction, "_delete_staging", kill)
        with pytest.raises(Killed):
            run()


def replace_partition(base: Path, stash: bool) -> None:
    folder = base / "ds" / "day=1"
    if not folder.is_symlink():
        folder.rename(base / "stash")
        folder.symlink_to(base / ("stash" if stash else "victim"))


@pytest.mark.parametrize("stash", [False, True], ids=["to another folder", "to its own files"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_partition_replaced_by_a_link_during_the_run(base: Path, operation: Callable[..., Any], stash: bool) -> None:
    before = tree_of(base / "ds" / "day=1"), tree_of(base / "victim")
    with pytest.raises(FsspeckitError, match=r"symbolic link|changed during|removed its staged files"):
        operation(str(base / "ds"), progress=lambda event: replace_partition(base, stash))
    assert (tree_of(base / "stash"), tree_of(base / "victim")) == before


@pytest.mark.parametrize("method", ["publish_all", "_moves", "_close"])
def test_partition_replaced_by_a_link_after_the_commit(
    base: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is final, so nothing raises. It is finished after the link is gone."""
    before, original = tree_of(base / "victim"), getattr(Replayer, method)

    def late(self: Replayer, *arguments: Any, **options: Any) -> Any:
        replace_partition(base, False)
        return original(self, *arguments, **options)

    monkeypatch.setattr(Replayer, method, late)
    OPERATIONS["overwrite"](str(base / "ds"))
    monkeypatch.undo()
    assert tree_of(base / "victim") == before
    (base / "ds" / "day=1").unlink()
    (base / "stash").rename(base / "ds" / "day=1")
    IO.recover(str(base / "ds"))
    assert ids(base / "ds") == [1, 2, 3, 4]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_staging_replaced_by_a_link_during_the_run(base: Path, operation: Callable[..., Any]) -> None:
    def swap(event: Any) -> None:
        for folder in (base / ".ds.fsspeckit").glob(".staging_*"):
            if not folder.is_symlink():
                folder.rename(base / f"old{folder.name}")
                folder.symlink_to(base / "victim")

    before = tree_of(base / "victim")
    with pytest.raises(FsspeckitError, match=r"symbolic link|changed during|removed its staged files"):
        operation(str(base / "ds"), progress=swap)
    assert tree_of(base / "victim") == before


@pytest.mark.parametrize("name", [f"{3:020d}.done", f"{3:020d}.json"])
def test_hard_link_in_the_journal(base: Path, name: str) -> None:
    os.link(base / "victim" / "keep.txt", log_of(base) / name)
    try:
        OPERATIONS["append"](str(base / "ds"))
    except StorageError:
        assert name.endswith("json")
    assert (base / "victim" / "keep.txt").read_text() == "precious"


def test_two_journals_with_records_are_an_error(base: Path) -> None:
    shutil.copytree(base / ".ds.fsspeckit", base / "ds" / ".fsspeckit")
    for run in (IO.read_parquet, IO.recover, OPERATIONS["append"]):
        with pytest.raises(StorageError, match="two journals"):
            run(str(base / "ds"))


@pytest.mark.parametrize(
    "name", [".ds.fsspeckit", ".ds.fsspeckit/log", ".ds.fsspeckit/x", ".b.fsspeckit", ".fsspeckit"]
)
def test_dataset_in_the_folder_of_a_journal(base: Path, name: str) -> None:
    before = tree_of(base)
    with pytest.raises(NestedDatasetError, match="path of a journal"):
        OPERATIONS["append"](str(base / name))
    assert tree_of(base) == before


def test_dataset_deleted_while_a_commit_is_pending(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_in(monkeypatch, "_moves", lambda: OPERATIONS["append"](str(base / "ds")))
    shutil.rmtree(base / "ds")
    with pytest.raises(DatasetLostError, match=r"was deleted while commit 3.*fsspeckit forget"):
        OPERATIONS["append"](str(base / "ds"))
    IO.forget(str(base / "ds"))
    OPERATIONS["append"](str(base / "ds"))
    assert ids(base / "ds") == [1, 2, 3, 4]


@pytest.mark.parametrize("name", [b"\xff.parquet", b"day=\xff/a.parquet"])
def test_name_that_is_not_utf8(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"ds", name)
    os.makedirs(os.path.dirname(path))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a")
    os.rename(tmp_path / "a", path)
    for run in (IO.read_parquet, lambda path: IO.write_dataset(pa.table({"id": [1]}), path)):
        with pytest.raises(StorageError, match=r"udcff.* not valid UTF-8"):
            run(str(tmp_path / "ds"))


PIPES = {
    "data file": "ds/x.parquet",
    "record": f".ds.fsspeckit/log/{3:020d}.json",
    "lock": ".ds.fsspeckit/lock",
    "staging owner": f".ds.fsspeckit/.staging_{'0' * 32}/owner",
}


@pytest.mark.parametrize("name", PIPES.values(), ids=PIPES)
def test_named_pipe_does_not_block(base: Path, name: str) -> None:
    (base / name).parent.mkdir(exist_ok=True)
    (base / name).unlink(missing_ok=True)
    os.mkfifo(base / name)
    with pytest.raises(StorageError, match="not a regular file"):
        OPERATIONS["compact"](str(base / "ds"))


def deep_record(log: Path) -> None:
    item = {"staged": "x", "path": "a/" * 100_000 + "x.parquet", "rows": 1, "size": 1, "stamp": "", "replaces": None}
    (log / f"{3:020d}.json").write_text(json.dumps(record(publish=[item])))


def large_record(log: Path) -> None:
    with open(log / f"{3:020d}.json", "wb") as file:
        file.truncate(3 << 30)


@pytest.mark.parametrize("plant", [deep_record, large_record])
def test_oversized_record_is_rejected(base: Path, plant: Callable[[Path], None]) -> None:
    plant(log_of(base))
    with pytest.raises(StorageError, match=f"{3:020d}.json"):
        IO.read_parquet(str(base / "ds"))


def spoil_texts(data: bytes) -> bytes:
    """Put a lone surrogate before every text of a JSON document."""
    return re.sub(rb'(?<!\\)"(?=[^,:\]}])', rb'"\\ud800', data)


@pytest.mark.parametrize("spoil", [spoil_texts, lambda data: b"", lambda data: data[:-9], lambda data: b"[1e999]"])
def test_damaged_history_is_a_storage_error(base: Path, spoil: Callable[[bytes], bytes]) -> None:
    with mock.patch.multiple(log, KEPT_RECORDS=1, _PRUNE_SLACK=0):
        IO.keep_history(str(base / "ds"))
        for _ in range(3):
            OPERATIONS["append"](str(base / "ds"))
    for file in (base / ".ds.fsspeckit" / "history").glob("*.versions"):
        file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(StorageError, match=r"history file .* cannot be used"):
        IO.history(str(base / "ds"))

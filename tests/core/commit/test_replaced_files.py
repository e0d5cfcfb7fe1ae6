"""A file of a kept version that was replaced by another file of the same size: the version is an error."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.commit.steps import table
from fsspeckit.common.errors import StorageError, VersionNotFoundError
from fsspeckit.core.commit.record import Record
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def files_of(path: Path) -> list[Path]:
    return sorted(path.glob("*.parquet"))


def kept_files(path: Path) -> list[Path]:
    return sorted((path.parent / f".{path.name}.fsspeckit" / "kept").iterdir())


def other_file(folder: Path, ids: list[int]) -> Path:
    PyarrowDatasetIO().write_dataset(table(ids, "a"), str(folder))
    return files_of(folder)[0]


def reads(io: PyarrowDatasetIO, path: str, version: int) -> list[Callable[[], Any]]:
    return [
        lambda: io.read_parquet(path, version=version),
        lambda: io.restore(path, version=version),
        lambda: io.diff(path, version, version + 1),
        lambda: io.changes(path, since=version),
    ]


def ids(io: PyarrowDatasetIO, path: str, version: int) -> list[int]:
    return sorted(io.read_parquet(path, version=version)["id"].to_pylist())


@pytest.fixture
def ds(tmp_path: Path) -> Path:
    io, path = PyarrowDatasetIO(), tmp_path / "lake" / "ds"
    io.write_dataset(table([1, 2, 3], "a"), str(path))
    io.keep_history(str(path), retain="7d")
    return path


def test_current_file_that_another_program_replaced(ds: Path, tmp_path: Path) -> None:
    io, other = PyarrowDatasetIO(), other_file(tmp_path / "other", [7, 8, 9])
    io.write_dataset(table([4], "a"), str(ds))
    current = files_of(ds)[0]
    assert current.stat().st_size == other.stat().st_size
    time.sleep(0.02)
    shutil.copyfile(other, tmp_path / "new")
    os.replace(tmp_path / "new", current)
    for read in (*reads(io, str(ds), 2), *reads(io, str(ds), 3)):
        with pytest.raises(VersionNotFoundError, match="changed"):
            read()
    io.delete(str(ds), where="id = 7")  # it keeps the other file
    assert ids(io, str(ds), 4) == [4, 8, 9]
    with pytest.raises(VersionNotFoundError, match="changed"):
        io.read_parquet(str(ds), version=3)


def test_published_file_that_another_program_replaced(ds: Path, tmp_path: Path) -> None:
    io, other = PyarrowDatasetIO(), other_file(tmp_path / "other", [7, 8, 9])
    io.write_dataset(table([4, 5, 6], "a"), str(ds))
    time.sleep(0.02)
    shutil.copyfile(other, files_of(ds)[1])
    assert ids(io, str(ds), 2) == [1, 2, 3]
    with pytest.raises(VersionNotFoundError, match="changed"):
        io.changes(str(ds), since=2)


def test_kept_file_that_another_one_replaced(ds: Path) -> None:
    io = PyarrowDatasetIO()
    time.sleep(0.02)
    io.write_dataset(table([4, 5, 6], "a"), str(ds))
    io.delete(str(ds), where="id = 1 or id = 4")
    first, second = kept_files(ds)
    assert first.stat().st_size == second.stat().st_size
    first.unlink()
    shutil.copy2(second, first)
    for read in reads(io, str(ds), 3):
        with pytest.raises(VersionNotFoundError, match="changed"):
            read()
    assert ids(io, str(ds), 4) == [2, 3, 5, 6]


@pytest.mark.parametrize("keeps_times", [True, False])
def test_copy_of_a_lake_has_its_versions(ds: Path, tmp_path: Path, keeps_times: bool) -> None:
    io = PyarrowDatasetIO()
    io.delete(str(ds), where="id = 1")
    time.sleep(0.02)
    shutil.copytree(ds.parent, tmp_path / "copy", copy_function=shutil.copy2 if keeps_times else shutil.copyfile)
    copy = str(tmp_path / "copy" / "ds")
    assert [ids(io, copy, version) for version in (2, 3)] == [[1, 2, 3], [2, 3]]
    io.delete(copy, where="id = 2")
    assert [ids(io, copy, version) for version in (2, 3, 4)] == [[1, 2, 3], [2, 3], [3]]
    assert io.changes(copy, since=2).num_rows == 2


def test_file_that_was_copied_because_it_cannot_be_linked(ds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_or_refuse(old: str, new: str, **folders: Any) -> None:
        if new.endswith(".kept"):
            raise PermissionError
        link(old, new, **folders)

    io = PyarrowDatasetIO()
    time.sleep(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link_or_refuse)
        io.delete(str(ds), where="id = 1")
    assert kept_files(ds)[0].stat().st_nlink == 1
    assert ids(io, str(ds), 2) == [1, 2, 3]


def test_link_in_place_of_a_kept_file_is_refused(ds: Path, tmp_path: Path) -> None:
    io = PyarrowDatasetIO()
    io.delete(str(ds), where="id = 1")
    kept = kept_files(ds)[0]
    shutil.move(kept, tmp_path / "outside")
    os.symlink(tmp_path / "outside", kept)
    for read in reads(io, str(ds), 2):
        with pytest.raises(StorageError, match="symbolic link"):
            read()
    assert (tmp_path / "outside").stat().st_nlink == 1


def test_record_without_times_is_read(ds: Path) -> None:
    """Records of earlier releases have none."""
    io = PyarrowDatasetIO()
    path = ds.parent / ".ds.fsspeckit" / "log" / f"{2:020d}.json"
    record = Record.from_bytes(path.read_bytes(), 2, "x")
    assert record.listed is not None
    assert record.listed.times
    text = path.read_text()
    for name in ("times", "place"):
        text = text.replace(f',"{name}":"{getattr(record.listed, name)}"', "")
    assert "times" not in text
    path.write_text(text)
    assert ids(io, str(ds), 2) == [1, 2, 3]

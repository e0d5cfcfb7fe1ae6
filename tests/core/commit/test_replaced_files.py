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
from fsspeckit.common.errors import VersionNotFoundError
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

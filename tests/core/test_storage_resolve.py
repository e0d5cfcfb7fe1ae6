"""From what a caller names to a storage and a path in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.storage import FsspecStorage, LocalStorage, resolve


def test_resolve_paths_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, expected in {
        "ds": str(tmp_path / "ds"),
        "./x/../ds/": str(tmp_path / "ds"),
        str(tmp_path / "ds"): str(tmp_path / "ds"),
        f"file://{tmp_path}/ds": str(tmp_path / "ds"),
        "~/ds": str(tmp_path / "home" / "ds"),
    }.items():
        storage, root = resolve(given)
        assert isinstance(storage, LocalStorage)
        assert root == expected
    assert resolve(tmp_path / "ds")[1] == str(tmp_path / "ds")
    storage, root = resolve("memory://lake/ds/")
    assert isinstance(storage, FsspecStorage)
    assert root == "/lake/ds"


def test_resolve_filesystems(tmp_path: Path) -> None:
    assert resolve(str(tmp_path), LocalFileSystem()) == (LocalStorage(), str(tmp_path))
    assert resolve("ds", DirFileSystem(path=str(tmp_path), fs=LocalFileSystem())) == (
        LocalStorage(),
        str(tmp_path / "ds"),
    )
    storage, root = resolve("ds", DirFileSystem(path="/base", fs=MemoryFileSystem()))
    assert isinstance(storage, FsspecStorage)
    assert root == "ds"
    given = FsspecStorage(MemoryFileSystem())
    assert resolve("/lake/ds/", given) == (given, "/lake/ds")
    assert resolve("memory://lake/ds", given) == (given, "/lake/ds")


def test_resolve_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="path is empty"):
        resolve("")
    with pytest.raises(ValueError, match="not both"):
        resolve("/x", MemoryFileSystem(), {"a": 1})
    with pytest.raises(TypeError, match="must be an fsspec filesystem"):
        resolve("/x", "s3")  # type: ignore[arg-type]

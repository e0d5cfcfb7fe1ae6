"""Resolve paths, URLs and filesystems to a storage and a path in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow.fs import LocalFileSystem as LocalArrow

from fsspeckit.core.storage import LocalStorage, resolve
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.core.storage.urls import to_fsspec, to_spark


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
    assert (root, storage.url(root)) == ("/base/ds", "memory:///base/ds")
    assert resolve(str(tmp_path), ArrowFSWrapper(LocalArrow())) == (LocalStorage(), str(tmp_path))
    given = FsspecStorage(MemoryFileSystem())
    assert resolve("/lake/ds/", given) == (given, "/lake/ds")
    assert resolve("memory://lake/ds", given) == (given, "/lake/ds")


@pytest.mark.parametrize(
    ("given", "fsspec", "spark"),
    [
        ("s3a://bucket/ds", "s3://bucket/ds", "s3a://bucket/ds"),
        ("s3n://bucket/ds", "s3://bucket/ds", "s3a://bucket/ds"),
        ("S3://bucket/ds", "s3://bucket/ds", "s3a://bucket/ds"),
        ("gcs://bucket/ds", "gs://bucket/ds", "gs://bucket/ds"),
        ("gs://bucket/d=[a]*{b}", "gs://bucket/d=[a]*{b}", "gs://bucket/d=[a]*{b}"),
        ("abfss://c@a.dfs.core.windows.net/ds", *["abfss://c@a.dfs.core.windows.net/ds"] * 2),
        ("abfs://c/ds", "abfs://c/ds", "abfs://c/ds"),
        ("az://c/ds", "az://c/ds", "abfss://c/ds"),
        ("wasbs://c@a.blob.core.windows.net/ds", "abfss://c@a.blob.core.windows.net/ds", None),
        ("hdfs://name:8020/ds", "hdfs://name:8020/ds", "hdfs://name:8020/ds"),
        ("hdfs:/ds", "hdfs:///ds", "hdfs:///ds"),
        ("file:/data/ds", "file:///data/ds", "file:///data/ds"),
        ("local:///data/ds", "local:///data/ds", "file:///data/ds"),
        ("/data/file:/ds", "/data/file:/ds", "/data/file:/ds"),
        ("simplecache::s3a://bucket/ds", "simplecache::s3://bucket/ds", None),
    ],
)
def test_url_schemes_of_fsspec_and_spark(given: str, fsspec: str, spark: str | None) -> None:
    assert to_fsspec(given) == fsspec
    assert to_fsspec(fsspec) == fsspec
    if spark is not None:
        assert to_spark(given) == to_spark(spark) == spark


@pytest.mark.parametrize("path", ["ds", "/ds", "ds/", "./ds", "ds/.", "/./ds//"])
def test_a_folder_of_a_wrapper_has_one_path(path: str) -> None:
    inner = DirFileSystem(path="/base", fs=DirFileSystem(path="/lake", fs=MemoryFileSystem()))
    assert resolve(path, inner)[1] == "/lake/base/ds"
    assert resolve(f"memory://lake/base/{path.strip('/')}")[1] == "/lake/base/ds"


def test_a_path_with_two_dots_is_refused_where_it_is_not_resolved() -> None:
    memory = MemoryFileSystem()
    for filesystem in (memory, DirFileSystem(path="/base", fs=memory), FsspecStorage(memory)):
        with pytest.raises(ValueError, match=r"a/\.\./ds contains '\.\.'"):
            resolve("/a/../ds", filesystem)

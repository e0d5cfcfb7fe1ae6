"""The same operations on every storage: local disk, memory, and S3 through a local server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.common.errors import DamagedFileError, NestedDatasetError, PartitionError
from kit import numbers

UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
_ONE_PROCESS = [pytest.param(kind, marks=pytest.mark.one_process) for kind in ("memory", "memory filesystem")]
KINDS = ("local", "local filesystem", "folder as root", *_ONE_PROCESS, "s3", "s3 filesystem")


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a dataset, a function that creates its engine, and its fsspec filesystem."""

    url: str
    options: dict[str, Any]
    fs: Any
    path: str

    def files(self) -> list[str]:
        self.fs.invalidate_cache()
        return sorted(name for name in self.fs.find(self.path) if name.endswith(".parquet"))

    def table(self) -> pa.Table:
        foreign = pds.dataset(self.files(), filesystem=self.fs, partition_base_dir=self.path, partitioning="hive")
        return foreign.to_table().sort_by("id")


def _s3(request: pytest.FixtureRequest, name: str) -> Place:
    server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket")
    options = {"storage_options": server.storage_options}
    return Place(f"s3://{bucket}/{name}", options, server.filesystem(), f"{bucket}/{name}")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An address without a dataset."""
    name, kind = f"d-{uuid.uuid4().hex[:8]}", request.param
    local, path = fsspec.filesystem("file"), str(tmp_path / "d")
    if kind == "local":
        yield Place(path, {}, local, path)
    elif kind == "local filesystem":
        yield Place(path, {"filesystem": local}, local, path)
    elif kind == "folder as root":
        rooted = DirFileSystem(str(tmp_path), local)
        yield Place("d", {"filesystem": rooted}, rooted, "d")
    elif kind.startswith("memory"):
        memory = request.getfixturevalue("memory_fs")
        shown = Place(f"memory://{name}", {}, memory, f"/{name}")
        yield shown if kind == "memory" else Place(f"/{name}", {"filesystem": memory}, memory, f"/{name}")
    else:
        s3 = _s3(request, name)
        yield s3 if kind == "s3" else Place(s3.path, {"filesystem": s3.fs}, s3.fs, s3.path)


@pytest.fixture
def io(make_io: Callable[..., Any], place: Place) -> Any:
    """The engine on the given storage."""
    return make_io(**place.options)


def found(place: Place, **options: Any) -> Any:
    place.fs.invalidate_cache()
    return place.fs.find(place.path.rpartition("/")[0], detail=True, **options)


def test_a_dataset_on_every_storage(io: Any, place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        io.read_parquet(place.url)
    assert io.merge(numbers([1]), place.url, strategy="update", key_columns=["id"]).total == 0
    assert place.files() == []
    written = io.write_dataset(numbers([1, 2], day=["mon", "tue"]), place.url, partition_by=["day"])
    with place.fs.open(written.files[0].path, "rb") as file:
        assert pq.read_metadata(file).num_rows == 1
    first, before, names = io.keep_history(place.url), found(place, withdirs=True), place.files()
    source = numbers([2, 3], "new", day=["tue", "wed"])
    plan = io.merge(source, place.url, dry_run=True, **UPSERT)
    assert found(place, withdirs=True) == before, "a dry run wrote something"
    result = io.merge(source, place.url, **UPSERT)
    for each in (plan, result):
        assert (each["inserted"], each["updated"], each["total"]) == (1, 1, 3)
    (rewritten,) = [path.rsplit("/", 1)[1] for path in result.rewritten_files]
    assert rewritten in {path.rsplit("/", 1)[1] for path in set(place.files()) - set(names)}, "a rewrite has a new name"
    before = found(place)
    assert io.merge(source, place.url, **UPSERT).unchanged == 2
    assert found(place) == before, "the same merge again wrote something"
    io.write_dataset(source, f"{place.url}-source")
    result = io.merge(f"{place.url}-source", place.url, strategy="full_merge", key_columns="id")
    assert (result.updated, result.unchanged, result.deleted) == (2, 2, 1)
    rows = [{"id": 2, "v": "new", "day": "tue"}, {"id": 3, "v": "new", "day": "wed"}]
    assert place.table().to_pylist() == io.read_parquet(place.url).sort_by("id").to_pylist() == rows
    io.compact_parquet_dataset(place.url, target_mb_per_file=1)
    io.optimize_parquet_dataset(place.url, "id", force=True)
    io.write_dataset(source, place.url)
    assert io.deduplicate_parquet_dataset(place.url, "id")["deduplicated_rows"] == 2
    assert place.table().to_pylist() == rows
    changes = io.changes(place.url, since=first)
    assert len(changes.collect() if hasattr(io, "spark") else changes) > 0
    io.restore(place.url, version=first)
    assert place.table()["id"].to_pylist() == [1, 2]
    io.write_dataset(numbers([9], day=["mon"]), place.url, mode="overwrite")
    assert (place.table()["id"].to_pylist(), len(io.read_parquet(place.url, version=first))) == ([9], 2)
    assert io.vacuum(place.url, older_than="0s").removed_files > 0
    assert len(place.files()) == 1


def test_errors_do_not_change_the_dataset(io: Any, place: Place) -> None:
    io.write_dataset(numbers([1, 2], day=["mon", "tue"]), place.url, partition_by=["day"])
    before = {path: place.fs.cat_file(path) for path in place.files()}
    with pytest.raises(PartitionError):
        io.merge(numbers([1], "new", day=["tue"]), place.url, **UPSERT)
    with pytest.raises(ValueError, match="id"):
        io.merge(numbers([None], "new", day=["tue"]), place.url, **UPSERT)
    for inner in ("b", "day=mon", "day=mon/b"):
        with pytest.raises(NestedDatasetError, match="is inside the dataset"):
            io.write_dataset(numbers([3]), f"{place.url}/{inner}")
    assert {path: place.fs.cat_file(path) for path in place.files()} == before
    place.fs.pipe_file(f"{place.path}/day=mon/zero.parquet", b"")
    with pytest.raises(DamagedFileError, match=r"zero\.parquet"):
        io.merge(numbers([1], "new", day=["mon"]), place.url, **UPSERT)


def test_a_folder_of_datasets_is_refused(io: Any, place: Place) -> None:
    io.write_dataset(numbers([1]), f"{place.url}/a")
    for call in (lambda: io.merge(numbers([1]), place.url, **UPSERT), lambda: io.read_parquet(place.url)):
        with pytest.raises(NestedDatasetError, match="contains other datasets"):
            call()


def test_odd_partition_values(io: Any, place: Place) -> None:
    values = ["a b", "ü", "100%", "a=b", "..", "x/y", "+", None]
    io.write_dataset(numbers(list(range(8)), p=values), place.url, partition_by=["p"])
    assert io.read_parquet(place.url).sort_by("id")["p"].to_pylist() == values
    result = io.merge(numbers(list(range(8)), "new", p=values), place.url, **UPSERT)
    assert (result.updated, len(place.files())) == (8, 8)


class Sullen(MemoryFileSystem):  # type: ignore[misc]
    """A storage on which one folder cannot be listed."""

    protocol = "sullen"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's memory filesystem keeps its files in the class
    pseudo_dirs = [""]  # noqa: RUF012
    closed: list[str] = []  # noqa: RUF012

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if any(path.rstrip("/").endswith(name) for name in self.closed):
            raise PermissionError(13, "Permission denied", path)
        return super().ls(path, detail=detail, **options)


@pytest.mark.one_process
def test_an_unreadable_folder_is_an_error_not_a_missing_partition(make_io: Callable[..., Any]) -> None:
    fs = Sullen(skip_instance_cache=True)
    io = make_io(filesystem=fs)
    io.write_dataset(numbers([1, 2], day=["mon", "tue"]), "/d", partition_by=["day"])
    before = dict(fs.store)
    fs.closed.append("day=tue")
    try:
        with pytest.raises(OSError, match="day=tue"):
            io.merge(numbers([1], "new", day=["mon"]), "/d", **UPSERT)
        with pytest.raises(OSError, match="day=tue"):
            io.read_parquet("/d")
    finally:
        fs.closed.clear()
    assert fs.store == before


CALLS: dict[str, Callable[[Any], Any]] = {
    "merge": lambda io: io.merge(numbers([1]), "s3://nowhere/d", **UPSERT),
    "read": lambda io: io.read_parquet("s3://nowhere/d"),
}


@pytest.mark.parametrize("call", CALLS)
def test_secrets_are_not_in_messages(make_io: Callable[..., Any], caplog: Any, call: str) -> None:
    secret = "hunter2-hunter2"
    options = {"key": "me", "secret": secret, "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}}
    io = make_io(storage_options=options | {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1}})
    with pytest.raises(OSError, match=r"nowhere/\.?d") as caught:
        CALLS[call](io)
    assert secret not in str(caught.value) + caplog.text + repr(io)

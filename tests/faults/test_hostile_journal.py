"""A forged journal is rejected by the next operation, and no file outside of the dataset is changed.

A sidecar is copied with its dataset in archives and on shared disks, and the next writer applies its newest record.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import CommitConflictError, FsspeckitError, StorageError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Emptied, new_id
from kit import tree_of
from sweeps import sweep_size

OWNER = "0123456789abcdef0123456789abcdef"
NEXT = "00000000000000000002"
OPERATIONS: dict[str, Callable[[PyarrowDatasetIO, str], Any]] = {
    "recover": lambda io, path: io.recover(path),
    "append": lambda io, path: io.write_dataset(pa.table({"id": [9]}), path),
    "merge": lambda io, path: io.merge(pa.table({"id": [9]}), path, strategy="upsert", key_columns=["id"]),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=100),
    "deduplicate": lambda io, path: io.deduplicate_parquet_dataset(path, key_columns=["id"]),
    "read": lambda io, path: io.read_parquet(path),
}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A dataset with a journal in its own folder, and unrelated files around it."""
    return build(tmp_path)


def build(base: Path) -> Path:
    for name in ("victim/keep.txt", "lake/x.py", "lake/other.parquet", "lake/sub/deep.txt"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("precious")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2]}), str(base / "lake" / "ds"))
    return base


def ds(world: Path) -> Path:
    return world / "lake" / "ds"


def sidecar(world: Path) -> Path:
    return world / "lake" / ".ds.fsspeckit"


def record(**fields: Any) -> dict[str, Any]:
    plain = {"seq": 2, "kind": "commit", "owner": OWNER, "publish": [], "retire": [], "folders": [], "fenced": []}
    return plain | {"info": {}, "format": 1} | fields


def publish(**fields: Any) -> dict[str, Any]:
    return {"staged": "a.staged", "path": "a.parquet", "rows": 1, "size": 1, "stamp": "", "replaces": None} | fields


def emptied(
    columns: Any = (("id", "int64"),), partitions: Sequence[tuple[str, str]] = (("day", "string"),)
) -> dict[str, Any]:
    found = Emptied.of(pa.schema([] if isinstance(columns, str | int) else list(columns)), pa.schema(list(partitions)))
    given = columns if isinstance(columns, str | int) else found.columns
    return {"columns": given, "partitions": found.partitions}


def identity_of(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"size": status.st_size, "stamp": f"{status.st_mtime_ns}:{status.st_ino}"}


def plant(world: Path, content: Any, staged: dict[str, str] | None = None) -> None:
    """Put a record in the next slot, and files into the staging folder of its owner."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (sidecar(world) / "log" / f"{NEXT}.json").write_bytes(data)
    staging = sidecar(world) / f".staging_{OWNER}"
    staging.mkdir(exist_ok=True)
    for name, text in (staged or {"a.staged": "x"}).items():
        (staging / name).write_text(text)


def outside(world: Path) -> dict[str, Any]:
    """Return all files that belong neither to the dataset nor to its journal."""
    inside = ("lake/ds/", "lake/.ds.fsspeckit")
    return {name: stamp for name, stamp in tree_of(world).items() if not name.startswith(inside)}


def attacks(world: Path) -> dict[str, dict[str, Any]]:
    victim, far = identity_of(world / "victim" / "keep.txt"), "../../victim/keep.txt"
    return {
        "fence a tree": record(kind="fence", fenced=["o1/../../../../victim"]),
        "fence a tree by its owner": record(kind="fence", owner="../../../victim"),
        "fence above": record(kind="fence", fenced=[".."]),
        "owner elsewhere": record(owner="x/../../../victim"),
        "publish beside": record(publish=[publish(path="../x.py")]),
        "publish far away": record(publish=[publish(path="../../victim/new.parquet")]),
        "publish absolute": record(publish=[publish(path=str(world / "victim" / "new.parquet"))]),
        "publish over a file": record(publish=[publish(path="../other.parquet", replaces=None)]),
        "publish what is no data": record(publish=[publish(path="_hidden/a.parquet")]),
        "publish into the sidecar": record(publish=[publish(path=".a=b.fsspeckit/a.parquet")]),
        "publish a NUL": record(publish=[publish(path="a\0.parquet")]),
        "publish one file twice": record(publish=[publish(), publish(staged="b.staged")]),
        "stage from elsewhere": record(publish=[publish(staged="../../../victim/keep.txt")]),
        "stage a parent": record(publish=[publish(staged="..")]),
        "stage absolute": record(publish=[publish(staged=str(world / "victim" / "keep.txt"))]),
        "stage the owner": record(publish=[publish(staged="owner")]),
        "retire elsewhere": record(retire=[{"path": far, "identity": victim}]),
        "retire absolute": record(retire=[{"path": str(world / "victim" / "keep.txt"), "identity": victim}]),
        "retire what is no data": record(retire=[{"path": "_notes.txt", "identity": victim}]),
        "retire the sidecar": record(retire=[{"path": ".fsspeckit/log/1.parquet", "identity": victim}]),
        "make folders": record(folders=["../../made"]),
        "make a folder for nothing": record(folders=["made"]),
        "abort that publishes": record(kind="abort", publish=[publish()]),
        "another number": record(seq=3),
        "unknown kind": record(kind="delete"),
        "no list": record(publish="abc"),
        "no mapping": record(publish=["abc"]),
        "no text": record(publish=[publish(path=7)]),
        "negative": record(publish=[publish(rows=-1)]),
        "no number": record(publish=[publish(size=True)]),
        "key is no text": record(info={"idempotency_key": 7}),
        "a lone surrogate as owner": record(owner="\ud800"),
        "a lone surrogate as fenced": record(kind="fence", fenced=["\ud800"]),
        "publish a lone surrogate": record(publish=[publish(path="\ud800.parquet")]),
        "publish into a lone surrogate": record(publish=[publish(path="a=\udfff/a.parquet")], folders=["a=\udfff"]),
        "stage a lone surrogate": record(publish=[publish(staged="\udc80.staged")]),
        "stamp with a lone surrogate": record(publish=[publish(stamp="\ud800")]),
        "retire a lone surrogate": record(retire=[{"path": "\ud800.parquet", "identity": victim}]),
        "key with a lone surrogate": record(info={"idempotency_key": "\ud800"}),
        "reader with a lone surrogate": record(info={"positions": {"\ud800": 1}}),
        "operation with a lone surrogate": record(info={"operation": "\ud800"}),
        "empty with files": record(publish=[publish()], emptied=emptied()),
        "abort that empties": record(kind="abort", emptied=emptied()),
        "columns are no text": record(emptied=emptied(columns=7)),
        "columns are no schema": record(emptied=emptied(columns="abcd")),
        "columns are not base64": record(emptied=emptied(columns="\x00")),
        "columns are missing": record(emptied={}),
        "no column": record(emptied=emptied([])),
        "two columns of one name": record(emptied=emptied([("id", "int64"), ("id", "string")])),
        "hidden partitions": record(emptied=emptied(partitions=[("_hidden", "string")])),
        "partitions without a name": record(emptied=emptied(partitions=[("", "string")])),
        "partitions of one name": record(emptied=emptied(partitions=[("a", "string"), ("a", "string")])),
        "types of partitions are no text": record(partition_types=7),
        "types of partitions that are none": record(partition_types="00000000-c3RydWN0"),
        "types of partitions of another form": record(partition_types="../../x"),
        "abort with types of partitions": record(kind="abort", partition_types="00000000-c3RyaW5n"),
        "key is a text": record(key="id"),
        "key is empty": record(key=[]),
        "key twice": record(key=["id", "id"]),
        "key with a lone surrogate as name": record(key=["\ud800"]),
        "abort with a key": record(kind="abort", key=["id"]),
        "no identity": record(retire=[{"path": "a.parquet", "identity": None}]),
    }


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_hostile_record_is_rejected_without_changes(
    world: Path, operation: Callable[[PyarrowDatasetIO, str], Any]
) -> None:
    for name, content in attacks(world).items():
        plant(world, content)
        before = tree_of(world)
        with pytest.raises(StorageError) as caught:
            operation(PyarrowDatasetIO(), str(ds(world)))
        assert NEXT in str(caught.value), (name, str(caught.value))
        assert tree_of(world) == before, name


INVALID = [
    b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"format":1}',
    json.dumps(record(info={"note": "\ud800"}), ensure_ascii=False).encode("utf-8", "surrogatepass"),
]  # fmt: skip


@pytest.mark.parametrize("content", INVALID)
def test_invalid_record_file_is_rejected(world: Path, content: bytes) -> None:
    plant(world, content)
    before = tree_of(world)
    with pytest.raises(StorageError, match="cannot be used"):
        PyarrowDatasetIO().recover(str(ds(world)))
    assert tree_of(world) == before


def link_sidecar(world: Path) -> None:
    shutil.move(sidecar(world), world / "moved")
    os.symlink(world / "moved", sidecar(world))


def link_log(world: Path) -> None:
    shutil.move(sidecar(world) / "log", world / "log")
    os.symlink(world / "log", sidecar(world) / "log")


def link_staging(world: Path) -> None:
    os.symlink(world / "victim", sidecar(world) / f".staging_{OWNER}")


def link_lock(world: Path) -> None:
    (sidecar(world) / "lock").unlink()
    os.symlink(world / "victim" / "keep.txt", sidecar(world) / "lock")


def link_done(world: Path) -> None:
    os.symlink(world / "victim" / "keep.txt", sidecar(world) / "log" / f"{NEXT}.done")


def link_record(world: Path) -> None:
    (world / "victim" / "r.json").write_text(json.dumps(record()))
    os.symlink(world / "victim" / "r.json", sidecar(world) / "log" / f"{NEXT}.json")


def link_staged_file(world: Path) -> None:
    plant(world, record(publish=[publish()]))
    (sidecar(world) / f".staging_{OWNER}" / "a.staged").unlink()
    os.symlink(world / "lake" / "other.parquet", sidecar(world) / f".staging_{OWNER}" / "a.staged")


def link_partition(world: Path) -> None:
    os.symlink(world / "victim", ds(world) / "day=1")
    plant(world, record(publish=[publish(path="day=1/a.parquet")]))


def link_outer_folder(world: Path) -> None:
    os.symlink(world / "victim", ds(world) / "day=1")
    plant(world, record(publish=[publish(path="day=1/b=2/a.parquet")], folders=["day=1/b=2"]))


LINKS = [
    link_sidecar, link_log, link_staging, link_lock, link_done, link_record, link_staged_file, link_partition,
    link_outer_folder,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("link", LINKS)
def test_symbolic_links_are_rejected(
    world: Path, link: Callable[[Path], None], operation: Callable[[PyarrowDatasetIO, str], Any]
) -> None:
    link(world)
    before = tree_of(world)
    with pytest.raises(FsspeckitError, match="symbolic link"):
        operation(PyarrowDatasetIO(), str(ds(world)))
    assert tree_of(world) == before


def test_dataset_behind_a_symlink_works(world: Path) -> None:
    os.symlink(world / "lake", world / "short")
    io = PyarrowDatasetIO()
    io.merge(pa.table({"id": [9]}), str(world / "short" / "ds"), strategy="upsert", key_columns=["id"])
    assert io.read_parquet(str(ds(world))).num_rows == 3


def test_a_record_number_out_of_range_is_rejected(world: Path) -> None:
    (sidecar(world) / "log" / f"{'9' * 20}.json").write_text(json.dumps(record(seq=10**20 - 1)))
    before = tree_of(world)
    with pytest.raises(StorageError, match="number is out of range"):
        OPERATIONS["merge"](PyarrowDatasetIO(), str(ds(world)))
    assert tree_of(world) == before


def test_unknown_names_in_the_sidecar_are_ignored(world: Path) -> None:
    log, keys = sidecar(world) / "log", sidecar(world) / "keys"
    keys.mkdir()
    odd = [log / "²².json", log / "2.json", log / "abc.done", keys / f"x-{'0' * 64}", keys / "..x"]
    odd += [sidecar(world) / ".staging_..", sidecar(world) / ".staging_victim"]
    for path in odd:
        path.write_text("x")
    io = PyarrowDatasetIO()
    OPERATIONS["merge"](io, str(ds(world)))
    assert io.read_parquet(str(ds(world))).num_rows == 3
    assert all(path.exists() for path in odd)


HOSTILE = st.sampled_from(
    [
        "..", ".", "", "/", "../x.py", "../../victim", "/etc/passwd", "a/../../x.py", "day=1/../../x.py", "a\0b", "~",
        "..\\x", ".fsspeckit", ".a=.fsspeckit/x.parquet", "owner", "a.parquet", "day=1/a.parquet", "_metadata", "part",
        "\ud800.parquet", "a=\udfff/a.parquet",
        ".day=1/a.parquet", "x" * 300 + ".parquet", "é=1/ü.parquet", "log/00000000000000000001.json", new_id(),
    ]
)  # fmt: skip
VALUES = HOSTILE | st.none() | st.integers(-2, 2**70) | st.booleans() | st.floats() | st.lists(HOSTILE, max_size=2)


@pytest.mark.sweep
@settings(max_examples=sweep_size().size(ci=120, full=5_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_records_change_nothing_outside_the_dataset(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A random record is rejected without changes, or it changes only the dataset."""
    world = build(tmp_path_factory.mktemp("world"))
    target = next(ds(world).glob("*.parquet"))
    base = record(
        publish=[publish(path="day=1/a.parquet"), publish(staged="b.staged", path="b.parquet")],
        retire=[{"path": target.name, "identity": identity_of(target)}],
        folders=["day=1"],
    )
    for _ in range(data.draw(st.integers(1, 3))):
        spoil(base, data)
    staged = dict.fromkeys(("a.staged", "b.staged"), "x")
    plant(world, base, staged)
    before, around = tree_of(world), outside(world)
    for name in ("read", "merge", "recover"):
        try:
            OPERATIONS[name](PyarrowDatasetIO(), str(ds(world)))
        except StorageError as error:
            if "cannot be used" in str(error):
                assert tree_of(world) == before
        except (FsspeckitError, ValueError):
            pass  # a staged file that is no Parquet file, and the like
        assert outside(world) == around
    shutil.rmtree(world)


def spoil(content: dict[str, Any], data: st.DataObject) -> None:
    """Replace a random field of a record with a hostile value."""
    where: Any = content
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        if not keys and isinstance(where, dict):
            where["idempotency_key"] = data.draw(VALUES)
            return
        if not keys:
            where.append(data.draw(VALUES))
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(where[key], dict | list) and data.draw(st.booleans()):
            where = where[key]
            continue
        where[key] = data.draw(VALUES)
        return


def test_valid_record_is_applied(world: Path) -> None:
    """The next operation finishes a record of an interrupted writer."""
    plant(world, record())
    staged = sidecar(world) / f".staging_{OWNER}" / "a.staged"
    pq.write_table(pa.table({"id": [7]}), staged)
    entry = publish(path="day=1/a.parquet", **identity_of(staged))
    (sidecar(world) / "log" / f"{NEXT}.json").write_text(json.dumps(record(publish=[entry], folders=["day=1"])))
    assert PyarrowDatasetIO().recover(str(ds(world))).replayed == (2,)
    assert pq.read_table(ds(world) / "day=1" / "a.parquet", partitioning=None).to_pydict() == {"id": [7]}


def test_reader_rejects_a_staged_file_of_another_identity(world: Path) -> None:
    """A record names a staged file by its size and time. A reader does not take another file in its place."""
    plant(world, record(publish=[publish(size=5, stamp="1:1")]))
    before = tree_of(world)
    with pytest.raises(CommitConflictError, match=r"changed during the read .*a\.staged"):
        OPERATIONS["read"](PyarrowDatasetIO(), str(ds(world)))
    assert tree_of(world) == before


@settings(max_examples=sweep_size().size(ci=60, full=2_000), deadline=None)
@given(st.data())
def test_damaged_columns_of_an_empty_dataset_are_rejected_or_read(data: st.DataObject) -> None:
    """Whatever the bytes are, the columns are those of a dataset, or the record is not used."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.struct([("x", pa.string())])))], {b"k": b"v"})
    content = bytearray(schema.serialize().to_pybytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    columns = base64.b64encode(content[: data.draw(st.sampled_from([None, len(content) // 2]))]).decode()
    try:
        found = Emptied.from_fields(emptied() | {"columns": columns})
    except ValueError:
        return
    pq.write_table(found.schema.empty_table(), pa.BufferOutputStream())

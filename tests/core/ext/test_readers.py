"""What holds for all three readers: paths, order, threads, columns, file paths and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.ext import read_csv, read_json, read_parquet

Read = Callable[..., pa.Table]


class Format:
    """One reader, and a way to write what it reads."""

    def __init__(self, name: str, read: Read, write: Callable[[pa.Table, Any], object]) -> None:
        self.name, self.read, self.write = name, read, write

    def put(self, path: Path, **columns: list[Any]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as sink:
            self.write(pa.table(columns), sink)
        return path

    def bytes(self, **columns: list[Any]) -> bytes:
        sink = pa.BufferOutputStream()
        self.write(pa.table(columns), sink)
        return bytes(sink.getvalue())


def _write_json(table: pa.Table, sink: Any) -> None:
    sink.write("\n".join(json.dumps(row) for row in table.to_pylist()).encode())


FORMATS = [
    Format("parquet", read_parquet, pq.write_table),
    Format("csv", read_csv, pacsv.write_csv),
    Format("json", read_json, _write_json),
]


@pytest.fixture(params=FORMATS, ids=lambda fmt: fmt.name)
def fmt(request: pytest.FixtureRequest) -> Format:
    return request.param


def test_a_file_a_folder_a_pattern_and_a_list(fmt: Format, tmp_path: Path) -> None:
    first = fmt.put(tmp_path / f"a.{fmt.name}", id=[1, 2])
    second = fmt.put(tmp_path / f"sub/b.{fmt.name}", id=[3])
    third = fmt.put(tmp_path / f"sub/deep/c.{fmt.name}", id=[4])
    (tmp_path / "notes.txt").write_text("not data")

    def ids(path: Any) -> list[int]:
        return fmt.read(path).column("id").to_pylist()

    assert ids(first) == ids(str(first)) == [1, 2]
    assert ids(tmp_path) == ids(f"{tmp_path}/") == [1, 2, 3, 4]
    assert ids(f"{tmp_path}/*.{fmt.name}") == [1, 2]
    assert ids(f"{tmp_path}/*/*.{fmt.name}") == [3]
    assert ids(f"{tmp_path}/**/[bc].{fmt.name}") == [3, 4]
    assert ids([third, first]) == [4, 1, 2]
    assert ids([f"{tmp_path}/sub", str(first)]) == [3, 4, 1, 2]
    assert ids([second, second]) == [3, 3]


@pytest.mark.parametrize("use_threads", [True, False])
def test_other_storages(fmt: Format, memory_fs: Any, use_threads: bool) -> None:
    for number in range(5):
        memory_fs.pipe_file(f"/lake/part-{number}.{fmt.name}", fmt.bytes(id=[number]))
    expected = [0, 1, 2, 3, 4]
    for path in ("memory://lake", f"memory://lake/*.{fmt.name}"):
        assert fmt.read(path, use_threads=use_threads).column("id").to_pylist() == expected
    table = fmt.read("/lake", filesystem=memory_fs, include_file_path=True, use_threads=use_threads)
    assert table.column("file_path").to_pylist() == [f"/lake/part-{number}.{fmt.name}" for number in range(5)]


@pytest.mark.scenario("UP-60")
def test_threads_change_nothing_but_time(fmt: Format, tmp_path: Path) -> None:
    for number in range(20):
        fmt.put(
            tmp_path / f"part-{number:02}.{fmt.name}",
            id=list(range(number * 100, number * 100 + 100)),
            x=["ü,\n"] * 100,
        )
    threaded = fmt.read(tmp_path, use_threads=True, include_file_path=True)
    serial = fmt.read(tmp_path, use_threads=False, include_file_path=True)
    assert threaded.equals(serial)
    assert threaded.column("id").to_pylist() == list(range(2000))


@pytest.mark.scenario("UP-59")
def test_the_file_path_is_an_arrow_string_for_every_row(fmt: Format, tmp_path: Path) -> None:
    first = fmt.put(tmp_path / f"a.{fmt.name}", id=[1, 2])
    second = fmt.put(tmp_path / f"b.{fmt.name}", id=[3])
    table = fmt.read(tmp_path, include_file_path=True)
    assert isinstance(table, pa.Table)
    assert table.schema.field("file_path").type == pa.string()
    assert table.column("file_path").to_pylist() == [str(first), str(first), str(second)]
    assert fmt.read(tmp_path, columns=[], include_file_path=True).num_rows == 3


def test_hive_folders_below_the_path_become_columns(fmt: Format, tmp_path: Path) -> None:
    fmt.put(tmp_path / f"lake=x/day=1/city=K%C3%B6ln/a.{fmt.name}", id=[1])
    fmt.put(tmp_path / f"lake=x/day=2/city=__HIVE_DEFAULT_PARTITION__/a.{fmt.name}", id=[2])
    table = fmt.read(tmp_path / "lake=x")
    assert table.to_pylist() == [{"id": 1, "day": 1, "city": "Köln"}, {"id": 2, "day": 2, "city": None}]
    assert fmt.read(tmp_path / "lake=x", columns=["city", "id"]).column_names == ["city", "id"]
    schema = pa.schema([("day", pa.string_view()), ("id", pa.int8())])
    typed = fmt.read(tmp_path / "lake=x", schema=schema)
    assert typed.schema == schema
    assert typed.column("day").to_pylist() == ["1", "2"]


@pytest.mark.scenario("UP-63")
def test_a_column_that_no_file_has_is_a_key_error(fmt: Format, tmp_path: Path) -> None:
    path = fmt.put(tmp_path / f"a.{fmt.name}", a=[1])
    with pytest.raises(pa.ArrowKeyError, match="nope"):
        fmt.read(path, columns=["a", "nope"])
    with pytest.raises(pa.ArrowKeyError, match="nope"):
        fmt.read(path, columns=["nope"], schema=pa.schema([("a", pa.int64())]))


@pytest.mark.scenario("UP-58", "UP-44")
def test_files_are_brought_to_one_schema(fmt: Format, tmp_path: Path) -> None:
    fmt.put(tmp_path / f"a.{fmt.name}", id=[1], name=["x"])
    fmt.put(tmp_path / f"b.{fmt.name}", id=[2], score=[0.5])
    table = fmt.read(tmp_path)
    assert table.column_names == ["id", "name", "score"]
    assert table.to_pylist() == [{"id": 1, "name": "x", "score": None}, {"id": 2, "name": None, "score": 0.5}]


@pytest.mark.scenario("UP-61")
def test_a_value_that_does_not_fit_the_schema_names_operation_and_path(fmt: Format, tmp_path: Path) -> None:
    path = fmt.put(tmp_path / f"a.{fmt.name}", id=[300])
    with pytest.raises(pa.ArrowInvalid) as caught:
        fmt.read(path, schema=pa.schema([("id", pa.int8())]))
    assert f"read_{fmt.name}" in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_paths_and_empty_folders(fmt: Format, tmp_path: Path) -> None:
    fmt.put(tmp_path / f"a.{fmt.name}", id=[1])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.txt").write_text("x")
    missing = [tmp_path / "no", tmp_path / "empty", f"{tmp_path}/no*.{fmt.name}", f"{tmp_path}/no/*/x.{fmt.name}"]
    for path in [*missing, [tmp_path / f"a.{fmt.name}", tmp_path / "no"]]:
        with pytest.raises(FileNotFoundError, match=f"read_{fmt.name}"):
            fmt.read(path)
    with pytest.raises(ValueError, match="empty"):
        fmt.read([])


@pytest.mark.scenario("UP-61", "UP-62")
def test_a_broken_file_is_named_and_typed(fmt: Format, tmp_path: Path) -> None:
    good = fmt.put(tmp_path / f"a.{fmt.name}", id=[1, 2, 3], name=["x", "y", "z"])
    broken = tmp_path / f"b.{fmt.name}"
    broken.write_bytes(b"\x00PAR1 garbage {,\n1,2,3,4,5,6\n\xff\xff")
    expected = OSError if fmt.name == "parquet" else pa.ArrowInvalid
    with pytest.raises(expected) as caught:
        fmt.read([good, broken])
    assert str(broken) in str(caught.value)
    assert f"read_{fmt.name}" in str(caught.value)


@pytest.mark.scenario("UP-62")
def test_a_storage_that_fails_is_an_io_error_with_operation_and_path(
    fmt: Format, s3_server: Any, s3_bucket: str
) -> None:
    fs = s3_server.filesystem()
    path = f"{s3_bucket}/a.{fmt.name}"
    fs.pipe_file(path, fmt.bytes(id=[1]))
    options = s3_server.storage_options | {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}, "secret": "hush"}
    options["config_kwargs"] = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
    with pytest.raises(pa.ArrowIOError) as caught:
        fmt.read(f"s3://{path}", storage_options=options | {"skip_instance_cache": True})
    assert path in str(caught.value)
    assert isinstance(caught.value, FsspeckitError)
    assert "hush" not in str(caught.value)

"""The sentences of the specification on partitions, one example each."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from conformance.layouts import ODD_VALUES
from fsspeckit.common.errors import PartitionError
from fsspeckit.common.partitions import parse_hive_partition_path, partition_folders, typed_values
from fsspeckit.common.types import unwrapped
from kit import by_day, data_files, look, numbers, put, tree_of

UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Ids 1 and 2 on the 14th, 3 and 4 on the 15th."""
    by_day(tmp_path / "d", **{"2025-01-14": [1, 2], "2025-01-15": [3, 4]})
    return tmp_path / "d"


def test_the_layout_is_recognised_from_the_folders(io: Any, dataset: Path) -> None:
    source = numbers([1, 9], "new", day=["2025-01-14", "2025-01-16"])
    result = io.merge(source, str(dataset), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    (new,) = result.inserted_files
    assert Path(new).parent == dataset / "day=2025-01-16"
    assert pq.read_schema(new).names == ["id", "v"]
    assert look(dataset, "id", "v", "day")[0] == (1, "new", "2025-01-14")


@pytest.mark.scenario("UP-06", "PM-07", "IO-01", "ID-01")
def test_files_of_other_partitions_are_not_candidates(io: Any, dataset: Path) -> None:
    source = numbers([1], "new", day=["2025-01-14"])
    plan = io.merge(source, str(dataset), dry_run=True, **UPSERT)
    reasons = {Path(entry.path).parent.name: (entry.action, entry.reason) for entry in plan.entries}
    assert reasons["day=2025-01-15"] == ("keep", "partition")
    assert reasons["day=2025-01-14"][0] == "rewrite"


@pytest.mark.scenario("IO-01", "ID-01")
@pytest.mark.names_stay
def test_a_file_without_a_known_partition_stays_a_candidate(io: Any, dataset: Path) -> None:
    put(dataset / "loose.parquet", numbers([7], day=["2025-01-14"]))
    result = io.merge(numbers([7], "new", day=["2025-01-14"]), str(dataset), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)
    assert result.rewritten_files == [str(dataset / "loose.parquet")]


@pytest.mark.scenario("IO-05", "ID-05")
@pytest.mark.parametrize("strategy", ["upsert", "insert", "update", "full_merge", "deduplicate"])
def test_a_key_cannot_move_to_another_partition(io: Any, dataset: Path, strategy: str) -> None:
    before = tree_of(dataset.parent)
    source = numbers([1], "new", day=["2025-01-15"])
    with pytest.raises(PartitionError, match=r"(?s)partition.*(move|change)|(move|change).*partition") as caught:
        io.merge(source, str(dataset), strategy=strategy, key_columns=["id"], partition_by=["day"])
    assert isinstance(caught.value, ValueError)
    assert tree_of(dataset.parent) == before


def test_odd_values_are_kept_by_write_read_and_merge(io: Any, tmp_path: Path) -> None:
    values = [*ODD_VALUES, None]
    table = numbers(list(range(len(values))), p=values)
    io.write_dataset(table, str(tmp_path / "d"), partition_by=["p"])
    assert sorted(look(tmp_path / "d", "id", "p")) == sorted(zip(range(len(values)), values, strict=True))
    read = io.read_parquet(str(tmp_path / "d")).sort_by("id")
    assert read["p"].to_pylist() == values
    update = table.set_column(1, "v", pa.array(["new"] * len(values)))
    result = io.merge(update, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, len(values))
    assert len(data_files(tmp_path / "d")) == len(values)
    foreign = pds.dataset(tmp_path / "d", partitioning=pds.partitioning(pa.schema({"p": pa.string()}), flavor="hive"))
    assert sorted(map(str, foreign.to_table()["p"].to_pylist())) == sorted(map(str, values))


def test_partition_values_cannot_escape_the_folder(io: Any, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    root = tmp_path / "inner" / "d"
    values = ["..", "../..", "/etc", "a/../../b", "."]
    io.write_dataset(numbers(list(range(5)), p=values), str(root), partition_by=["p"])
    assert sorted(row[1] for row in look(root, "id", "p")) == sorted(values)
    outside = [path for path in tree_of(tmp_path) if not path.startswith("inner")]
    assert outside == []
    assert {len(path.relative_to(root).parts) for path in data_files(root)} == {2}


def test_types_of_partition_columns(io: Any, tmp_path: Path) -> None:
    def column(values: list[Any]) -> pa.ChunkedArray:
        root = tmp_path / f"d{abs(hash(tuple(values)))}"
        for value in values:
            put(root / f"p={value}" / "a.parquet", numbers([1]))
        return io.read_parquet(str(root)).sort_by("p")["p"]

    assert column(["1", "-7", "10"]).to_pylist() == [-7, 1, 10]
    assert column(["01", "2"]).to_pylist() == [1, 2]
    assert column(["a%20b", "%C3%BC"]).to_pylist() == ["a b", "ü"]
    assert column(["5", "__HIVE_DEFAULT_PARTITION__"]).to_pylist() == [5, None]


def test_leading_zeros_are_kept_in_string_columns(io: Any, tmp_path: Path) -> None:
    io.write_dataset(numbers([1, 2], p=["01", "x"]), str(tmp_path / "d"), partition_by="p")
    result = io.merge(numbers([3], p=["1"]), str(tmp_path / "d"), **UPSERT)
    assert result.inserted == 1
    assert look(tmp_path / "d", "id", "p") == [(1, "01"), (2, "x"), (3, "1")]


PARTITION_COLUMNS = {
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "large_string": pa.array(["a", "ü", None], pa.large_string()),
    "string_view": pa.array(["a b", "b", None], pa.string_view()),
    "bool": pa.array([True, False, None]),
    "uint64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "int8": pa.array([-128, 0, None], pa.int8()),
    "float64": pa.array([0.5, 1e300, None]),
    "decimal": pa.array([Decimal("1.50"), Decimal("-2.00"), None]),
    "timestamp": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us")),
    "timestamp of a zone": pa.array([0, 1_700_000_000, None], pa.timestamp("s", "UTC")),
    "date": pa.array([dt.date(2025, 1, 1), dt.date(1969, 1, 1), None]),
}


@for_each("kind", PARTITION_COLUMNS)
def test_partition_columns_of_any_flat_type(io: Any, tmp_path: Path, kind: str) -> None:
    table = numbers([1, 2, 3], p=PARTITION_COLUMNS[kind])
    io.write_dataset(table, str(tmp_path / "d"), partition_by=["p"])
    before = tree_of(tmp_path)
    again = io.merge(table, str(tmp_path / "d"), **UPSERT)
    assert (again.inserted, again.updated, again.unchanged) == (0, 3, 3)
    assert tree_of(tmp_path) == before
    found = io.read_parquet(str(tmp_path / "d")).sort_by("id")["p"]
    expected = PARTITION_COLUMNS[kind].to_pylist()
    assert found.to_pylist() == expected
    assert pa.types.is_string(found.type) == isinstance(expected[0], str)
    result = io.merge(table.set_column(1, "v", pa.array(["new"] * 3)), str(tmp_path / "d"), **UPSERT)
    assert (result.updated, result.unchanged) == (3, 0)
    assert [row[1] for row in look(tmp_path / "d")] == ["new"] * 3
    assert len(data_files(tmp_path / "d")) == 3
    assert io.read_parquet(str(tmp_path / "d")).sort_by("id")["p"].null_count == 1


def test_only_folders_below_the_root_are_partitions(io: Any, tmp_path: Path) -> None:
    root = tmp_path / "year=1999" / "d"
    put(root / "a.parquet", numbers([1]))
    assert io.merge(numbers([1], "new"), str(root), **UPSERT).updated == 1
    assert io.read_parquet(str(root)).column_names == ["id", "v"]


def test_inserts_use_the_existing_folder(io: Any, tmp_path: Path) -> None:
    """Spark does not escape a space, pyarrow writes %20: both folders are the same partition."""
    put(tmp_path / "d" / "p=a b" / "a.parquet", numbers([1]))
    result = io.merge(numbers([1, 2], "new", p=["a b", "a b"]), str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    assert look(tmp_path / "d", "id", "v", "p") == [(1, "new", "a b"), (2, "new", "a b")]


def test_a_partition_column_inside_the_files_is_tolerated(io: Any, tmp_path: Path) -> None:
    """Some writers repeat the partition column in the file: the folder and the file must agree after a merge."""
    put(tmp_path / "d" / "p=a" / "a.parquet", numbers([1], p=["a"]))
    result = io.merge(numbers([1, 2], "new", p=["a", "b"]), str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    read = io.read_parquet(str(tmp_path / "d")).sort_by("id")
    assert read.select(["id", "v", "p"]).to_pylist() == [
        {"id": 1, "v": "new", "p": "a"},
        {"id": 2, "v": "new", "p": "b"},
    ]


DISAGREE = [
    ("day=1", pa.array([2])),
    ("day=1", pa.array([1, 2])),
    ("day=1", pa.array([None], pa.int64())),
    ("day=__HIVE_DEFAULT_PARTITION__", pa.array([None, 2])),
    ("day=a", pa.array(["b"])),
    ("day=a", pa.array(["a", None]).dictionary_encode()),
    ("day=1.5", pa.array([1.5, float("nan")])),
    ("day=2025-01-14", pa.array([dt.date(2025, 1, 15)])),
]


@pytest.mark.parametrize("statistics", [True, False])
@for_each("folder, inside", DISAGREE)
def test_rows_of_another_partition_than_their_folder(
    io: Any, tmp_path: Path, folder: str, inside: pa.Array, statistics: bool
) -> None:
    """Readers use the value of the row: a write by folders would delete it, a merge would insert it a second time."""
    put(tmp_path / "d" / folder / "x.parquet", numbers([1] * len(inside), day=inside), write_statistics=statistics)
    put(tmp_path / "d" / "day=7" / "y.parquet", numbers([2], day=pa.nulls(1, inside.type)).slice(0, 0))
    text = parse_hive_partition_path(f"{folder}/x")["day"]
    same_partition = typed_values([text], unwrapped(inside.type))
    before, path = tree_of(tmp_path), str(tmp_path / "d")
    sentence = rf"(?s)x\.parquet has rows with day=.* but its folder is for day={text!r}"
    for day in (same_partition, inside[-1:]):
        for strategy in ("upsert", "insert", "full_merge"):
            with pytest.raises(PartitionError, match=sentence):
                io.merge(
                    numbers([1], "new", day=day), path, strategy=strategy, key_columns=["id", "day"], null_keys="match"
                )
    source = numbers([5], "new", day=same_partition)
    for dry_run in (True, False):
        with pytest.raises(PartitionError, match=sentence):
            io.write_dataset(source, path, mode="overwrite_partitions", dry_run=dry_run)
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("statistics", [True, False])
@for_each("kind", PARTITION_COLUMNS)
def test_rows_of_the_same_partition_as_their_folder(io: Any, tmp_path: Path, kind: str, statistics: bool) -> None:
    column = PARTITION_COLUMNS[kind]
    for row, folder in enumerate(partition_folders({"p": column}).to_pylist()):
        table = numbers([row], p=column[row : row + 1])
        put(tmp_path / "d" / folder / "x.parquet", table, write_statistics=statistics)
    result = io.merge(numbers([0, 1, 2], "new", p=column), str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 3)
    io.write_dataset(numbers([7], p=column[:1]), str(tmp_path / "d"), mode="overwrite_partitions")
    assert [row[0] for row in look(tmp_path / "d")] == [1, 2, 7]


def test_an_append_does_not_read_rows_of_other_files(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=1" / "x.parquet", numbers([1], day=[2]))
    io.write_dataset(numbers([2], day=[1]), str(tmp_path / "d"))
    io.write_dataset(numbers([3], day=[5]), str(tmp_path / "d"), mode="overwrite_partitions")
    assert len(data_files(tmp_path / "d")) == 3


@for_each("folders", [("p=x", "p=%78"), ("p=%78", "p=x")])
def test_all_spellings_of_a_partition_are_overwritten(io: Any, tmp_path: Path, folders: tuple[str, ...]) -> None:
    for number, folder in enumerate(folders):
        put(tmp_path / "d" / folder / "f.parquet", numbers([number]))
    put(tmp_path / "d" / "p=y" / "f.parquet", numbers([5]))
    result = io.write_dataset(numbers([7], p=["x"]), str(tmp_path / "d"), mode="overwrite_partitions")
    assert len(result.deleted_files) == 2
    assert look(tmp_path / "d", "id", "p") == [(5, "y"), (7, "x")]


@for_each(
    "days, replaced",
    [([1, 2], 1), ([1], 1), ([None, 1], None), (None, None)],
)
def test_rows_outside_the_partition_folders_are_not_forgotten(
    io: Any, tmp_path: Path, days: list[Any] | None, replaced: int | None
) -> None:
    put(tmp_path / "d" / "day=1" / "x.parquet", numbers([1], day=[1]))
    columns = {} if days is None else {"day": pa.array(days, pa.int64())}
    put(tmp_path / "d" / "loose.parquet", numbers([9] * len(days or [0]), **columns))
    before, path = tree_of(tmp_path), str(tmp_path / "d")
    source = numbers([5], day=pa.array([replaced], pa.int64()))
    with pytest.raises(PartitionError, match=r"loose\.parquet is outside the partition folders"):
        io.write_dataset(source, path, mode="overwrite_partitions")
    assert tree_of(tmp_path) == before
    io.write_dataset(numbers([6], day=pa.array([77], pa.int64())), path, mode="overwrite_partitions")

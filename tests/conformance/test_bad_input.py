"""Invalid input of every kind: the right class of error, a helpful message, and no changed file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common import errors
from kit import by_day, flip_page, numbers, put, three_files, tree_of

STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")
UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
WRITES: dict[str, Callable[[Any, pa.Table, str], Any]] = {
    "append": lambda io, data, path: io.write_dataset(data, path),
    "overwrite": lambda io, data, path: io.write_dataset(data, path, mode="overwrite"),
    "merge": lambda io, data, path: io.merge(data, path, **UPSERT),
    "dry run": lambda io, data, path: io.merge(data, path, dry_run=True, **UPSERT),
}


@contextmanager
def refused(
    parent: Path, error: type[Exception] | tuple[type[Exception], ...], *words: str
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises the error with the given words, and nothing below the parent folder changes."""
    before = tree_of(parent)
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    missing = [word for word in words if word.lower() not in message.lower()]
    assert not missing, f"the message does not speak of {missing}: {message}"
    assert len(message) > 20, message
    assert tree_of(parent) == before, "something was written"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Ids 0 to 29 in three files."""
    three_files(tmp_path / "d")
    return tmp_path / "d"


# Keys


@pytest.mark.scenario("UP-03", "UP-16", "PM-04")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_missing_key_column(io: Any, dataset: Path, strategy: str) -> None:
    with refused(dataset.parent, errors.KeyColumnError, "nowhere", "source"):
        io.merge(numbers([1]), str(dataset), strategy=strategy, key_columns=["id", "nowhere"])


@pytest.mark.scenario("UP-03", "UP-16", "PM-04")
def test_key_column_missing_in_the_target(io: Any, dataset: Path) -> None:
    with refused(dataset.parent, ValueError, "fresh", "target"):
        io.merge(numbers([1], fresh=[1]), str(dataset), strategy="upsert", key_columns=["fresh"])


@pytest.mark.parametrize("keys", [[], ["id", "id"], "", {"id"}], ids=str)
def test_no_key_columns_or_one_twice_or_in_no_order(io: Any, dataset: Path, keys: Any) -> None:
    with refused(dataset.parent, ValueError, "key"):
        io.merge(numbers([1]), str(dataset), strategy="upsert", key_columns=keys)


def test_order_by_a_column_without_an_order(io: Any, dataset: Path) -> None:
    source = numbers([1, 1], nested=[[1], [2]])
    with refused(dataset.parent, errors.SchemaMismatchError, "dedup_order_by names 'nested'"):
        io.merge(
            source, str(dataset), dedup_order_by="nested", schema_mode="evolve", **UPSERT | {"strategy": "deduplicate"}
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_column_that_differs_only_in_case(io: Any, tmp_path: Path, strategy: str) -> None:
    """Spark takes both for one column, and then cannot read the dataset."""
    given: dict[str, Any] = {"strategy": strategy, "key_columns": ["id"], "schema_mode": "evolve"}
    rows = pa.table({"id": [1], "day": ["mon"], "name": ["a"], "place": [{"zip": "1"}]})
    io.write_dataset(rows, str(tmp_path / "d"), partition_by=["day"])
    twins = {
        "Name": rows.append_column("Name", pa.array(["b"])),
        "place.Zip": rows.set_column(3, "place", pa.array([{"zip": "1", "Zip": "2"}])),
        "Day": rows.append_column("Day", pa.array(["tue"])),
        "Ab": rows.append_column("ab", pa.array([1])).append_column("Ab", pa.array([1])),
    }
    for name, source in twins.items():
        for dry_run in (True, False):
            with refused(tmp_path, errors.SchemaMismatchError, f"the new column {name!r}", "only in case", "rename"):
                io.merge(source, str(tmp_path / "d"), dry_run=dry_run, **given)
    io.merge(rows.append_column("other", pa.array([1])), str(tmp_path / "d"), **given)


def test_a_feed_with_a_column_of_a_history_in_another_case(io: Any, tmp_path: Path) -> None:
    feed = pa.table({"id": [1], "at": [1], "Valid_From": [1]})
    with refused(tmp_path, errors.SchemaMismatchError, "Valid_From", "rename"):
        io.apply_changes(feed, str(tmp_path / "d"), key_columns=["id"], sequence_by="at", scd_type=2)


@pytest.mark.scenario("UP-03", "UP-17", "PM-04")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_null_key_in_the_source(io: Any, dataset: Path, strategy: str) -> None:
    with refused(dataset.parent, errors.KeyColumnError, "id", "source", "null"):
        io.merge(numbers([1, None], "new"), str(dataset), strategy=strategy, key_columns=["id"])


@pytest.mark.scenario("UP-03", "UP-17", "UP-41", "PM-04")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("statistics", [True, False])
def test_null_key_in_the_target(io: Any, dataset: Path, strategy: str, statistics: bool) -> None:
    put(dataset / "z.parquet", numbers([7, None]), write_statistics=statistics)
    with refused(dataset.parent, errors.KeyColumnError, "id", "target", "null"):
        io.merge(numbers([1], "new"), str(dataset), strategy=strategy, key_columns=["id"])


def test_null_in_the_second_of_two_keys(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2], region=["a", "b"]))
    source = numbers([1], "new", region=pa.array([None], pa.string()))
    with refused(tmp_path, errors.KeyColumnError, "region", "source", "null"):
        io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id", "region"])


@pytest.mark.parametrize("strategy", ["upsert", "insert", "update", "full_merge"])
def test_duplicate_keys_are_named_and_counted(io: Any, dataset: Path, strategy: str) -> None:
    source = numbers([1, 1, 1, 70, 70, 3], "new")
    with refused(dataset.parent, errors.KeyColumnError, "70", "3", "duplicate", "on_duplicate_source"):
        io.merge(source, str(dataset), strategy=strategy, key_columns=["id"])


def test_at_most_five_duplicates_are_named(io: Any, dataset: Path) -> None:
    keys = [1000 + i for i in range(50)]
    with pytest.raises(ValueError, match="duplicate") as caught:
        io.merge(numbers([*keys, *keys]), str(dataset), **UPSERT)
    assert sum(str(key) in str(caught.value) for key in keys) == 5


def test_partition_columns_as_the_only_keys(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1])
    with refused(tmp_path, errors.KeyColumnError, "key", "partition"):
        io.merge(numbers([1], "new", day=["mon"]), str(tmp_path / "d"), strategy="upsert", key_columns=["day"])


def test_nested_column_as_key(io: Any, tmp_path: Path) -> None:
    table = numbers([1], k=pa.array([{"a": 1}]))
    put(tmp_path / "d" / "a.parquet", table)
    with refused(tmp_path, ValueError, "'k'", "key"):
        io.merge(table, str(tmp_path / "d"), strategy="upsert", key_columns=["k"])


# Arguments


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("strategy", "replace"),
        ("strategy", None),
        ("on_duplicate_source", "any"),
        ("null_keys", "ignore"),
        ("schema_mode", "loose"),
        ("partition_move", "maybe"),
        ("compression", "zip"),
        ("max_rows_per_file", 0),
        ("row_group_size", -1),
        ("batch_rows", 0),
        ("memory_limit", 0),
        ("dedup_order_by", ["nowhere"]),
    ],
)
def test_unknown_option_values(io: Any, dataset: Path, option: str, value: Any) -> None:
    call = UPSERT | ({"strategy": "deduplicate"} if option == "dedup_order_by" else {}) | {option: value}
    words = ["nowhere" if option == "dedup_order_by" else option]
    with refused(dataset.parent, ValueError, *words):
        io.merge(numbers([1], "new"), str(dataset), **call)


@pytest.mark.parametrize(
    ("option", "value"), [("mode", "replace"), ("max_rows_per_file", 0), ("row_group_size", 0), ("compression", "zip")]
)
def test_unknown_option_values_of_a_write(io: Any, dataset: Path, option: str, value: Any) -> None:
    with refused(dataset.parent, ValueError, option):
        io.write_dataset(numbers([1], "new"), str(dataset), **{option: value})


def test_the_strategies_are_named_when_one_is_unknown(io: Any, dataset: Path) -> None:
    with refused(dataset.parent, ValueError, *STRATEGIES):
        io.merge(numbers([1]), str(dataset), strategy="replace", key_columns=["id"])


@pytest.mark.parametrize("data", [[{"id": 1, "v": "x"}], {"id": [1]}, None, 5, [], "no/such/path"], ids=repr)
@pytest.mark.parametrize("write", WRITES)
def test_data_of_unsupported_types(io: Any, dataset: Path, write: str, data: Any) -> None:
    path = isinstance(data, str)
    error, word = (FileNotFoundError, data) if path else (errors.UnsupportedDataError, type(data).__name__)
    with refused(dataset.parent, error, word):
        WRITES[write](io, data, str(dataset))


# Partitions


@pytest.mark.parametrize(
    ("value", "words"), [("a\x00b", ["NUL"]), ("__HIVE_DEFAULT_PARTITION__", ["__HIVE_DEFAULT_PARTITION__"])]
)
@pytest.mark.parametrize("write", WRITES)
def test_partition_values_that_cannot_be_stored(
    io: Any, tmp_path: Path, write: str, value: str, words: list[str]
) -> None:
    by_day(tmp_path / "d", mon=[1, 2])
    source = numbers([2, 3], "new", day=["mon", value])
    with refused(tmp_path, errors.PartitionError, "day", *words):
        WRITES[write](io, source, str(tmp_path / "d"))


@pytest.mark.parametrize("write", ["append", "overwrite", "merge"])
def test_a_partition_value_too_long_for_the_disk(io: Any, tmp_path: Path, write: str) -> None:
    by_day(tmp_path / "d", mon=[1, 2])
    before = {path: stamp for path, stamp in tree_of(tmp_path).items() if path.startswith("d")}
    with pytest.raises((OSError, ValueError), match="day"):
        WRITES[write](io, numbers([1, 3], "new", day=["mon", "x" * 300]), str(tmp_path / "d"))
    after = tree_of(tmp_path)
    assert {path: stamp for path, stamp in after.items() if path.startswith("d")} == before
    assert not [path for path in after if "staging" in path or path.endswith(".staged")]
    io.merge(numbers([1], "later", day=["mon"]), str(tmp_path / "d"), **UPSERT)


def test_partition_column_missing_in_the_source(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1])
    with refused(tmp_path, ValueError, "day"):
        io.merge(numbers([1], "new"), str(tmp_path / "d"), **UPSERT)


def test_partition_column_missing_in_a_write(io: Any, tmp_path: Path) -> None:
    with refused(tmp_path, ValueError, "nowhere"):
        io.write_dataset(numbers([1]), str(tmp_path / "d"), partition_by=["nowhere"])


def test_every_column_a_partition(io: Any, tmp_path: Path) -> None:
    with refused(tmp_path, ValueError, "partition"):
        io.write_dataset(pa.table({"day": ["mon"]}), str(tmp_path / "d"), partition_by=["day"])


def test_folders_with_different_partition_columns(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=mon" / "a.parquet", numbers([1]))
    put(tmp_path / "d" / "week=1" / "a.parquet", numbers([2]))
    with refused(tmp_path, errors.PartitionError, "week"):
        io.merge(numbers([1], "new", day=["mon"]), str(tmp_path / "d"), **UPSERT)


def test_overwrite_partitions_of_a_flat_dataset(io: Any, dataset: Path) -> None:
    with refused(dataset.parent, ValueError, "partition", 'mode="overwrite"') as caught:
        io.write_dataset(numbers([1]), str(dataset), mode="overwrite_partitions")
    assert "partition_by" not in str(caught.value)  # the dataset is there, and has no partitions
    with refused(dataset.parent, ValueError, "pass partition_by"):
        io.write_dataset(numbers([1]), str(dataset.parent / "new"), mode="overwrite_partitions")


# Schema


def test_a_null_for_a_column_that_is_not_nullable(io: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "v": ["x"]}, schema=schema))
    with refused(tmp_path, errors.SchemaMismatchError, "v", "null"):
        io.merge(pa.table({"id": [1], "v": pa.array([None], pa.string())}), str(tmp_path / "d"), **UPSERT)


def test_duplicate_column_names(io: Any, dataset: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["a"]), pa.array(["b"])], names=["id", "v", "v"])
    for write in ("append", "merge"):
        with refused(dataset.parent, ValueError, "v"):
            WRITES[write](io, twice, str(dataset))


def test_appending_another_schema(io: Any, dataset: Path) -> None:
    with refused(dataset.parent, errors.SchemaMismatchError, "v"):
        io.write_dataset(pa.table({"id": [1], "v": [1.5]}), str(dataset))


def test_a_table_without_columns(io: Any, tmp_path: Path) -> None:
    with refused(tmp_path, ValueError, "column"):
        io.write_dataset(pa.table({}), str(tmp_path / "d"))


# Files


@pytest.mark.parametrize("write", ["merge", "dry run"])
def test_zero_byte_file(io: Any, dataset: Path, write: str) -> None:
    (dataset / "empty.parquet").touch()
    with refused(dataset.parent, errors.DamagedFileError, "empty.parquet"):
        WRITES[write](io, numbers([1], "new"), str(dataset))
    with refused(dataset.parent, OSError, "empty.parquet"):
        io.read_parquet(str(dataset))


@pytest.mark.parametrize("keep", [3, 60, -1, -9])
@pytest.mark.parametrize("write", ["merge", "dry run"])
def test_truncated_file(io: Any, dataset: Path, write: str, keep: int) -> None:
    path = dataset / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with refused(dataset.parent, errors.DamagedFileError, "part-1.parquet"):
        WRITES[write](io, numbers([1], "new"), str(dataset))


@pytest.mark.parametrize(
    "noise", [b"PAR1", b"not parquet at all, but long enough to be one" * 9, b"PAR1" + b"\xff" * 90 + b"PAR1"]
)
def test_a_file_that_is_not_parquet(io: Any, dataset: Path, noise: bytes) -> None:
    (dataset / "noise.parquet").write_bytes(noise)
    with refused(dataset.parent, errors.DamagedFileError, "noise.parquet"):
        io.merge(numbers([1], "new"), str(dataset), **UPSERT)


@pytest.mark.parametrize("column", ["id", "v"])
@pytest.mark.parametrize("strategy", ["upsert", "full_merge"])
def test_damaged_pages_are_not_rewritten(io: Any, tmp_path: Path, column: str, strategy: str) -> None:
    """One flipped bit in a page of a file that is rewritten is an error if the page has a checksum."""
    table = numbers(list(range(100)), [f"text {i}" for i in range(100)])
    path = put(tmp_path / "d" / "a.parquet", table, write_page_checksum=True, compression="none", use_dictionary=False)
    flip_page(path, column)
    assert pq.read_table(path).num_rows == 100, "the default reader does not notice"
    before = tree_of(tmp_path / "d")
    with pytest.raises(errors.DamagedFileError, match=r"a\.parquet"):
        io.merge(numbers([5], "new"), str(tmp_path / "d"), strategy=strategy, key_columns=["id"])
    assert tree_of(tmp_path / "d") == before


@pytest.mark.parametrize("filters", [None, [("id", ">=", 0)]])
def test_damaged_pages_are_not_read(io: Any, tmp_path: Path, filters: Any) -> None:
    table = numbers(list(range(100)), [f"text {i}" for i in range(100)])
    path = put(tmp_path / "d" / "a.parquet", table, write_page_checksum=True, compression="none", use_dictionary=False)
    flip_page(path, "v")
    with pytest.raises(errors.DamagedFileError, match=r"a\.parquet"):
        io.read_parquet(str(tmp_path / "d"), filters=filters)
    assert io.read_parquet(str(tmp_path / "d"), columns=["id"]).num_rows == 100


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_damaged_key_pages_are_an_error(io: Any, tmp_path: Path, strategy: str) -> None:
    """A damaged key has another value; without the checksum, the row would be inserted again."""
    table = pa.table({"id": ["aaaa", "bbbb", "cccc"], "v": ["old"] * 3})
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    path = put(tmp_path / "d" / "a.parquet", table, write_statistics=False, **options)
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"bbba", 1))
    before = tree_of(tmp_path / "d")
    source = pa.table({"id": ["bbbb"], "v": ["new"]})
    with pytest.raises(errors.DamagedFileError, match=r"a\.parquet"):
        io.merge(source, str(tmp_path / "d"), strategy=strategy, key_columns=["id"])
    assert tree_of(tmp_path / "d") == before


@pytest.mark.parametrize("target", ["file", "folder"])
@pytest.mark.parametrize("write", WRITES)
def test_symlinks_below_the_dataset(io: Any, dataset: Path, write: str, target: str) -> None:
    outside = put(dataset.parent / "outside" / "x.parquet", numbers([1]))
    link = dataset / ("link.parquet" if target == "file" else "link")
    link.symlink_to(outside if target == "file" else outside.parent)
    with refused(dataset.parent, (OSError, ValueError), "link", "symlink"):
        WRITES[write](io, numbers([1], "new"), str(dataset))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("_delta_log/00000000000000000000.json", "Delta"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
def test_the_folder_of_a_table_format(io: Any, dataset: Path, write: str, made: str, name: str) -> None:
    (dataset / made).parent.mkdir()
    (dataset / made).write_text("{}")
    with refused(dataset.parent, errors.TableFormatError, name):
        WRITES[write](io, numbers([1], "new"), str(dataset))


def test_a_template_that_gives_the_name_of_an_existing_file(io: Any, dataset: Path) -> None:
    (dataset / "part-0.parquet").unlink()
    with refused(dataset.parent, (FileExistsError, ValueError), "part-1.parquet"):
        io.write_dataset(numbers([1, 2]), str(dataset), basename_template="part-{i}.parquet", max_rows_per_file=1)


TEMPLATES = ["fixed.parquet", "x-{i}", "../x-{i}.parquet", "a/{i}.parquet", "_{i}.parquet", "x\0{i}.parquet"]


@pytest.mark.parametrize("template", [*TEMPLATES, "\ud800{i}.parquet", 5, b"{i}.parquet"], ids=repr)
def test_a_template_that_cannot_name_files(io: Any, tmp_path: Path, template: Any) -> None:
    with refused(tmp_path, ValueError, "basename_template"):
        io.write_dataset(numbers([1, 2]), str(tmp_path / "d"), basename_template=template, max_rows_per_file=1)


def test_a_target_that_is_a_file(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "x.parquet", numbers([1]))
    for write in ("append", "overwrite", "merge"):
        with refused(tmp_path, (OSError, ValueError), "x.parquet"):
            WRITES[write](io, numbers([1], "new"), str(path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder, whatever its permissions")
def test_an_unreadable_folder_on_disk(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1], tue=[2])
    (tmp_path / "d" / "day=tue").chmod(0)
    try:
        with pytest.raises(OSError, match="day=tue"):
            io.merge(numbers([1], "new", day=["mon"]), str(tmp_path / "d"), **UPSERT)
    finally:
        (tmp_path / "d" / "day=tue").chmod(0o755)

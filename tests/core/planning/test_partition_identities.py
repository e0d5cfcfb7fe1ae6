"""Identities of partitions: the values of many folders are parsed together, with the same result as one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fsspeckit.core.dataset.source_keys import PartitionIdentities

FOLDERS = [
    ("1", "x"),
    ("01", "x"),
    (None, "y"),
    ("2", None),
    ("two", "x"),
    ("0x3", "é / ü"),
    ("1", "x"),
    ("9" * 30, "x"),
]


@pytest.mark.parametrize("in_folders", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize(
    "type_", [pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.dictionary(pa.int32(), pa.int64())]
)
@pytest.mark.parametrize("folders", [FOLDERS, FOLDERS[:1], [], [("1", "x"), ("2", None)]])
def test_many_folders_have_the_same_identities_as_each(
    type_: pa.DataType, in_folders: tuple[str, ...], folders: list[tuple[str | None, ...]]
) -> None:
    schema = pa.schema({"a": type_, "b": pa.string()})
    together = PartitionIdentities(("a", "b"), schema, in_folders).of_all([None, *folders])
    assert together == [None, *(PartitionIdentities(("a", "b"), schema, in_folders).of(each) for each in folders)]


def test_without_columns_every_folder_is_the_same_partition() -> None:
    assert PartitionIdentities((), pa.schema({})).of_all([(), None, ()]) == ["", None, ""]

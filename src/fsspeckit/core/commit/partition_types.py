"""The types with which the partition columns of a dataset were written, as the journal keeps them.

Folders have only texts. The record of a commit that sets the types has them, and when it is applied they become the
name of an empty file in the folder of the records, so that one listing returns them too. The names of the columns are
those of the folders; the digest tells whether the types are for them. Anyone with access may have written the name, so
it is validated, and types that do not fit the texts of the folders are not used.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

import pyarrow as pa

from fsspeckit.common.partitions import plain_partition_type

MARK = re.compile(r"types-(\d{20})-([0-9a-f]{8}-[A-Za-z0-9_-]{1,180})", re.ASCII)
_TEXT = re.compile(r"([0-9a-f]{8})-([A-Za-z0-9_-]{1,180})", re.ASCII)
_PLAIN = {
    str(type_): type_
    for type_ in (
        *(pa.null(), pa.string(), pa.bool_(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    )
} | {"date": pa.date32()}
_TIMESTAMP = re.compile(r"timestamp\[(us|ns)(?:, tz=([A-Za-z0-9_+:/-]{1,60}))?\]", re.ASCII)
_DECIMAL = re.compile(r"decimal(128|256)\((\d{1,2}), (-?\d{1,2})\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartitionTypes:
    """The types of partition columns in the order of the folders. ``null`` is that of a column in the files."""

    digest: str
    types: tuple[pa.DataType, ...]

    @classmethod
    def of(cls, schema: pa.Schema, in_files: Iterable[str] = ()) -> Self | None:
        """Return the types of columns, or None if there is no column, or a name in the journal cannot have them."""
        inside = set(in_files)
        types = [pa.null() if field.name in inside else plain_partition_type(field.type) for field in schema]
        found = cls(_digest(schema.names), tuple(types))
        if not types or _TEXT.fullmatch(found.text) is None:
            return None
        try:
            return cls.parse(found.text)
        except ValueError:
            return None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the types in a text of the journal.

        Raises:
            ValueError: It is not one.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError("the types of its partition columns are not valid")
        names = urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4)).decode("ascii").split(";")
        return cls(found[1], tuple(map(_type_of, names)))

    @property
    def text(self) -> str:
        """The types as they are stored."""
        names = ";".join("date" if type_ == pa.date32() else str(type_) for type_ in self.types)
        return f"{self.digest}-{urlsafe_b64encode(names.encode()).decode().rstrip('=')}"

    def of_columns(self, names: Sequence[str]) -> list[pa.DataType | None]:
        """Return the type of each partition column, None where it is not known."""
        if len(names) != len(self.types) or _digest(names) != self.digest:
            return [None] * len(names)
        return [None if type_ == pa.null() else type_ for type_ in self.types]


def recorded_types(names: Iterable[str]) -> tuple[tuple[int, PartitionTypes], ...]:
    """Return the types in the names of marks, with the slots of their commits, oldest first. Others are left out."""
    found = []
    for mark in sorted(filter(None, map(MARK.fullmatch, names)), key=lambda match: match[0]):
        with suppress(ValueError):
            found.append((int(mark[1]), PartitionTypes.parse(mark[2])))
    return tuple(found)


def mark_of(seq: int, types: PartitionTypes) -> str:
    """Return the name of the mark of a commit."""
    return f"types-{seq:020d}-{types.text}"


def _digest(names: Sequence[str]) -> str:
    return sha256("\0".join(names).encode()).hexdigest()[:8]


def _type_of(name: str) -> pa.DataType:
    if name in _PLAIN:
        return _PLAIN[name]
    if (found := _TIMESTAMP.fullmatch(name)) is not None:
        return pa.timestamp(found[1], found[2])
    if (found := _DECIMAL.fullmatch(name)) is not None:
        build = pa.decimal128 if found[1] == "128" else pa.decimal256
        try:
            return build(int(found[2]), int(found[3]))
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"{name} is not a type") from error
    raise ValueError(f"{name[:60]!r} is not the type of a partition column")

"""The note that `optimize` leaves in a footer, and keeping it out of schemas.

Arrow hands a footer's notes on as metadata of the schema, so a note could travel with a table into a file that it is
not true of. It is therefore taken off whatever is read, and written only where it is meant; and it names the number of
rows of its file, so that one carried over by another program is not believed.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import BoundValue, SortNote

_NAME = b"fsspeckit.layout"


def read_sort_note(metadata: Mapping[bytes, bytes] | None, rows: int) -> SortNote | None:
    """The note of a footer, where it has one that can be true."""
    if not metadata or _NAME not in metadata:
        return None
    try:
        found = json.loads(metadata[_NAME])
        size, count = found["target"]
        columns = tuple(map(str, found["columns"]))
        low, high = (_values(row, len(columns)) for row in found["ends"])
        note = SortNote(
            str(found["curve"]),
            columns,
            str(found["run"]),
            int(found["rows"]),
            (low, high),
            (None if size is None else float(size), None if count is None else int(count)),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.rows == rows else None


def _values(row: Sequence[Any], count: int) -> tuple[BoundValue, ...]:
    """One end: a number, text or null for each column; raises where it is anything else."""
    values = tuple(b64decode(value) if isinstance(value, str) else value for value in row)
    if len(values) != count or not all(value is None or type(value) in (int, bytes) for value in values):
        raise ValueError("not the end of so many columns")
    return values


def _texts(row: Sequence[BoundValue]) -> list[Any]:
    return [b64encode(value).decode() if isinstance(value, bytes) else value for value in row]


def sort_note_metadata(note: SortNote | None) -> dict[bytes, bytes]:
    """A note as the metadata that a writer takes."""
    if note is None:
        return {}
    document = {
        "curve": note.curve,
        "columns": note.columns,
        "run": note.run,
        "rows": note.rows,
        "ends": [_texts(row) for row in note.bounds],
        "target": note.target,
    }
    return {_NAME: json.dumps(document).encode()}


def without_sort_note(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """Metadata without the note."""
    if not metadata:
        return None
    return {key: value for key, value in metadata.items() if key != _NAME} or None


def schema_without_sort_note(schema: pa.Schema) -> pa.Schema:
    """A schema without the note; itself where it has none."""
    metadata = schema.metadata
    return schema.with_metadata(without_sort_note(metadata)) if metadata and _NAME in metadata else schema

"""Read and write the sort note: footer metadata by which `optimize` recognizes files that it sorted.

Arrow copies footer metadata into the schema, so a note could be copied into another file for which it is wrong. It is
removed from every schema that is read. It also contains the number of rows of its file, so that a note that another
program copied is ignored.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.common.documents import parse_json
from fsspeckit.core.model import BoundValue, SortNote

_NAME = b"fsspeckit.layout"


def read_sort_note(metadata: Mapping[bytes, bytes] | None, rows: int) -> SortNote | None:
    """Return the sort note of a file with ``rows`` rows, or None if it is missing or invalid."""
    return parse_sort_note(metadata[_NAME], rows) if metadata and _NAME in metadata else None


def parse_sort_note(text: bytes, rows: int) -> SortNote | None:
    """Return the sort note of a file with ``rows`` rows, or None if it is invalid."""
    try:
        document = parse_json(text)
        size, count = document["target"]
        columns = tuple(map(str, document["columns"]))
        low, high = (_values(row, len(columns)) for row in document["ends"])
        note = SortNote(
            str(document["curve"]),
            columns,
            str(document["run"]),
            int(document["rows"]),
            (low, high),
            (None if size is None else float(size), None if count is None else int(count)),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.rows == rows else None


def _values(row: Sequence[Any], count: int) -> tuple[BoundValue, ...]:
    """Return the values of a bound: an integer, bytes or None per column. Raise for anything else."""
    values = tuple(b64decode(value) if isinstance(value, str) else value for value in row)
    if len(values) != count or not all(value is None or type(value) in (int, bytes) for value in values):
        raise ValueError("not a bound of these columns")
    return values


def _texts(row: Sequence[BoundValue]) -> list[Any]:
    return [b64encode(value).decode() if isinstance(value, bytes) else value for value in row]


def sort_note_metadata(note: SortNote | None) -> dict[bytes, bytes]:
    """Return a sort note as footer metadata."""
    return {} if note is None else {_NAME: sort_note_text(note)}


def sort_note_text(note: SortNote) -> bytes:
    """Return a sort note as it is stored."""
    document = {
        "curve": note.curve,
        "columns": note.columns,
        "run": note.run,
        "rows": note.rows,
        "ends": [_texts(row) for row in note.bounds],
        "target": note.target,
    }
    return json.dumps(document).encode()


def without_sort_note(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """Return metadata without the sort note."""
    if not metadata:
        return None
    return {key: value for key, value in metadata.items() if key != _NAME} or None


def schema_without_sort_note(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the sort note."""
    metadata = schema.metadata
    return schema.with_metadata(without_sort_note(metadata)) if metadata and _NAME in metadata else schema

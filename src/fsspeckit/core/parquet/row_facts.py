"""Footer metadata of other programs that describes the rows of one file, and is wrong for a file with other rows.

GeoParquet stores the bounds and the types of all geometries, pandas the range of its index, R the names of rows. What
describes columns is kept: coordinate systems, encodings, types, names. Readers do without the rest.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from fsspeckit.common.documents import parse_json
from fsspeckit.core.parquet.int96 import ARROW_SCHEMA

_OF_TYPES = ("geometry_types", "geometry_type", "covering")
_WIDE_CODES = 2**15
_R = b"r"
_OF_ROWS_IN_R = (b"bbox", b"row.names")


def without_row_facts(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """Return footer metadata without what describes rows, also in the Arrow schema that it contains."""
    found = dict(metadata or {})
    for key, clean in _CLEAN.items():
        if key in found:
            found[key] = _cleaned(found[key], clean)
    if any(text in found.get(_R, b"") for text in _OF_ROWS_IN_R):
        del found[_R]
    if found != dict(metadata or {}) and ARROW_SCHEMA in found:
        found[ARROW_SCHEMA] = _cleaned_schema(found[ARROW_SCHEMA])
    return found


def geometry_columns(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return what the metadata of GeoParquet says about each geometry column, without what describes rows."""
    try:
        columns = _geo(parse_json((metadata or {})[b"geo"]))["columns"].items()
        return {name: {key: facts[key] for key in sorted(facts) if key not in _OF_TYPES} for name, facts in columns}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return {}


def _cleaned_schema(stored: bytes) -> bytes:
    """Return a stored Arrow schema whose metadata does not describe rows: pyarrow takes it, not that of the footer."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(stored)))
    except (ValueError, pa.ArrowException, OSError):
        return stored
    return b64encode(schema.with_metadata(without_row_facts(schema.metadata)).serialize())


def _cleaned(text: bytes, clean: Callable[[Any], Any]) -> bytes:
    """Return a document without what describes rows; the same text if it describes none, or is not such a document."""
    try:
        before, after = parse_json(text), clean(parse_json(text))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return text
    return text if before == after else json.dumps(after).encode()


def _geo(document: dict[str, Any]) -> dict[str, Any]:
    """Empty geometry types mean that they are not known."""
    for column in (document, *document["columns"].values()):
        column.pop("bbox", None)
        if column.get("geometry_types"):
            column["geometry_types"] = []
        if "geometry_type" in column:  # of drafts of the format
            column["geometry_type"] = "Unknown"
    return document


def _pandas(document: dict[str, Any]) -> dict[str, Any]:
    """Leave room for more categories: fastparquet chooses the width of codes by their number."""
    for column in document["columns"]:
        facts = column["metadata"] if column["pandas_type"] == "categorical" else None
        if facts and not facts["ordered"]:
            facts["num_categories"] = max(facts["num_categories"], _WIDE_CODES)
    document["index_columns"] = [index for index in document["index_columns"] if not isinstance(index, dict)]
    return document


_CLEAN = {b"geo": _geo, b"pandas": _pandas}

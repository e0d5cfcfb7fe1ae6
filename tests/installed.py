"""What older versions of packages need in tests: `make test-versions` has environments with them.

Tests of features that the installed pyarrow lacks are skipped, and warnings of old versions of PySpark are ignored.
"""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa
import pytest

from fsspeckit.common.arrow_versions import BLOOM_FILTERS, EXTENSION_TYPES, INSTALLED, VIEWS
from fsspeckit.common.types import is_view

HAS_BLOOM_FILTERS = INSTALLED >= BLOOM_FILTERS
HAS_NARROW_DECIMALS = hasattr(pa, "decimal32")
DICTIONARY_CODES, FIXED_LISTS = 20, 26
"""First versions of pyarrow whose files keep the width of dictionary codes, and nulls in lists of a fixed size."""
_FEATURES = {
    "bloom_filter": BLOOM_FILTERS,
    "pa.uuid": EXTENSION_TYPES,
    "pa.json_": EXTENSION_TYPES,
    "pa.bool8": EXTENSION_TYPES,
    "_view": VIEWS,
    "pa.decimal32": 19,
    "pa.decimal64": 19,
    "pa.dictionary(pa.int8(": DICTIONARY_CODES,
    "array of text": FIXED_LISTS,
    "too long for pyarrow's statistics": 18,
}
"""Words in the source or the parameters of a test, and the first version of pyarrow that has the feature."""


_WARNINGS = {
    "4.2": "ignore:unclosed <socket:ResourceWarning",  # sockets over which results are collected
    "4.0": "ignore:distutils Version classes:DeprecationWarning",
}
"""What PySpark before a version warns of."""


def known_warnings() -> list[str]:
    """Filters for the warnings of the installed PySpark."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return []
    return [text for fixed_in, text in _WARNINGS.items() if _numbers(installed) < _numbers(fixed_in)]


def has_duckdb(wanted: str) -> bool:
    """Whether the installed DuckDB, the second reader of the tests, has at least a version."""
    return _numbers(version("duckdb")) >= _numbers(wanted)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")[:2]]


def can_store(type_: pa.DataType) -> bool:
    """Whether files keep a type that is not nested as it is."""
    if pa.types.is_dictionary(type_) and type_.index_type != pa.int32():
        return INSTALLED >= DICTIONARY_CODES
    if pa.types.is_fixed_size_list(type_):
        return INSTALLED >= FIXED_LISTS
    return INSTALLED >= VIEWS or not is_view(type_)


def missing_feature(item: pytest.Item) -> str | None:
    """What a test names and the installed pyarrow lacks."""
    lacking = {word: version for word, version in _FEATURES.items() if version > INSTALLED}
    if not lacking or not isinstance(item, pytest.Function):
        return None
    chosen = getattr(item, "callspec", None)
    text = inspect.getsource(item.function) + (repr(chosen.params) if chosen is not None else "")
    return next((f"{word!r} needs pyarrow {lacking[word]}" for word in lacking if word in text), None)

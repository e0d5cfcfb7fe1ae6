"""Changes to a valid JSON document, as a careless or hostile person would make them."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator
from typing import Any

from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def put(document: Any, place: tuple[Any, ...], value: Any) -> None:
    """Give a place in a document another value."""
    *outer, last = place
    for key in outer:
        document = document[key]
    document[last] = value


@st.composite
def changed(draw: st.DrawFn, document: dict[str, Any], keys: Collection[str] | None = None) -> bytes:
    """The text of a document with some values replaced or removed, perhaps cut off; only below some keys."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        known = [place for place in _places(document) if keys is None or place[0] in keys]
        at = draw(st.sampled_from(known))
        if draw(st.booleans()):
            _remove(document, at)
        else:
            put(document, at, draw(ANYTHING))
    text = json.dumps(document).encode()
    return text[: draw(st.none() | st.integers(0, len(text)))]


def _remove(document: Any, place: tuple[Any, ...]) -> None:
    *outer, last = place
    for key in outer:
        document = document[key]
    del document[last]


def _places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*here, key)
        yield from _places(inner, (*here, key))

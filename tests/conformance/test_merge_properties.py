"""Random merges against the oracle: every kind of key, of value, of file and of partition, then all of them mixed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st

from conformance.cases import cases
from conformance.checks import check_merge
from conformance.datatypes import KEY_KINDS, VALUE_KINDS
from conformance.effort import run_examples
from conformance.layouts import LAYOUTS, Layout
from conformance.oracle import STRATEGIES

PLAIN_KEYS = st.sampled_from([(KEY_KINDS["int64"],), (KEY_KINDS["string"],), (KEY_KINDS["int64"], KEY_KINDS["string"])])
PLAIN_VALUES = st.just(VALUE_KINDS["string"])


@pytest.mark.scenario("UP-02", "UP-33", "UP-34", "UP-37")
@pytest.mark.parametrize("kind", KEY_KINDS)
def test_keys_of_every_type(io: Any, kind: str) -> None:
    some = cases(kinds=st.just((KEY_KINDS[kind],)), values=PLAIN_VALUES)
    run_examples(f"key {kind}", 7, some, partial(check_merge, io))


def test_a_key_of_all_types_together(io: Any) -> None:
    """One key of many columns: every type on every engine in a few merges."""
    some = cases(kinds=st.just(tuple(KEY_KINDS.values())), values=PLAIN_VALUES)
    run_examples("key of all types", 2, some, partial(check_merge, io))


@pytest.mark.scenario("IO-04", "ID-04")
@pytest.mark.parametrize("kind", VALUE_KINDS)
def test_values_of_every_type(io: Any, kind: str) -> None:
    some = cases(kinds=PLAIN_KEYS, values=st.just(VALUE_KINDS[kind]))
    run_examples(f"value {kind}", 6, some, partial(check_merge, io))


@pytest.mark.scenario("IO-03", "ID-03", "UP-50")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_files_of_every_layout(io: Any, layout: Layout) -> None:
    run_examples(f"layout {layout.name}", 12, cases(kinds=PLAIN_KEYS, layouts=[layout]), partial(check_merge, io))


@pytest.mark.scenario("UP-06", "UP-45", "IO-11", "PM-07")
@pytest.mark.parametrize("columns", [("p",), ("p", "q"), ("a ü",)], ids=["one", "two", "odd name"])
def test_partitions_with_odd_values(io: Any, columns: tuple[str, ...]) -> None:
    some = cases(kinds=PLAIN_KEYS, values=PLAIN_VALUES, partitioned=st.just(columns))
    run_examples(f"partitions {columns}", 30, some, partial(check_merge, io))


@pytest.mark.scenario("PM-02", "PM-03", "UP-30", "UP-31", "UP-32")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_everything_mixed(io: Any, strategy: str) -> None:
    some = cases(partitioned=st.sampled_from([(), (), ("p",), ("p", "q")]), strategies=st.just(strategy))
    run_examples(f"mixed {strategy}", 40, some, partial(check_merge, io))

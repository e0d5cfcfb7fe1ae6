"""Random merges against the oracle: every kind of key, of value, of file and of partition, then all of them mixed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.cases import Case, cases
from conformance.checks import check_merge
from conformance.datatypes import KEY_KINDS, VALUE_KINDS
from conformance.effort import examples
from conformance.layouts import LAYOUTS, Layout

PLAIN_KEYS = st.sampled_from([(KEY_KINDS["int64"],), (KEY_KINDS["string"],), (KEY_KINDS["int64"], KEY_KINDS["string"])])
PLAIN_VALUES = st.just(VALUE_KINDS["string"])


@pytest.mark.scenario("UP-02", "UP-33", "UP-34", "UP-37")
@pytest.mark.parametrize("kind", KEY_KINDS)
def test_keys_of_every_type(io: Any, kind: str) -> None:
    @examples(6)
    @given(cases(kinds=st.just((KEY_KINDS[kind],)), values=PLAIN_VALUES))
    def merge_like_the_oracle(case: Case) -> None:
        check_merge(io, case)

    merge_like_the_oracle()


@pytest.mark.scenario("IO-04", "ID-04")
@pytest.mark.parametrize("kind", VALUE_KINDS)
def test_values_of_every_type(io: Any, kind: str) -> None:
    @examples(6)
    @given(cases(kinds=PLAIN_KEYS, values=st.just(VALUE_KINDS[kind])))
    def merge_like_the_oracle(case: Case) -> None:
        check_merge(io, case)

    merge_like_the_oracle()


@pytest.mark.scenario("IO-03", "ID-03", "UP-50")
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_files_of_every_layout(io: Any, layout: Layout) -> None:
    @examples(10)
    @given(cases(kinds=PLAIN_KEYS, layouts=[layout]))
    def merge_like_the_oracle(case: Case) -> None:
        check_merge(io, case)

    merge_like_the_oracle()


@pytest.mark.scenario("UP-06", "UP-45", "IO-11", "PM-07")
@pytest.mark.parametrize("columns", [("p",), ("p", "q"), ("a ü",)], ids=["one", "two", "odd name"])
def test_partitions_with_odd_values(io: Any, columns: tuple[str, ...]) -> None:
    @examples(50)
    @given(cases(kinds=PLAIN_KEYS, values=PLAIN_VALUES, partitioned=st.just(columns)))
    def merge_like_the_oracle(case: Case) -> None:
        check_merge(io, case)

    merge_like_the_oracle()


@pytest.mark.scenario("PM-02", "PM-03", "UP-30", "UP-31", "UP-32")
def test_everything_mixed(io: Any) -> None:
    layouts = st.sampled_from([(), (), ("p",), ("p", "q")])

    @examples(250)
    @given(cases(partitioned=layouts))
    def merge_like_the_oracle(case: Case) -> None:
        check_merge(io, case)

    merge_like_the_oracle()

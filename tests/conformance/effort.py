"""How many random examples a test runs: bounded and the same every time by default, many and new with a full sweep.

A failure is made small only in a full sweep, since shrinking writes thousands of files:
``SWEEP=full pytest tests/conformance -k <the failing test>``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sweeps import sweep_size

_examples = {"share": 1}
_FEWEST = 2
"""Hypothesis tries the simplest value first, which finds little."""


def share_examples(share: int) -> None:
    """Run only one in so many of the examples from now on: for engines whose every call costs a job."""
    _examples["share"] = share


def run_examples(name: str, count: int, values: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check ``count`` random values, or as many as the size of the sweep makes of that.

    The name chooses the values of a bounded run, so that every parameter of a test meets values of its own.
    """
    sweep = sweep_size()
    bounded = settings(
        max_examples=max(_FEWEST, int(count * sweep.examples) // _examples["share"]),
        database=None,
        deadline=None,
        print_blob=True,
        phases=tuple(Phase) if sweep.full else (Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

    @bounded
    @given(values)
    def test(value: Any) -> None:
        check(value)

    (test if sweep.full else seed(zlib.crc32(name.encode()))(test))()

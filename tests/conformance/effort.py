"""How many random examples a test runs: bounded and the same every time by default, many and new with a full sweep.

A failure is made small only in a full sweep, since shrinking writes thousands of files:
``FSSPECKIT_SWEEP=full pytest tests/conformance -k <the failing test>``.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

from sweeps import sweep_size

_FULL = 20


def examples(count: int) -> settings:
    """Settings for a property: ``count`` examples, twenty times as many with ``FSSPECKIT_SWEEP=full``."""
    full = sweep_size().full
    return settings(
        max_examples=count * (_FULL if full else 1),
        derandomize=not full,
        database=None,
        deadline=None,
        phases=tuple(Phase) if full else (Phase.explicit, Phase.generate),
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

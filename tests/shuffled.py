"""Exchanges as on a cluster: one machine would scan keys in the driver, and keep packets in files."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any


def by_shuffle(io: Any) -> Any:
    """The same `SparkDatasetIO`, whose keys and packets go through Spark's shuffle."""
    io.engine.scans_here, io.engine.packets = (lambda _: False), nullcontext
    return io

"""Exchanges as on a cluster: on one machine packets would stand in files of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any


def by_shuffle(io: Any) -> Any:
    """The same `SparkDatasetIO`, whose packets go through Spark's shuffle."""
    io.engine.packets = nullcontext
    return io

"""One local Spark session for all tests of the engine."""

from __future__ import annotations

import pytest

from fsspeckit.datasets.spark import SparkDatasetIO


@pytest.fixture(scope="session")
def io():
    """The engine on a local session of its own."""
    return SparkDatasetIO()


@pytest.fixture(scope="session")
def spark(io):
    """That session."""
    return io.spark

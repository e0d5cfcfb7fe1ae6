"""The engines under test: each is one line in ``ENGINES``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.register_assert_rewrite("conformance.checks")

ENGINES = {
    "pyarrow": "PyarrowDatasetIO",
    "spark": "SparkDatasetIO",
}


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def make_io(engine: str) -> Callable[..., Any]:
    """The engine's DatasetIO class."""
    module = importlib.import_module(f"fsspeckit.datasets.{engine}")
    factory: Callable[..., Any] = getattr(module, ENGINES[engine])
    return factory


@pytest.fixture(scope="session")
def io(make_io: Callable[..., Any]) -> Any:
    """The engine on local disk."""
    return make_io()


@pytest.fixture(scope="session")
def merge_function(engine: str) -> Callable[..., dict[str, int]]:
    """The engine's ``merge_parquet_dataset_<engine>``."""
    module = importlib.import_module(f"fsspeckit.datasets.{engine}")
    function: Callable[..., dict[str, int]] = getattr(module, f"merge_parquet_dataset_{engine}")
    return function

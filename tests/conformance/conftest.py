"""The engines under test: each is one line in ``ENGINES``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.effort import chosen, share_examples
from inside import by_exchange, by_shuffle, few_rows_are_many, lower, publish_by
from sweeps import sweep_size

ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "pyarrow": ("PyarrowDatasetIO", {}),
    "pyarrow-exchange": ("PyarrowDatasetIO", {}),
    "duckdb": ("DuckDBDatasetIO", {}),
    "spark": ("SparkDatasetIO", {}),
    "spark-exchange": ("SparkDatasetIO", {"share_limit": 0}),
}


BOUNDED = {
    "spark-exchange": (
        "test_merge_examples",
        "test_partition_examples",
        "test_dry_run",
        "test_history",
        "test_moves",
        "test_row_changes",
        "test_replace_where",
    )
}
"""Variants of an engine, and the modules they run in a bounded sweep; a full one runs them all."""

SHARE = {"pyarrow-exchange": 2, "duckdb": 2, "spark": 20, "spark-exchange": 20}
"""Engines that run one in so many of the random examples: on Spark every call costs a job."""


@pytest.fixture(autouse=True, scope="module")
def _index_of_every_dataset() -> Iterator[None]:
    """Datasets of a few files have a footer index here too: it must not change a result."""
    with pytest.MonkeyPatch.context() as patch:
        lower(patch, "files of an index")
        yield


@pytest.fixture(autouse=True)
def _few_rows_are_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distributed engine gets few rows in many pieces and the structures of very many keys; DuckDB joins all keys."""
    called = getattr(request.node, "callspec", None)
    engine = called.params.get("engine") if called is not None else None
    if engine in ("pyarrow-exchange", "duckdb") and request.node.get_closest_marker("many_rows") is None:
        few_rows_are_many(monkeypatch)


@pytest.fixture(autouse=True)
def _names_stay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish by ``"replace"`` in tests that compare one file before and after a change, by its name."""
    if request.node.get_closest_marker("names_stay"):
        publish_by(monkeypatch, "replace")


@pytest.fixture(autouse=True)
def _effort(request: pytest.FixtureRequest) -> None:
    called = getattr(request.node, "callspec", None)
    share_examples(SHARE.get(called.params.get("engine"), 1) if called is not None else 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that a bounded sweep has no time for, and tests that cannot run in executor processes."""
    variations: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if _engine_of(item) and not _is_left_out(item):
            variations.setdefault((_engine_of(item), item.nodeid.partition("[")[0]), []).append(item)
    kept = {item for (engine, name), found in variations.items() for item in chosen(engine, name, found)}
    left_out = [item for item in items if _engine_of(item) and item not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _engine_of(item: pytest.Item) -> str:
    called = getattr(item, "callspec", None)
    engine = called.params.get("engine", "") if called is not None else ""
    return engine if engine in ENGINES else ""


def _is_left_out(item: pytest.Item) -> bool:
    engine = _engine_of(item)
    if engine.startswith("spark") and item.get_closest_marker("one_process"):
        return True
    return not sweep_size().full and engine in BOUNDED and item.path.stem not in BOUNDED[engine]


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def make_io(engine: str) -> Callable[..., Any]:
    """The engine's DatasetIO class, with the options of this variant."""
    name, options = ENGINES[engine]
    make = functools.partial(getattr(_module(engine), name), **options)
    variants = {"spark-exchange": by_shuffle, "pyarrow-exchange": by_exchange}
    change = variants.get(engine, lambda io: io)
    return lambda **more: change(make(**more))


def _module(engine: str) -> Any:
    return importlib.import_module(f"fsspeckit.datasets.{engine.partition('-')[0]}")


@pytest.fixture(scope="session")
def io(make_io: Callable[..., Any]) -> Any:
    """The engine on local disk."""
    return make_io()


@pytest.fixture(scope="session")
def merge_function(engine: str) -> Callable[..., dict[str, int]]:
    """The engine's ``merge_parquet_dataset_<engine>``."""
    name = f"merge_parquet_dataset_{engine.partition('-')[0]}"
    function: Callable[..., dict[str, int]] = getattr(_module(engine), name)
    return function

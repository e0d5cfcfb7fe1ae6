"""The Spark engine: executors run the same tasks as the local engine.

Must not: handle rows on the driver, or import more than a task needs: names are imported when they are first used.
Read first: engine.py, then tasks.py for what runs in an executor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsspeckit.datasets.spark.data_source import register_data_source
    from fsspeckit.datasets.spark.errors import ExecutorSetupError, SparkJobCancelledError, SparkJobError
    from fsspeckit.datasets.spark.io import SparkDatasetIO, merge_parquet_dataset_spark

__all__ = [
    "ExecutorSetupError",
    "SparkDatasetIO",
    "SparkJobCancelledError",
    "SparkJobError",
    "merge_parquet_dataset_spark",
    "register_data_source",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"register_data_source": "data_source"}
    module = import_module(f"{__name__}.{homes.get(name, 'errors' if name.endswith('Error') else 'io')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

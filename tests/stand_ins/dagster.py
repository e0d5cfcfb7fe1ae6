"""A stand-in for Dagster, which the tests do not install: assets of a partition in a run, as the snippets use them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any


@dataclass(frozen=True)
class DailyPartitionsDefinition:
    """A partition for each day."""

    start_date: str


@dataclass(frozen=True)
class RetryPolicy:
    """How often a step is tried again."""

    max_retries: int


@dataclass(frozen=True)
class Run:
    """One run."""

    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True)
class AssetExecutionContext:
    """What an asset is told."""

    partition_key: str
    run: Run


@dataclass(frozen=True)
class MaterializeResult:
    """What an asset gives back; Dagster takes plain values as metadata, and no others."""

    metadata: dict[str, Any]

    def __post_init__(self) -> None:
        assert self.metadata
        assert all(isinstance(value, (int, float, str, bool)) for value in self.metadata.values()), self.metadata


@dataclass(frozen=True)
class Asset:
    """A function under `@asset`."""

    function: Callable[[AssetExecutionContext], MaterializeResult]
    partitions: DailyPartitionsDefinition
    retry: RetryPolicy


@dataclass(frozen=True)
class Result:
    """How a materialization ended."""

    success: bool


def asset(
    *, partitions_def: DailyPartitionsDefinition, retry_policy: RetryPolicy
) -> Callable[[Callable[[AssetExecutionContext], MaterializeResult]], Asset]:
    """A function becomes an asset."""
    return lambda function: Asset(function, partitions_def, retry_policy)


def materialize(assets: Sequence[Asset], *, partition_key: str) -> Result:
    """Run assets for one day of theirs."""
    for each in assets:
        assert date.fromisoformat(partition_key) >= date.fromisoformat(each.partitions.start_date)
        assert isinstance(each.function(AssetExecutionContext(partition_key, Run())), MaterializeResult)
    return Result(success=True)

"""The IO manager in Dagster itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

dg = pytest.importorskip("dagster", reason="make test-integrations installs it")
from fsspeckit.integrations.dagster import FsspeckitIOManager  # noqa: E402

IO = PyarrowDatasetIO()


@pytest.fixture
def resources(tmp_path: Path) -> dict[str, Any]:
    return {"io_manager": FsspeckitIOManager(base=str(tmp_path / "lake"))}


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(IO.read_parquet(str(path)).to_pylist(), key=lambda row: tuple(map(str, row.values())))


def test_assets_are_merged_and_read_in_the_type_of_the_parameter(resources: dict[str, Any], tmp_path: Path) -> None:
    batches = iter([{"id": [1, 2], "v": [10, 20]}, {"id": [2, 3], "v": [21, 30]}])

    @dg.asset(key_prefix="shop", metadata={"fsspeckit/key": "id"})
    def orders() -> pa.Table:
        return pa.table(next(batches))

    @dg.asset(ins={"orders": dg.AssetIn(key_prefix="shop")})
    def doubled(orders: pd.DataFrame) -> pd.DataFrame:
        return orders.assign(v=orders.v * 2)

    @dg.asset
    def total(doubled: pl.DataFrame) -> pa.Table:
        return pa.table({"total": [doubled["v"].sum()]})

    for expected in (60, 122):
        result = dg.materialize([orders, doubled, total], resources=resources)
        assert result.success
        assert rows(tmp_path / "lake" / "total") == [{"total": expected}]
    assert rows(tmp_path / "lake" / "shop" / "orders") == [{"id": i, "v": v} for i, v in ((1, 10), (2, 21), (3, 30))]
    (written,) = result.asset_materializations_for_node("shop__orders")
    assert written.metadata["dagster/row_count"].value == 2
    assert written.metadata["commit"].value == 2


def test_a_partition_replaces_its_rows_only(resources: dict[str, Any], tmp_path: Path) -> None:
    days = dg.StaticPartitionsDefinition(["2026-11-02", "o'clock"])
    made: list[int] = []
    metadata = {"fsspeckit/partition_column": "day", "fsspeckit/partition_by": ["day"]}

    @dg.asset(partitions_def=days, metadata=metadata)
    def visits(context) -> pa.Table:  # type: ignore[no-untyped-def]
        made.append(len(made))
        return pa.table({"day": [context.partition_key], "n": [made[-1]]})

    @dg.asset(partitions_def=days)
    def seen(visits: pa.Table) -> None:
        assert visits.num_rows == 1

    for day in ("2026-11-02", "o'clock", "2026-11-02"):
        assert dg.materialize([visits, seen], partition_key=day, resources=resources).success
    assert rows(tmp_path / "lake" / "visits") == [{"n": 1, "day": "o'clock"}, {"n": 2, "day": "2026-11-02"}]


def test_a_retry_in_the_same_run_does_not_append_twice(resources: dict[str, Any], tmp_path: Path) -> None:
    tries: list[int] = []

    class Failing(FsspeckitIOManager):
        """Fails after the commit of the first try."""

        def handle_output(self, context: Any, obj: Any) -> None:
            super().handle_output(context, obj)
            tries.append(1)
            if len(tries) == 1:
                raise dg.RetryRequested(max_retries=1)

    @dg.asset(metadata={"fsspeckit/mode": "append"})
    def log() -> pa.Table:
        return pa.table({"n": [1]})

    manager = Failing(base=str(tmp_path / "lake"))
    assert dg.materialize([log], resources={"io_manager": manager}).success
    assert (len(tries), rows(tmp_path / "lake" / "log")) == (2, [{"n": 1}])


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"fsspeckit/keys": "id"}, "the metadata 'fsspeckit/keys' are unknown. Use one of fsspeckit/key"),
        ({"fsspeckit/key": "n", "fsspeckit/mode": "append"}, "either fsspeckit/key"),
    ],
)
def test_wrong_metadata_write_nothing(
    resources: dict[str, Any], tmp_path: Path, metadata: dict[str, str], said: str
) -> None:
    @dg.asset(metadata=metadata)
    def log() -> pa.Table:
        return pa.table({"n": [1]})

    result = dg.materialize([log], resources=resources, raise_on_error=False)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    assert said in str(failure.event_specific_data.error.cause or failure.event_specific_data.error)
    assert not (tmp_path / "lake" / "log").exists()


def test_overwriting_one_partition_needs_its_column(resources: dict[str, Any]) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def log() -> pa.Table:
        return pa.table({"n": [1]})

    with pytest.raises(ValueError, match="overwriting it would remove the others"):
        dg.materialize([log], partition_key="a", resources=resources)

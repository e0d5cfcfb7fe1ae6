"""The handle of a dataset on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from fsspeckit import Dataset
from fsspeckit.datasets.spark import SparkDatasetIO
from inside import choose_engine


def test_a_handle_on_spark(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, v string")
    assert choose_engine(frame, str(tmp_path / "events")) == "spark"
    events = Dataset(str(tmp_path / "events"), engine="auto", key="id")
    assert events.merge(frame).inserted == 2
    assert events.merge(pa.table({"id": [2, 3], "v": ["B", "C"]})).updated == 1
    for each in (events, Dataset(str(tmp_path / "events"), engine=SparkDatasetIO(spark))):
        found = each.to_spark(columns=["v"], filters="id > 1").collect()
        assert sorted(row.v for row in found) == ["B", "C"]
    assert Dataset(str(tmp_path / "events"), engine=SparkDatasetIO(spark)).doctor().engine == "spark"

"""A folder of plain Spark with its defaults: nothing is shifted in any zone of the session, and no reader breaks."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import SchemaMismatchError

ZONES = ["America/New_York", "Europe/Berlin", "UTC"]
TIMES = [
    dt.datetime.fromisoformat(f"{text}Z")
    for text in ("2026-10-25T00:30", "2026-10-25T01:30", "2026-11-01T05:30", "2026-11-01T06:30:00.000001")
]
"""Times that are twice on the clocks of a zone."""
INSTANTS = pa.table({"id": [1, 2, 3, 4], "at": pa.array(TIMES, pa.timestamp("us", "UTC"))})
WALL = pa.table({"id": [1, 2, 3, 4], "at": INSTANTS["at"].cast(pa.timestamp("us"))})
TEXT = pa.table({"id": [1, 2, 3, 4], "at": [str(time).partition("+")[0] for time in TIMES]})


@pytest.fixture(params=[*ZONES[:1], *(pytest.param(zone, marks=pytest.mark.more) for zone in ZONES[1:])])
def session(request: Any, spark: Any) -> Iterator[Any]:
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield spark
    spark.conf.set(name, before)


def values(folder: Path) -> list[Any]:
    """As all readers have it, or the test fails."""
    files = sorted(map(str, folder.glob("*.parquet")))
    found = [pl.read_parquet(files), pl.from_arrow(pq.read_table(str(folder))), pl.from_pandas(pd.read_parquet(folder))]
    each = [table.sort("id")["at"].cast(pl.Datetime("us")).to_list() for table in found]
    assert each[0] == each[1] == each[2]
    return each[0]


def test_a_folder_of_spark(io: Any, session: Any, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    session.createDataFrame(INSTANTS.to_pandas()).repartition(2).write.parquet(str(folder))
    new = session.createDataFrame(INSTANTS.slice(1, 3).to_pandas()).selectExpr("id + 1 as id", "at")
    result = io.merge(new, str(folder), key_columns="id")
    assert (result.inserted, result.updated) == (1, 2)
    io.write_dataset(new.selectExpr("id + 10 as id", "at"), str(folder))
    expected = [TIMES[i] for i in (0, 1, 1, 2, 3, 1, 2, 3)]
    assert io.read_parquet(str(folder)).sort_by("id")["at"].to_pylist() == expected
    assert values(folder) == [time.replace(tzinfo=None) for time in expected]
    seen = session.read.parquet(str(folder)).orderBy("id").selectExpr("unix_micros(at) as at").collect()
    assert [row.at for row in seen] == [time.value // 1000 for time in map(pd.Timestamp, expected)]
    frame = io.read(str(folder), filters="at = TIMESTAMPTZ '2026-10-25 01:30:00Z'")
    assert dict(frame.dtypes)["at"] == "timestamp"
    assert frame.count() == 3
    kinds = {pq.ParquetFile(file).schema.column(1).physical_type for file in folder.glob("*.parquet")}
    assert kinds == {"INT96"}


CALLS: dict[str, Callable[[Any, Any, str], Any]] = {
    "merge": lambda io, rows, d: io.merge(rows, d, key_columns="id"),
    "append": lambda io, rows, d: io.write_dataset(rows, d),
    "full merge": lambda io, rows, d: io.merge(rows, d, key_columns="id", strategy="full_merge"),
    "widen": lambda io, rows, d: io.merge(rows, d, key_columns="id", schema_mode="widen"),
    "replace where": lambda io, rows, d: io.write_dataset(rows, d, mode="overwrite", replace_where="id > 0"),
    "feed": lambda io, rows, d: io.apply_changes(
        rows.selectExpr("id + 10 as id", "at"), d, key_columns="id", sequence_by="id"
    ),
}
"""What takes rows of a source."""
OFTEN = ("merge", "append")


@pytest.mark.parametrize(("target", "source"), [(INSTANTS, WALL), (INSTANTS, TEXT), (WALL, INSTANTS)])
@pytest.mark.parametrize(
    "call", [*list(CALLS)[:2], *(pytest.param(n, marks=pytest.mark.more) for n in list(CALLS)[2:])]
)
def test_advice_keeps_values(io: Any, session: Any, tmp_path: Path, target: Any, source: Any, call: str) -> None:
    folder = str(tmp_path / "events")
    io.write_dataset(target.set_column(1, "at", pa.nulls(4, target["at"].type)), folder)
    kind = {id(INSTANTS): "timestamp", id(WALL): "timestamp_ntz", id(TEXT): "string"}
    rows = session.createDataFrame(source.to_pandas(), f"id long, at {kind[id(source)]}")

    with pytest.raises(SchemaMismatchError) as caught:
        CALLS[call](io, rows, folder)
    (advice, *_) = re.findall("`([^`]+)`", str(caught.value))
    CALLS[call](io, rows.selectExpr("id", f"{advice} as at"), folder)
    found = io.read_parquet(folder, filters="at IS NOT NULL").sort_by("id")
    assert found["at"].to_pylist() == target["at"].to_pylist()

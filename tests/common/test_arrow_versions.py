"""What stands in for newer pyarrow gives the same results; `make test-lowest` runs it with an old one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common import arrow_versions
from fsspeckit.common.errors import VersionTooOldError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

LOWEST = 17


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_versions, "INSTALLED", LOWEST)


@given(st.lists(st.binary(max_size=3)), st.lists(st.none() | st.binary(max_size=3)), st.sampled_from(["left", "right"]))
def test_positions_in_sorted_values(values: list[bytes], wanted: list[bytes | None], side: str) -> None:
    ordered, sought = pa.array(sorted(values), pa.large_binary()), pa.array(wanted, pa.large_binary())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_versions, "INSTALLED", LOWEST)
        found = arrow_versions.search_sorted(ordered, sought, side).to_pylist()
    is_before = (lambda a, b: a < b) if side == "left" else (lambda a, b: a <= b)
    assert found == [None if item is None else sum(is_before(value, item) for value in values) for item in wanted]


@pytest.mark.usefixtures("old")
def test_batches_views_and_cells() -> None:
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    assert arrow_versions.concat_batches(table.to_batches(max_chunksize=1)).to_pylist() == table.to_pylist()
    assert arrow_versions.concat_batches(table.slice(3).to_batches() or [table.to_batches()[0].slice(3)]).num_rows == 0
    view = pa.array(["a", None, "b" * 40], pa.string_view())
    assert arrow_versions.cast_view(view, pa.string()).to_pylist() == view.to_pylist()
    read = arrow_versions.read_texts(
        pa.BufferReader(b"a,a b\n01,\n2,x\n"), pacsv.ReadOptions(), pacsv.ParseOptions(), {"strings_can_be_null": True}
    )
    assert read.to_pylist() == [{"a": "01", "a b": None}, {"a": "2", "a b": "x"}]


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("text", ["9999-12-31", "1677-09-21 00:12:43", "2262-04-11 23:47:17", "0001-01-01T00:00:00"])
def test_texts_beyond_nanoseconds_are_refused(text: str) -> None:
    for texts in (pa.array([None, text, "2026-01-01"]), pa.scalar(text)):
        with pytest.raises(pa.ArrowInvalid):
            arrow_versions.cast_text(texts, pa.timestamp("ns"))


@pytest.mark.usefixtures("old")
def test_bloom_filters_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    io = PyarrowDatasetIO()
    io.write_dataset(pa.table({"id": [2, 1]}), tmp_path / "d")
    before = sorted(path.read_bytes() for path in tmp_path.rglob("*.parquet"))
    with pytest.raises(VersionTooOldError, match="Bloom filters need pyarrow 24 or later"):
        io.optimize_parquet_dataset(tmp_path / "d", "id", bloom_filter_columns=["id"])
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.parquet")) == before


def test_uuids_and_json_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, type_ in enumerate((pa.uuid(), pa.json_())):
        rows = pa.table({"x": pa.ExtensionArray.from_storage(type_, pa.nulls(1, type_.storage_type))})
        (tmp_path / f"{number}").mkdir()
        pq.write_table(rows, tmp_path / f"{number}" / "a.parquet", store_schema=False)
        with monkeypatch.context() as patch:
            patch.setattr(arrow_versions, "INSTALLED", LOWEST)
            with pytest.raises(VersionTooOldError, match="UUID and JSON columns need pyarrow 21"):
                PyarrowDatasetIO().read_parquet(tmp_path / f"{number}")
            with pytest.raises(VersionTooOldError, match="column 'x': UUID and JSON columns need pyarrow 21"):
                PyarrowDatasetIO().write_dataset(rows, tmp_path / "new")
        assert not (tmp_path / "new").exists()

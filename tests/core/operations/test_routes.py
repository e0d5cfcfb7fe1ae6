"""All routes of a source give the same rows, counts, plans and errors, whatever faults a call has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.operations.faulty_calls import FaultyCall
from core.operations.routes import Routes, failure, many_pieces, succeeded
from fsspeckit.common.errors import ExpressionError, KeyColumnError, PartitionError, SchemaMismatchError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

FAILS = "10 / ({}v - 1) > 0"
"""A condition that cannot be computed for rows with the value 1."""


ROWS = pa.table({"id": [1, 2, 3], "p": ["x", "y", "x"], "v": [1, 1, 1]})


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    many_pieces(monkeypatch)


def merged(routes: Routes, source: pa.Table, **options: Any) -> Any:
    """Merge by every route, and return the common outcome."""

    def call(io: Any, path: str, *, dry_run: bool) -> Any:
        return io.merge(source, path, dry_run=dry_run, key_columns="id", **({"strategy": "upsert"} | options))

    return routes.outcome(call)


@pytest.mark.parametrize("duplicates", ["error", "first", "last"])
def test_an_unordered_source_is_deduplicated_by_columns(tmp_path: Path, duplicates: str) -> None:
    routes = Routes(tmp_path, ordered=False)
    source = pa.table({"id": [1, 2, 1, 2], "v": [5, 6, 7, 4]})
    options = {"strategy": "deduplicate", "on_duplicate_source": duplicates}
    found = merged(routes, source, dedup_order_by=["v"], **options)
    assert succeeded(found)["inserted"] == 2
    assert "{'id': 1, 'v': 7}" in found[2][0][1]
    error, message = failure(merged(routes, source, **options))
    assert error is KeyColumnError
    assert "without dedup_order_by would keep an arbitrary one" in message


@pytest.mark.parametrize(("at", "fails"), [("unmatched", False), ("matched", True)])
def test_a_sequence_that_does_not_fit_counts_only_in_matched_rows(tmp_path: Path, at: str, fails: bool) -> None:
    routes = Routes(tmp_path)
    rows = pa.table({"id": [1, 2, 3], "v": [1, 2, 3], "at": pa.array([1, 2, 3], pa.timestamp("us"))})
    PyarrowDatasetIO().write_dataset(rows, routes.target)
    times = pa.array([10**18, 10**17, 1000], pa.int64()).cast(pa.timestamp("s"))
    source = pa.table({"id": [8, 9, 3] if at == "unmatched" else [2, 1, 3], "v": [7, 8, 9], "at": times})
    found = merged(routes, source, strategy="update", update_columns=["v"], newer_by="at")
    if not fails:
        assert succeeded(found)["updated"] == 1
        return
    error, message = failure(found)
    assert error is SchemaMismatchError
    assert "newer_by of the source" in message
    assert "100000000000000000." in message  # of the two that do not fit, the row that is first in the dataset


@pytest.mark.parametrize("condition", ["update_when", "insert_when"])
def test_a_key_that_moves_comes_before_a_condition_that_fails(tmp_path: Path, condition: str) -> None:
    routes = Routes(tmp_path)
    PyarrowDatasetIO().write_dataset(ROWS, routes.target, partition_by=["p"])
    source = pa.table({"id": [1, 2, 9], "p": ["x", "x", "x"], "v": [1, 1, 1]})
    options = {condition: FAILS.format("source.")}
    error, message = failure(merged(routes, source, **options))
    assert error is PartitionError
    assert "partition columns cannot change for existing keys: the keys of [{'id': 2, 'p': 'x'}]" in message
    error, message = failure(merged(routes, source, partition_move="move", **options))
    assert error is ExpressionError
    assert message.startswith(f"{condition}: an expression cannot be computed: (10.0 / ")
    assert "(divide by zero)" in message


@pytest.mark.parametrize("condition", ["update_when", "insert_when"])
def test_a_null_key_of_the_target_comes_before_a_condition_that_fails(tmp_path: Path, condition: str) -> None:
    routes = Routes(tmp_path)
    PyarrowDatasetIO().write_dataset(ROWS.set_column(0, "id", pa.array([1, 2, None])), routes.target)
    source = pa.table({"id": [1, 2, 9], "p": ["x", "y", "x"], "v": [1, 1, 1]})
    options = {condition: FAILS.format("source.")}
    error, message = failure(merged(routes, source, **options))
    assert error is KeyColumnError
    assert "key column 'id' of the target" in message
    assert failure(merged(routes, source, null_keys="match", **options))[0] is ExpressionError


def _times(count: int, **late: int) -> pa.Array:
    """Return times in seconds; those in rows ``late`` do not fit microseconds."""
    values = [late.get(f"row{number}", number) for number in range(count)]
    return pa.array(values, pa.int64()).cast(pa.timestamp("s"))


def _faulty_dataset(path: str, faults: set[str]) -> None:
    """Write a dataset with folders for the numbers 0 and 1, which are text or in the rows too if that is a fault."""
    for number in range(2):
        ids = [number, number + 2, None if "target nulls" in faults else number + 4]
        rows = pa.table({"id": pa.array(ids, pa.int64()), "v": [1, 1, 1], "t": pa.array([0, 0, 0], pa.timestamp("us"))})
        if "folder values" in faults:
            rows = rows.append_column("p", pa.array([number, number, 7]))
        folder = f"p=0{number}" if "spelling" in faults else f"p={number}"
        os.makedirs(f"{path}/{folder}")
        pq.write_table(rows, f"{path}/{folder}/a.parquet")
    if "spelling" in faults:
        os.makedirs(f"{path}/p=x")
        pq.write_table(rows.slice(0, 0), f"{path}/p=x/a.parquet")


FAULTS: dict[str, tuple[type[Exception], str]] = {
    "values": (SchemaMismatchError, "of column 't' (timestamp[s]) in source row"),
    "source nulls": (KeyColumnError, "key column 'id' of the source has 1 NULL"),
    "duplicates": (KeyColumnError, "1 duplicate key(s) for ['id']: 0 (2 times)"),
    "target nulls": (KeyColumnError, "key column 'id' of the target"),
    "folder values": (PartitionError, "has rows with p='7', but its folder is for p='0'"),
    "spelling": (PartitionError, "Pass the partition column as text"),
    "moves": (PartitionError, "partition columns cannot change for existing keys"),
    "scope": (ExpressionError, "1 source row(s) are outside the condition scope"),
    "conditions": (ExpressionError, "update_when: an expression cannot be computed"),
}
"""The faults of a merge and their errors, in the order in which they are reported."""


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_in_a_fixed_order_is_reported(tmp_path: Path, first: int) -> None:
    faults = set(list(FAULTS)[first:])
    if "folder values" in faults:  # a partition column that is in the rows has no other spelling in folders
        faults -= {"spelling"}
    routes = Routes(tmp_path)
    _faulty_dataset(routes.target, faults)
    rows = [(0, 0, 1), (1, 1, 1), (2, 0, 1), (3, 0 if "moves" in faults else 1, 1), (8, 0, 1)]
    rows += [(0, 0, 1)] if "duplicates" in faults else []
    rows += [(None, 0, 1)] if "source nulls" in faults else []
    rows += [(30, 0, 9)] if "scope" in faults else []
    ids, parts, values = zip(*rows, strict=True)
    late = {f"row{len(rows) - 1}": 10**18} if "values" in faults else {}
    source = pa.table({"id": pa.array(ids, pa.int64()), "p": parts, "v": values, "t": _times(len(rows), **late)})
    options: dict[str, Any] = {"strategy": "full_merge", "scope": "v < 9", "update_when": FAILS.format("target.")}
    error, message = failure(merged(routes, source, **options))
    expected, text = list(FAULTS.values())[first]
    assert text in message
    assert error is expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delete_when": "CAST(w AS TINYINT) > 0 OR 10 / (v - 1) > 0"}, "divide by zero"),
        ({"update_when": "CAST(source.w AS TINYINT) > 0 OR 10 / (source.v - 1) > 0"}, "divide by zero"),
        ({"update_when": "CAST(source.w AS TINYINT) >= 0"}, "Float value 500"),
        ({"strategy": "insert", "insert_when": "CAST(source.w AS TINYINT) >= 0"}, "Float value 400"),
    ],
)
def test_of_rows_for_which_a_condition_fails_the_first_is_reported(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    """The first one in the dataset for rows with a match, otherwise the first one of the source."""
    routes = Routes(tmp_path)
    target = pa.table({"id": range(30), "v": [0] * 30, "w": [0.0] * 30})
    PyarrowDatasetIO().write_dataset(target, routes.target, max_rows_per_file=10)
    ids = list(range(29, -1, -1))
    values = {21: 300.0, 11: 400.0, 8: 500.0, 9: 600.0}
    source = pa.table(
        {"id": ids, "v": [1 if n == 4 or n > 27 else 0 for n in ids], "w": [values.get(n, 0.0) for n in ids]}
    )
    if "insert_when" in options:
        source = source.set_column(0, "id", pa.array([100 + n for n in ids]))
        source = source.slice(12)
    error, message = failure(merged(routes, source, **options))
    assert error is ExpressionError
    assert reason in message


@pytest.mark.parametrize("group", range(2))
def test_random_faults_give_the_same_error_by_every_route(tmp_path: Path, group: int) -> None:
    count = sweep_size().size(ci=40, full=1500)
    for seed in range(group * count, (group + 1) * count):
        (tmp_path / str(seed)).mkdir()
        FaultyCall(seed).run(tmp_path / str(seed))

"""The analysis behind `inspect`: what footers tell, and the score made of it."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.cli.app import main
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.report.inspection import inspect_layout
from fsspeckit.report.layout import Layout, analyse, load_all_statistics
from fsspeckit.report.overlap import Overlap, overlap
from fsspeckit.report.score import Finding, Score, _rows_per_group, score
from fsspeckit.report.text import render
from inside import Place, Snapshot, SortNote


def look(path: Path) -> tuple[Snapshot, Layout]:
    place = Place.of(str(path), None, None)
    snapshot = load_all_statistics(place)
    return snapshot, analyse(snapshot, place.path, place.journal.status())


def lay(path: Path, *files: dict[str, Any], **options: Any) -> tuple[Snapshot, Layout]:
    path.mkdir()
    for number, columns in enumerate(files):
        pq.write_table(pa.table(columns), path / f"{number}.parquet", **options)
    return look(path)


def inspected(path: Path, *keys: str) -> Score:
    """The score with the effect of its recommendation."""
    return inspect_layout(Place.of(str(path), None, None), keys)[2]


def advised(path: Path, *keys: str) -> Finding | None:
    """The recommendation, if there is one."""
    found = [finding for finding in inspected(path, *keys).findings if finding.command]
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([[(1, 2), (3, 4), (5, 6)]], Overlap(3, 1.0, 1)),
        ([[(1, 9), (1, 9), (1, 9)]], Overlap(3, 3.0, 3)),
        ([[(1, 9)], [(1, 9)]], Overlap(2, 1.0, 1)),
        ([[(1, 5), (5, 9)]], Overlap(2, 1.0, 2)),
        ([[(1, 10), (2, 11), (3, 12)]], Overlap(3, 3.0, 3)),
        ([[(b"id-a", b"id-k"), (b"id-b", b"id-l"), (b"id-x", b"id-z")]], Overlap(3, 1.667, 2)),
        ([[(-math.inf, math.inf), (0.0, 1.0)]], Overlap(2, 1.5, 2)),
        ([[], []], None),
    ],
)
def test_depth(ranges: list[list[tuple[int, int]]], expected: Overlap | None) -> None:
    assert overlap(ranges) == expected


def test_a_staircase_and_a_wall(tmp_path: Path) -> None:
    stairs, wall = {"id": [1, 2]}, {"v": [0, 9]}
    _, layout = lay(tmp_path / "d", stairs | wall, {"id": [3, 4]} | wall, {"id": [5, 6]} | wall)
    depths = {c.name: (c.overlap.mean_depth, c.overlap.max_depth) for c in layout.columns if c.overlap}
    assert depths == {"id": (1.0, 1), "v": (3.0, 3)}
    snapshot, _ = look(tmp_path / "d")
    by_key = {key: score(snapshot, layout, [key]).findings[1].points for key in ("id", "v")}
    assert by_key == {"id": 0.0, "v": 30.0}
    assert score(snapshot, layout).findings[1].points == 0.0
    assert score(snapshot, layout, ["v"]).findings[1].command.endswith("--by v")


def test_bounds_of_every_kind_are_readable(tmp_path: Path) -> None:
    columns = {
        "text": ["a", "b"],
        "day": [datetime.date(2026, 3, 1), datetime.date(2026, 3, 2)],
        "at": pa.array([0, 1_000_000], pa.timestamp("us", "UTC")),
        "price": pa.array([decimal.Decimal("-1.50"), decimal.Decimal("2.25")]),
        "real": [0.5, 1.5],
        "nothing": pa.nulls(2, pa.int64()),
        "nested": [[1], [2]],
    }
    _, layout = lay(tmp_path / "d", columns)
    found = {c.name: (c.lower, c.upper, c.files_without_statistics) for c in layout.columns}
    assert found == {
        "text": ("a", "b", 0),
        "day": ("2026-03-01", "2026-03-02", 0),
        "at": ("1970-01-01 00:00:00.000000", "1970-01-01 00:00:01.000000", 0),
        "price": ("-1.5", "2.25", 0),
        "real": ("0.5", "1.5", 0),
        "nothing": (None, None, 0),
    }
    assert layout.schema["nested"].startswith("list<")


def test_bounds_of_different_units_are_not_compared(tmp_path: Path) -> None:
    files = [
        {"at": pa.array([1, 2], pa.timestamp(unit)), "n": pa.array([1, 2], kind)}
        for unit, kind in (("ms", pa.int32()), ("us", pa.float64()))
    ]
    _, layout = lay(tmp_path / "d", *files)
    found = {column.name: column.overlap for column in layout.columns}
    assert found == {"at": None, "n": Overlap(2, 2.0, 2)}


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "d" / "a.parquet", write_statistics=False)
    pq.write_table(
        pa.table({"id": [1, 2], "new": [1, 2]}), tmp_path / "d" / "b.parquet", bloom_filter_options={"id": True}
    )
    snapshot, layout = look(tmp_path / "d")
    gaps = {c.name: (c.files_without_statistics, c.files_with_bloom_filter) for c in layout.columns}
    assert gaps == {"id": (1, 1), "new": (0, 0)}
    assert "1 file " in render(layout, score(snapshot, layout))


def test_partitions_skew_and_small_files(tmp_path: Path) -> None:
    for day, files in (("mon", 6), ("tue", 1)):
        (tmp_path / f"d/day={day}").mkdir(parents=True)
        for number in range(files):
            pq.write_table(pa.table({"id": [number]}), tmp_path / f"d/day={day}/{number}.parquet")
    snapshot, layout = look(tmp_path / "d")
    assert [(part.partition, part.files) for part in layout.partitions] == [("day=mon", 6), ("day=tue", 1)]
    assert layout.skew == pytest.approx(12 / 7, abs=0.05)
    found = score(snapshot, layout)
    assert found.findings[0].detail == "6 of 7 files are smaller than a quarter of 128.0 MB and can be joined"
    assert found.value == round(100 - 50 * 5 / 7)
    text = render(layout, found)
    assert "day=mon" in text
    assert "compact" in text


def test_every_recommendation_does_what_it_says(tmp_path: Path) -> None:
    """One command is pasted as it stands, and does all of it: nothing costs points any more."""
    narrow = {"b": pa.array([number % 3 == 0 for number in range(3_000_000)])}
    wall = [{"id": [number, 99], "order id": [0, 99]} for number in range(6)]
    blind = [{"tags": [["a"]] * 50, "id": list(range(50))}] * 3
    cases = {
        "narrow": (lay(tmp_path / "narrow", narrow, row_group_size=10_000), []),
        "wa ll": (lay(tmp_path / "wa ll", *wall), ["order id"]),
        "blind": (lay(tmp_path / "blind", *blind, write_statistics=False, row_group_size=10), []),
        "named": (lay(tmp_path / "named", *blind, write_statistics=False), ["id"]),
        "nested": (lay(tmp_path / "nested", {"tags": [["a"]]}, {"tags": [["b"]]}), []),
    }
    for name, ((snapshot, layout), keys) in cases.items():
        (finding,) = [each for each in score(snapshot, layout, keys).findings if each.command]
        program, *words = shlex.split(finding.command)
        assert (program, main([*words, "--quiet", "--engine", "pyarrow"])) == ("fsspeckit", 0), finding
        assert score(*look(tmp_path / name), keys).value == 100, name


def test_row_groups_that_are_too_large_get_fewer_rows(tmp_path: Path) -> None:
    snapshot, _ = lay(tmp_path / "d", {"id": [1]})
    wide = [replace(file, rows=1_000_000, uncompressed=8 * 2**30) for file in snapshot.files]
    assert _rows_per_group(wide) * 8 * 2**30 / 1_000_000 <= 2**28


@pytest.mark.parametrize("target", [{"target_mb_per_file": 0.01}, {"target_rows_per_file": 1000}])
def test_files_of_a_chosen_size_are_not_called_small(target: dict[str, Any], tmp_path: Path) -> None:
    lay(tmp_path / "d", *({"id": list(range(number, 8000, 4))} for number in range(4)))
    PyarrowDatasetIO().optimize_parquet_dataset(str(tmp_path / "d"), ["id"], **target)
    snapshot, layout = look(tmp_path / "d")
    assert layout.files > 2
    assert score(snapshot, layout, ["id"]).value == 100


@pytest.mark.parametrize("engine", [PyarrowDatasetIO, DuckDBDatasetIO])
def test_a_compaction_notes_its_target(engine: Any, tmp_path: Path) -> None:
    """Files of a chosen size are measured against it, also after a merge, and those of the default have no note."""
    path = str(tmp_path / "d")
    lay(tmp_path / "d", *({"id": list(range(number, 8000, 8)), "n": [0] * 1000} for number in range(8)))
    engine().compact_parquet_dataset(path, target_rows_per_file=2000)
    engine().update(path, set={"n": "1"}, where="id = 8")
    snapshot, layout = look(tmp_path / "d")
    assert layout.files == 4
    assert {file.sort_note.target for file in snapshot.files if file.sort_note is not None} == {(None, 2000)}
    assert all(file.sort_note is not None and file.sort_note.rows == file.rows for file in snapshot.files)
    assert score(snapshot, layout).findings[0].points == 0
    engine().optimize_parquet_dataset(path, ["id"])
    assert look(tmp_path / "d")[1].files == 1
    lay(tmp_path / "e", {"id": [1]}, {"id": [2]})
    engine().compact_parquet_dataset(str(tmp_path / "e"), target_mb_per_file=128)
    assert [file.sort_note for file in look(tmp_path / "e")[0].files] == [None]


def test_the_text_and_the_table_have_the_same_depths(tmp_path: Path) -> None:
    snapshot, layout = lay(tmp_path / "d", {"id": [1, 2]}, {"id": [3, 4]}, {"id": [4, 5]})
    (column,) = layout.columns
    assert column.overlap is not None
    detail = score(snapshot, layout, ["id"]).findings[1].detail
    depths = f"{column.overlap.mean_depth:.1f} files on average, {column.overlap.max_depth} at most"
    assert detail.startswith(depths)


def spread(path: Path, files: int, rows: int, **columns: Any) -> None:
    """Files of random numbers that overlap completely, in two partitions."""
    random = np.random.default_rng(7)
    for number in range(files):
        folder = path / f"day={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        values = {name: make(random, rows) for name, make in columns.items()}
        pq.write_table(pa.table({"id": random.integers(0, 10**9, rows), **values}), folder / f"{number}.parquet")


def test_the_effect_is_that_of_a_dry_run(tmp_path: Path, capsys: Any) -> None:
    spread(tmp_path / "d", 8, 4000)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    finding = advised(tmp_path / "d")
    assert finding is not None
    assert main([*shlex.split(finding.command)[1:], "--dry-run", "--json", "--engine", "pyarrow"]) == 0
    files = json.loads(capsys.readouterr().out)["after_file_count"]
    lookup = "a lookup of one id opens about 1 file instead of 4.0"
    assert finding.effect == f"a full scan opens {files} files instead of 8; {lookup}"
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_sorted_dataset_is_not_sorted_again(tmp_path: Path) -> None:
    """Few values cover many files, so files overlap in any order: that costs no points, and needs no command."""
    spread(tmp_path / "d", 6, 1000, land=lambda random, rows: random.integers(0, 3, rows))
    optimize = PyarrowDatasetIO().optimize_parquet_dataset
    optimize(str(tmp_path / "d"), ["land"], target_rows_per_file=200)
    found = inspected(tmp_path / "d", "land")
    assert found.value == 100
    assert found.findings[1].detail.endswith("; the files are sorted by land already")
    assert advised(tmp_path / "d") is None
    again = optimize(str(tmp_path / "d"), ["land"], target_rows_per_file=200, dry_run=True)
    assert again.compacted_file_count == 0


@pytest.mark.parametrize("curve", ["linear", "hilbert"])
def test_a_recommendation_keeps_order_and_size_of_a_sorted_dataset(curve: Any, tmp_path: Path) -> None:
    spread(tmp_path / "d", 6, 4000, at=lambda random, rows: random.integers(0, 10**9, rows))
    io, path = PyarrowDatasetIO(), str(tmp_path / "d")
    io.optimize_parquet_dataset(path, ["at", "id"], target_mb_per_file=0.05, curve=curve)
    assert advised(tmp_path / "d") is None
    for number in range(4):
        io.write_dataset(pa.table({"id": [number], "at": [number], "day": [0]}), path, partition_by="day")
    finding = advised(tmp_path / "d")
    assert finding is not None
    options = "--by at --by id" + (" --curve hilbert" if curve == "hilbert" else "")
    assert finding.command == f"fsspeckit optimize {path} {options} --target-mb 0.05"
    assert main([*shlex.split(finding.command)[1:], "--quiet", "--engine", "pyarrow"]) == 0
    assert advised(tmp_path / "d") is None


@pytest.mark.parametrize(
    "change",
    [
        {"curve": "spiral"},
        {"columns": ("id", "nothing")},
        {"columns": ()},
        {"target": (math.nan, None)},
        {"target": (-1.0, 0)},
        {"target": (math.inf, None)},
    ],
)
def test_a_note_that_somebody_changed_is_not_recommended(change: dict[str, Any], tmp_path: Path) -> None:
    lay(tmp_path / "d", *({"id": [number, 9]} for number in range(4)))
    snapshot, layout = look(tmp_path / "d")
    note = SortNote("linear", ("id",), "run", 2, ((0,), (9,)), (4.0 * 2**20, None))
    files = [replace(file, sort_note=replace(note, **change)) for file in snapshot.files]
    (finding,) = [each for each in score(replace(snapshot, files=tuple(files)), layout).findings if each.command]
    assert finding.command.startswith(f"fsspeckit optimize {layout.path} --by id")
    assert finding.command.endswith("--by id" if "target" in change else "--target-mb 4")
    assert finding.effect == "not computed; run the command with --dry-run to see it"

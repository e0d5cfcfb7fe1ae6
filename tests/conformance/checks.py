"""The guarantees of a merge, one check each; `check_merge` runs all of them for a case."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance import oracle
from conformance.cases import Case, TargetFile
from conformance.layouts import NULL_FOLDER
from conformance.rows import bag, duckdb_rows, rows_of, unreadable_by_duckdb
from kit import Stamp, data_files, tree_of

COUNTS = ("inserted", "updated", "deleted", "unchanged")


@dataclass(frozen=True, slots=True)
class Run:
    """A case that has run: the files before, the expected outcome, and the files after."""

    case: Case
    dataset: Path
    before: dict[str, Stamp]
    expected: oracle.Outcome
    result: Any

    def after(self) -> dict[str, Stamp]:
        return tree_of(self.dataset)


def check_merge(io: Any, case: Case) -> None:
    """Plan, run and repeat a case in a new folder, and check every guarantee."""
    with tempfile.TemporaryDirectory() as folder:
        parent, dataset = Path(folder), Path(folder, "data")
        case.build(dataset)
        target = [row for file in case.files for row in file.rows()]
        try:
            expected = case.expect(target)
        except oracle.Refused as refusal:
            check_refused(io, case, parent, dataset, str(refusal))
            return
        check_dry_run(io, case, parent, dataset, expected, len(target))
        before = tree_of(dataset)
        run = Run(case, dataset, before, expected, io.merge(case.source, str(dataset), **case.call()))
        check_counts(run.result, expected, len(target), case.source.num_rows)
        check_files(run)
        check_rows(io, run)
        check_nothing_left_behind(parent, run)
        check_same_merge_again(io, case, parent, dataset, expected.rows)


def check_refused(io: Any, case: Case, parent: Path, dataset: Path, reason: str) -> None:
    before = tree_of(parent)
    for dry_run in (True, False):
        with pytest.raises(ValueError, match=r"(?s).{20}"):
            io.merge(case.source, str(dataset), dry_run=dry_run, **case.call())
        assert tree_of(parent) == before, f"refused for a {reason}, yet something was written (dry_run={dry_run})"


def check_dry_run(
    io: Any, case: Case, parent: Path, dataset: Path, expected: oracle.Outcome, target_count: int
) -> None:
    before = tree_of(parent)
    plan = io.merge(case.source, str(dataset), dry_run=True, **case.call())
    assert tree_of(parent) == before, "a dry run wrote something"
    assert {name: plan[name] for name in COUNTS} == measured(expected)
    assert plan["total"] == len(expected.rows)
    assert plan["total"] == target_count + plan["inserted"] - plan["deleted"]


def measured(expected: oracle.Outcome) -> dict[str, int]:
    """The counts of an outcome."""
    counts = (len(expected.new), expected.updated, expected.deleted, expected.unchanged)
    return dict(zip(COUNTS, counts, strict=True))


def check_counts(result: Any, expected: oracle.Outcome, target_count: int, source_count: int) -> None:
    assert {name: result[name] for name in COUNTS} == measured(expected)
    assert (result.target_count_before, result.source_count) == (target_count, source_count)
    assert result.target_count_after == result["total"] == target_count + result["inserted"] - result["deleted"]
    assert result["total"] == len(expected.rows)


def check_files(run: Run) -> None:
    """Old files are unchanged, rewritten in place or deleted. New files are in the right folder and not too large."""
    after = run.after()
    kept = iter(run.expected.kept)
    wiped = run.case.strategy == "full_merge" and run.case.source.num_rows == 0
    touched: dict[str, set[str]] = {"rewritten": set(), "deleted": set(), "preserved": set()}
    for file in run.case.files:
        old = file.rows()
        new = [row for row in islice(kept, len(old)) if row is not None]
        path = _path_after(file.path, after)
        action = _check_old_file(run, file, path, old, new, after, wiped=wiped)
        touched[action].add(path if action == "rewritten" else file.path)
    for verb, paths in touched.items():
        listed = {str(Path(path).relative_to(run.dataset)) for path in getattr(run.result, f"{verb}_files")}
        assert listed == paths, f"{verb}_files of the result"
    _check_new_files(run, touched["rewritten"])


def _path_after(path: str, after: dict[str, Stamp]) -> str:
    """Return the path of a file after a change, which gives rewritten files new names."""
    stem = path.removesuffix(".parquet") + "-r"
    return next((found for found in after if found.startswith(stem)), path)


def _check_old_file(
    run: Run,
    file: TargetFile,
    now: str,
    old: list[oracle.Row],
    new: list[oracle.Row],
    after: dict[str, Stamp],
    *,
    wiped: bool,
) -> str:
    """Check one file and return its action."""
    if wiped or (old and not new):
        assert not {file.path, now} & after.keys(), "a file without rows left is deleted"
        return "deleted"
    stands = after.get(now)
    assert stands is not None, f"{file.path} is gone"
    if new == old and now == file.path and stands == run.before[file.path]:
        return "preserved"
    if not run.case.promotes:
        assert new != old, f"{file.path} was rewritten although no row in it changed"
    assert now == file.path or file.path not in after, f"{file.path} was rewritten and is still there"
    path = run.dataset / now
    assert [row | file.partitions for row in rows_of(pq.read_table(path, partitioning=None))] == new, "rows or order"
    _check_looks(run.case, run.before[file.path].content, path)
    return "rewritten"


def _check_looks(case: Case, before: bytes | None, path: Path) -> None:
    """A rewritten file keeps its schema, metadata, codec and row groups."""
    was, now = pq.ParquetFile(pa.BufferReader(before)), pq.ParquetFile(path, page_checksum_verification=True)
    if case.promotes:
        assert now.schema_arrow.names == was.schema_arrow.names
        assert now.schema_arrow.metadata == was.schema_arrow.metadata
    else:
        assert now.schema_arrow.equals(was.schema_arrow, check_metadata=True), (was.schema_arrow, now.schema_arrow)
    assert _codecs(now) <= _codecs(was) or not _codecs(was)
    sizes = [[f.metadata.row_group(i).num_rows for i in range(f.num_row_groups)] for f in (was, now)]
    if sum(sizes[0]) == 0:
        return
    if sum(sizes[0]) == sum(sizes[1]) and max(sizes[0], default=0) <= case.options.get("batch_rows", 1_000_000):
        assert sizes[0] == sizes[1], "row groups"
    else:  # rows are gone, or the caller asked for batches smaller than the row groups
        assert max(sizes[1]) <= max(sizes[0]), "row groups grew"


def _codecs(file: pq.ParquetFile) -> set[str]:
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    return {group.column(i).compression for group in groups for i in range(group.num_columns)}


def _check_new_files(run: Run, rewritten: set[str]) -> None:
    known = {file.path for file in run.case.files} | rewritten
    fresh = [path for path in data_files(run.dataset) if str(path.relative_to(run.dataset)) not in known]
    assert sorted(run.result.inserted_files) == sorted(str(path) for path in fresh)
    rows: list[oracle.Row] = []
    for path in fresh:
        table = pq.read_table(path, partitioning=None)
        assert 0 < table.num_rows <= run.case.options["max_rows_per_file"]
        assert not set(table.column_names) & set(run.case.partitions), "a partition column inside a file"
        values = folder_values(str(path.relative_to(run.dataset)))
        assert tuple(values) == run.case.partitions
        rows += [row | values for row in rows_of(table)]
    assert bag(rows) == bag(run.expected.new)
    written = {file.path: file for file in run.result.files}
    for path in fresh:
        entry = written[str(path)]
        assert (entry.operation, entry.size_bytes) == ("inserted", path.stat().st_size)
        assert entry.row_count == pq.read_metadata(path).num_rows


def folder_values(path: str) -> dict[str, str | None]:
    """The partition values of a relative path."""
    parts = [part.partition("=") for part in path.split("/")[:-1]]
    return {name: None if value == NULL_FOLDER else unquote(value) for name, _, value in parts}


def _spelled(type_: pa.DataType) -> str:
    """A type as text, without the names that Parquet gives to the items of lists and maps."""
    return re.sub(r" \('\w+'\)", "", str(type_)).replace("element", "item")


def check_rows(io: Any, run: Run) -> None:
    """fsspeckit and DuckDB both read the expected rows, and one schema."""
    expected = bag(run.expected.rows)
    files = data_files(run.dataset)
    schemas = [pq.read_schema(path) for path in files]
    for name, kind in run.case.columns.items():
        types = {schema.field(name).type for schema in schemas}
        assert len(types) <= 1, f"two types for column {name}: {types}"
        if run.expected.new:
            assert {_spelled(type_) for type_ in types} == {_spelled(kind.stored)}
    if not files:
        return
    table = io.read_parquet(str(run.dataset))
    assert bag(rows_of(table, run.case.partitions)) == expected
    assert table.column_names[len(table.column_names) - len(run.case.partitions) :] == list(run.case.partitions)
    columns = [name for name in table.column_names if name not in unreadable_by_duckdb(table.schema)]
    seen = bag({name: row[name] for name in columns} for row in run.expected.rows)
    assert bag(duckdb_rows(files, columns, run.case.partitions)) == seen, "DuckDB reads something else"


def check_nothing_left_behind(parent: Path, run: Run) -> None:
    """Next to the dataset is only its journal: no staged file and no staging folder."""
    strange = [path for path in tree_of(parent) if Path(path).parts[0] not in ("data", ".data.fsspeckit")]
    staged = [path for path in tree_of(parent) if "staging" in path or path.endswith(".staged")]
    assert (strange, staged) == ([], [])
    files = {str(path.relative_to(run.dataset)) for path in data_files(run.dataset)}
    assert {path for path, stamp in run.after().items() if stamp.content is not None} == files


def check_same_merge_again(io: Any, case: Case, parent: Path, dataset: Path, rows: list[oracle.Row]) -> None:
    """The second run of the same merge changes no file and counts what it finds."""
    expected = case.expect(rows)
    before = tree_of(parent)
    result = io.merge(case.source, str(dataset), **case.call())
    assert tree_of(parent) == before, "the same merge again wrote something"
    check_counts(result, expected, len(rows), case.source.num_rows)

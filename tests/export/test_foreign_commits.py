"""Another program commits to an exported table: nothing is loaded twice, and nothing is lost without a choice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from export.changes import rows_of
from fsspeckit import Dataset, TableFormatError
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = pa.table({"id": range(10), "day": ["mon", "tue"] * 5})
OTHERS = pa.table({"id": range(10, 17), "day": ["mon"] * 3 + ["wed"] * 4})
CHANGES: dict[str, Callable[[str], Any]] = {
    "append": lambda path: write_deltalake(path, OTHERS, mode="append"),
    "delete some rows": lambda path: DeltaTable(path).delete("id > 6"),
    "delete a partition": lambda path: DeltaTable(path).delete("day = 'mon'"),
    "overwrite": lambda path: write_deltalake(path, OTHERS, mode="overwrite"),
    "overwrite a partition": lambda path: write_deltalake(
        path, OTHERS.slice(0, 3), mode="overwrite", predicate="day = 'mon'"
    ),
    "delete all rows": lambda path: DeltaTable(path).delete(),
    "compact": lambda path: [
        write_deltalake(path, OTHERS, mode="append"),
        write_deltalake(path, OTHERS, mode="append"),
        DeltaTable(path).optimize.compact(),
    ],
    "checkpoint": lambda path: [write_deltalake(path, OTHERS, mode="append"), DeltaTable(path).create_checkpoint()],
    "another column": lambda path: write_deltalake(
        path, OTHERS.append_column("n", [[1.5] * 7]), mode="append", schema_mode="merge"
    ),
}


@pytest.fixture
def io() -> Any:
    return PyarrowDatasetIO()


@pytest.fixture(params=["partitions", "one folder"])
def path(request: pytest.FixtureRequest, io: Any, tmp_path: Path) -> str:
    folder = str(tmp_path / "events")
    io.write_dataset(ROWS, folder, partition_by="day" if request.param == "partitions" else None)
    return folder


def delta_rows(path: str) -> list[dict[str, Any]]:
    return rows_of(pa.table(DeltaTable(path).to_pyarrow_dataset().to_table()))


def tree(path: str) -> dict[str, bytes]:
    above = Path(path).parent
    return {str(file.relative_to(above)): file.read_bytes() for file in sorted(above.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "once"])
def test_keep_takes_over_what_the_table_holds(io: Any, path: str, change: str, kept: bool) -> None:
    io.export(path, keep_exported=kept)
    CHANGES[change](path)
    expected = delta_rows(path)
    assert io.remove_export(path, foreign="keep")
    assert rows_of(io.read_parquet(path)) == expected
    assert not (Path(path) / "_delta_log").exists()
    assert not io.remove_export(path)


@pytest.mark.parametrize("change", CHANGES)
def test_discard_leaves_the_dataset_as_it_was(io: Any, path: str, change: str) -> None:
    io.export(path, keep_exported=True)
    before = {name: data for name, data in tree(path).items() if name.endswith(".parquet")}
    CHANGES[change](path)
    assert io.remove_export(path, foreign="discard")
    assert {name: data for name, data in tree(path).items() if name.endswith(".parquet")} == before
    assert rows_of(io.read_parquet(path)) == rows_of(ROWS)


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_choice_the_change_is_listed_and_nothing_happens(io: Any, path: str, change: str) -> None:
    io.export(path, keep_exported=True)
    before = {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")}
    CHANGES[change](path)
    added = {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")} - before
    added = {name for name in added if not name.startswith("_")}
    state = tree(path)
    with pytest.raises(TableFormatError, match=r"--foreign keep.*--foreign discard") as caught:
        io.remove_export(path)
    assert all(name in str(caught.value) for name in added)
    assert ("removed" in str(caught.value)) == (change not in ("append", "checkpoint", "another column"))
    for call in (lambda: io.export(path), lambda: io.read_parquet(path), lambda: io.delete(path, where="id = 1")):
        with pytest.raises(TableFormatError, match="which lists the change"):
            call()
    assert tree(path) == state


def test_kept_versions_know_both(io: Any, path: str) -> None:
    io.keep_history(path, retain="7d")
    io.export(path)
    before = io.history(path)[0].version
    write_deltalake(path, OTHERS, mode="append")
    DeltaTable(path).delete("id < 3")
    expected = delta_rows(path)
    io.remove_export(path, foreign="keep")
    newest = io.history(path)[0]
    assert (newest.operation, newest.version) == ("take over delta table", before + 1)
    assert rows_of(io.read_parquet(path, version=before)) == rows_of(ROWS)
    assert rows_of(io.read_parquet(path, version=newest.version)) == expected
    feed = io.changes(path, since=before, key_columns="id").to_pylist()
    found = {kind: sorted(row["id"] for row in feed if row["_change_type"] == kind) for kind in ("insert", "delete")}
    assert found == {"insert": list(range(10, 17)), "delete": [0, 1, 2]}
    io.restore(path, version=before)
    assert rows_of(io.read_parquet(path)) == rows_of(ROWS)


def test_a_change_of_no_file_needs_no_choice(io: Any, path: str) -> None:
    io.export(path)
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 5 days"})
    with pytest.raises(TableFormatError, match="which lists the change"):
        io.read_parquet(path)
    assert io.remove_export(path)
    assert rows_of(io.read_parquet(path)) == rows_of(ROWS)


def edit_last(path: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change the actions of the newest version, as programs write them that deltalake is not."""
    log = max((Path(path) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        edit(action)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def with_vector(action: dict[str, Any]) -> None:
    if "add" in action:
        vector = {"storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": 1, "sizeInBytes": 36}
        action["add"]["deletionVector"] = {**vector, "cardinality": 2}


def with_feature(action: dict[str, Any]) -> None:
    if "commitInfo" in action:
        features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
        action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}


def with_mapping(action: dict[str, Any]) -> None:
    if "commitInfo" in action:
        action["metaData"] = {"configuration": {"delta.columnMapping.mode": "name"}, "partitionColumns": ["day"]}


def elsewhere(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["path"] = "s3://other/table/part-0.parquet"


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (with_vector, "deletion vector"),
        (with_feature, "the feature typeWidening"),
        (with_mapping, "maps names of columns"),
        (elsewhere, "is no data file in the folder"),
    ],
)
def test_what_plain_files_cannot_have_is_not_taken_over(tmp_path: Path, edit: Any, problem: str) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "events")
    io.write_dataset(ROWS, path, partition_by="day")
    io.export(path)
    write_deltalake(path, OTHERS, mode="append")
    edit_last(path, edit)
    state = tree(path)
    for foreign in (None, "keep"):
        with pytest.raises(TableFormatError, match=problem):
            io.remove_export(path, foreign=foreign)  # type: ignore[arg-type]
    assert tree(path) == state


def test_files_that_are_gone(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "events")
    io.write_dataset(ROWS, path)
    io.export(path)
    DeltaTable(path).delete("id > 6")
    DeltaTable(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(TableFormatError, match="cannot stay as it was"):
        io.remove_export(path, foreign="discard")
    expected = delta_rows(path)
    assert io.remove_export(path, foreign="keep")
    assert rows_of(io.read_parquet(path)) == expected


def test_a_table_without_later_commits_of_the_dataset_is_not_taken_over(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "events")
    io.write_dataset(ROWS, path)
    io.export(path)
    io.write_dataset(pa.table({"id": [99], "day": ["ours"]}), path)
    write_deltalake(path, OTHERS, mode="append")
    with pytest.raises(TableFormatError, match="commits after its export"):
        io.remove_export(path, foreign="keep")
    assert io.remove_export(path, foreign="discard")
    assert len(rows_of(io.read_parquet(path))) == 11


def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "events")
    io.write_dataset(ROWS, path)
    io.export(path)
    write_deltalake(path, OTHERS, mode="append")
    write_deltalake(path, OTHERS, mode="append")
    log, copy = Path(path) / "_delta_log", tmp_path / "copy"
    shutil.copytree(log, copy)
    states = tmp_path / ".events.fsspeckit"
    shutil.copytree(states, tmp_path / "states")
    io.remove_export(path, foreign="keep")
    done = rows_of(io.read_parquet(path))
    # The commit is there, but the metadata was not removed: as after a crash behind the commit.
    shutil.copytree(copy, log)
    for file in (tmp_path / "states").rglob("*export-*"):
        shutil.copy(file, states / file.relative_to(tmp_path / "states"))
    with pytest.raises(TableFormatError, match="has taken over"):
        io.remove_export(path, foreign="discard")
    assert io.remove_export(path, foreign="keep")
    assert rows_of(io.read_parquet(path)) == done == rows_of(pa.concat_tables([ROWS, OTHERS, OTHERS]))


def test_an_export_after_the_choice_is_a_new_table(io: Any, path: str) -> None:
    io.export(path, keep_exported=True)
    write_deltalake(path, OTHERS, mode="append")
    io.remove_export(path, foreign="keep")
    assert io.export(path, keep_exported=True).version == 0
    io.delete(path, where="id = 3")
    assert delta_rows(path) == rows_of(io.read_parquet(path))
    assert len(delta_rows(path)) == 16


def test_the_handle_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "events")
    events = Dataset(path, engine="pyarrow", key="id")
    events.merge(ROWS)
    events.export()
    write_deltalake(path, OTHERS, mode="append")
    with pytest.raises(ValueError, match="foreign='take'"):
        events.remove_export(foreign="take")  # type: ignore[arg-type]
    assert main(("export", "delta", path, "--foreign", "keep")) == 2
    assert main(("export", "delta", path, "--remove")) != 0
    assert "--foreign discard" in capsys.readouterr().err
    assert main(("export", "delta", path, "--remove", "--foreign", "keep")) == 0
    assert "removed the delta metadata" in capsys.readouterr().out
    assert len(rows_of(PyarrowDatasetIO().read_parquet(path))) == 17

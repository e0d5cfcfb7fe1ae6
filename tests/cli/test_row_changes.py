"""The commands `delete`, `update` and `apply-changes`, the conditions of `merge`, and their plans."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cli.conftest import Fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import name_stem
from inside_programs import CLI_OPERATIONS

ROWS = pa.table({"id": [1, 2, 3, 4], "day": ["mon", "mon", "tue", None], "amount": [10, 20, 30, None]})
DELETE = ("delete", "lake", "--where", "id < 2")
UPDATE = ("update", "lake", "--set", "amount=amount * 2", "--set", "day = 'wed'", "--where", "id = 3")


@pytest.fixture(autouse=True)
def lake(place: Path) -> None:
    """A dataset of two files."""
    PyarrowDatasetIO().write_dataset(ROWS, "lake", max_rows_per_file=2)


def rows() -> list[dict[str, Any]]:
    return sorted(PyarrowDatasetIO().read_parquet("lake").to_pylist(), key=lambda row: row["id"])


def files() -> dict[str, bytes]:
    """The files by their names without the part that each rewrite changes."""
    return {f"{name_stem(name)}.parquet": Path("lake", name).read_bytes() for name in os.listdir("lake")}


def test_delete_shows_what_a_delete_does(fsspeckit: Fsspeckit) -> None:
    code, out, err = fsspeckit(*DELETE, "--dry-run")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[:4]] == ["plan", "deleted", "total", "files"]
    assert out.splitlines()[0].endswith("delete from lake")
    assert rows() == ROWS.to_pylist()
    code, out, err = fsspeckit(*DELETE)
    assert (code, err) == (0, "")
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert {name: text.strip() for name, text in lines.items() if name != "seconds"} == {
        "operation": "delete",
        "deleted": "1",
        "total rows": "4 -> 3",
        "files": "1 rewritten, 1 untouched",
    }
    assert rows() == ROWS.to_pylist()[1:]
    assert fsspeckit(*DELETE, "--noop-exit-code", "9", "-q") == (9, "", "")


def test_update_shows_what_an_update_does(fsspeckit: Fsspeckit) -> None:
    code, out, _ = fsspeckit(*UPDATE, "-n")
    assert (code, out.splitlines()[0].endswith("update of lake")) == (0, True)
    assert [line.split()[0] for line in out.splitlines()[:4]] == ["plan", "updated", "total", "files"]
    code, out, _ = fsspeckit(*UPDATE)
    assert [line.split()[0] for line in out.splitlines()] == ["operation", "updated", "total", "files", "seconds"]
    assert rows()[2] == {"id": 3, "day": "wed", "amount": 60}
    same = ("update", "lake", "--set", "day=day", "--where", "true", "--noop-exit-code", "9")
    code, out, _ = fsspeckit(*same)
    assert code == 9
    assert "4 (4 of them unchanged)" in out


@pytest.mark.parametrize("words", [DELETE, UPDATE], ids=lambda words: words[0])
def test_json_has_the_keys_of_a_merge(fsspeckit: Fsspeckit, words: tuple[str, ...]) -> None:
    Path("in.csv").write_text("id,day,amount\n9,mon,1\n")
    for more in ("--dry-run", "--no-progress"):
        merged = json.loads(fsspeckit("merge", "in.csv", "lake", "--key", "id", more, "--json")[1])
        found = json.loads(fsspeckit(*words, more, "--json")[1])
        assert found.keys() == merged.keys()
        assert (merged["operation"], found["operation"], found["strategy"]) == ("merge", words[0], words[0])
        assert (found["inserted"], found["source_count"]) == (0, 0)


@pytest.mark.parametrize("where", ["true", "id > 0", "id IS NOT NULL OR day = 'x'"])
def test_a_delete_of_all_rows_needs_a_yes(fsspeckit: Fsspeckit, where: str) -> None:
    code, out, err = fsspeckit("delete", "lake", "--where", where)
    assert (code, out) == (2, "")
    assert err == "error: this deletes all 4 rows of lake, so no row is left\nto do: add --yes if that is meant\n"
    assert rows() == ROWS.to_pylist()
    assert fsspeckit("delete", "lake", "--where", where, "--dry-run")[0] == 0
    code, out, _ = fsspeckit("delete", "lake", "--where", where, "--yes", "--json")
    assert (code, json.loads(out)["total"], files()) == (0, 0, {})


LEAVE_NO_ROW = {
    "replace true": ("write", "none.csv", "lake", "--mode", "overwrite", "--replace-where", "1 < 2"),
    "replace all": ("write", "none.csv", "lake", "--mode", "overwrite", "--replace-where", "id > 0"),
    "deletes of a merge": ("merge", "lake.csv", "lake", "--key", "id", "--delete-when", "true"),
    "no row to insert": (
        *("merge", "new.csv", "lake", "--key", "id", "--strategy", "full_merge"),
        *("--insert-when", "source.id < 0"),
    ),
    "deletes of a feed": (
        *("apply-changes", "lake.csv", "lake", "--key", "id", "--sequence-by", "amount", "--delete-when", "id > 0"),
    ),
}


@pytest.mark.parametrize("name", LEAVE_NO_ROW)
def test_what_leaves_no_row_needs_a_yes(fsspeckit: Fsspeckit, name: str) -> None:
    Path("none.csv").write_text("id,day,amount\n")
    Path("new.csv").write_text("id,day,amount\n77,mon,1\n")
    lines = [f"{row['id']},,{(row['amount'] or 0) + 1}" for row in ROWS.to_pylist()]
    Path("lake.csv").write_text("\n".join(["id,day,amount", *lines, ""]))
    words = LEAVE_NO_ROW[name]
    code, out, err = fsspeckit(*words)
    assert (code, out, err.splitlines()[1]) == (2, "", "to do: add --yes if that is meant")
    assert rows() == ROWS.to_pylist()
    assert fsspeckit(*words, "--dry-run", "-q")[0] == 0
    assert fsspeckit(*words, "--yes", "-q")[0] == 0
    assert files() == {}


def test_a_replacement_without_rows_is_not_asked_about_if_rows_are_left(fsspeckit: Fsspeckit) -> None:
    Path("none.csv").write_text("id,day,amount\n")
    assert fsspeckit("write", "none.csv", "lake", "--mode", "overwrite", "--replace-where", "id = 4", "-q")[0] == 0
    assert rows() == ROWS.to_pylist()[:3]


FEED = "id,day,amount,op\n1,,99,d\n3,wed,31,u\n3,tue,1,u\n5,mon,50,c\n"
CHANGES = ("apply-changes", "feed.csv", "lake", "--key", "id", "--sequence-by", "amount", "--except-columns", "op")
DELETING = ("--delete-when", "op = 'd'")


def test_apply_changes_applies_a_feed_once(fsspeckit: Fsspeckit) -> None:
    Path("feed.csv").write_text(FEED)
    code, out, err = fsspeckit(*CHANGES, *DELETING, "--dry-run", "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert {name: plan[name] for name in ("inserted", "updated", "deleted", "total")} == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
        "total": 4,
    }
    assert rows() == ROWS.to_pylist()
    assert fsspeckit(*CHANGES, *DELETING, "-q") == (0, "", "")
    expected = [*ROWS.to_pylist()[1:2], {"id": 3, "day": "wed", "amount": 31}, *ROWS.to_pylist()[3:]]
    assert rows() == [*expected, {"id": 5, "day": "mon", "amount": 50}]
    code, out, _ = fsspeckit(*CHANGES, *DELETING, "--noop-exit-code", "9")
    assert (code, "stale" in out) == (9, True)


def test_apply_changes_keeps_the_history_of_keys(fsspeckit: Fsspeckit) -> None:
    Path("feed.csv").write_text("id,name,lsn,op\n1,Ann,1,c\n1,Anna,3,u\n2,Bob,2,c\n2,,4,d\n")
    words = ("apply-changes", "feed.csv", "history", "--key", "id", "--sequence-by", "lsn", "--except-columns", "op")
    assert fsspeckit("plan", *words, *DELETING, "--scd-type", "2", "-o", "plan.json", "-q")[0] == 0
    assert fsspeckit("apply", "plan.json", "-q")[0] == 0
    found = PyarrowDatasetIO().read_parquet("history").sort_by([("id", "ascending"), ("valid_from", "ascending")])
    assert found.select(["id", "name", "valid_from", "valid_to"]).to_pylist() == [
        {"id": 1, "name": "Ann", "valid_from": 1, "valid_to": 3},
        {"id": 1, "name": "Anna", "valid_from": 3, "valid_to": None},
        {"id": 2, "name": "Bob", "valid_from": 2, "valid_to": 4},
    ]
    assert fsspeckit(*words, *DELETING, "--scd-type", "2", "--noop-exit-code", "9", "-q")[0] == 9
    assert fsspeckit(*words, "--scd-type", "3")[0] == 2
    plan = json.loads(Path("plan.json").read_text())
    for value, said in (("2", "options.scd_type: '2' is not a whole number"), (3, "scd type 3 is unknown")):
        plan["options"]["scd_type"] = value
        Path("plan.json").write_text(json.dumps(plan))
        code, _, err = fsspeckit("apply", "plan.json")
        assert (code, said in err) == (2, True)


def test_apply_changes_chooses_columns_and_keeps_values(fsspeckit: Fsspeckit) -> None:
    Path("feed.csv").write_text("id,day,amount,note\n3,,31,x\n")
    words = ("apply-changes", "feed.csv", "lake", "--key", "id", "--sequence-by", "amount", "--columns", "day")
    assert fsspeckit(*words, "--ignore-null-updates", "-q")[0] == 0
    assert rows()[2] == {"id": 3, "day": "tue", "amount": 31}


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("--update-columns", "amount"), {2: ("mon", 21), 9: ("wed", 90)}),
        (("--delete-when", "amount = 21"), {2: None, 9: ("wed", 90)}),
        (("--update-when", "source.amount > target.amount + 5"), {9: ("wed", 90)}),
        (("--insert-when", "source.day <> 'wed'"), {2: ("fri", 21)}),
        (("--newer-by", "id"), {9: ("wed", 90)}),
        (("--strategy", "full_merge", "--scope", "id <> 3"), {1: None, 2: ("fri", 21), 4: None, 9: ("wed", 90)}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_merge_has_the_conditions_of_the_library(
    fsspeckit: Fsspeckit, words: tuple[str, ...], changed: dict[int, tuple[str, int] | None]
) -> None:
    Path("in.csv").write_text("id,day,amount\n2,fri,21\n9,wed,90\n")
    merge = ("merge", "in.csv", "lake", "--key", "id", *words)
    planned = json.loads(fsspeckit("plan", *merge, "-o", "plan.json", "--json")[1])
    name = words[-2].removeprefix("--").replace("-", "_")
    assert planned["options"][name] == ([words[-1]] if name == "update_columns" else words[-1])
    assert fsspeckit("apply", "plan.json", "-q")[0] == 0
    known = {row["id"]: (row["day"], row["amount"]) for row in ROWS.to_pylist()}
    expected = {key: value for key, value in (known | changed).items() if value is not None}
    assert {row["id"]: (row["day"], row["amount"]) for row in rows()} == expected


def test_merge_moves_rows_between_partitions(fsspeckit: Fsspeckit) -> None:
    PyarrowDatasetIO().write_dataset(ROWS.slice(0, 3), "parted", partition_by=["day"])
    Path("in.csv").write_text("id,day,amount\n1,tue,11\n")
    words = ("merge", "in.csv", "parted", "--key", "id")
    assert fsspeckit(*words)[0] == 1
    assert json.loads(fsspeckit(*words, "--partition-move", "move", "--json")[1])["moved"] == 1


def test_a_full_merge_without_rows_asks_if_its_scope_is_everything(fsspeckit: Fsspeckit) -> None:
    Path("none.csv").write_text("id,day,amount\n")
    merge = ("merge", "none.csv", "lake", "--key", "id", "--strategy", "full_merge", "--scope")
    code, _, err = fsspeckit(*merge, "id > 0")
    assert (code, "deletes all 4 rows of lake" in err, rows()) == (2, True, ROWS.to_pylist())
    assert fsspeckit(*merge, "id = 4", "-q")[0] == 0
    assert rows() == ROWS.to_pylist()[:3]
    assert fsspeckit(*merge, "true", "--yes", "-q")[0] == 0
    assert files() == {}


NOT_OFFERED = {"self", "data", "source", "path", "progress", "dry_run", "plan", "retries", "batch_rows"}
OTHER_NAMES = {"merge": {"partition_columns", "skip_unchanged"}}


def test_every_argument_of_an_operation_is_an_option_with_its_default() -> None:
    for operation in ("merge", "apply_changes", "delete", "update"):
        parameters = inspect.signature(getattr(PyarrowDatasetIO, operation)).parameters
        defaults = {name: [] if each.default is None else each.default for name, each in parameters.items()}
        found = {name: [] if default is None else default for name, (_, default) in CLI_OPERATIONS[operation].items()}
        assert found.keys() == defaults.keys() - NOT_OFFERED - OTHER_NAMES.get(operation, set()), operation
        assert {name for name in found if found[name] != defaults[name]} <= {"strategy"}, operation

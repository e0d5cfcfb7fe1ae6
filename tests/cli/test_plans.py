"""`plan` and `apply`: what was reviewed happens, or nothing does."""

from __future__ import annotations

import copy
import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import Fsspeckit
from fsspeckit.cli.app import main
from fsspeckit.common.errors import DocumentError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import name_stem
from inside_programs import SavedPlan, read_plan
from mutations import changed, put

PLANS = {
    "write": "in.csv lake --mode overwrite --replace-where id<>2",
    "merge": "in.csv lake --key id --on-duplicate-source last",
    "apply-changes": "in.csv lake --key id --sequence-by n --delete-when n=90",
    "delete": "lake --where id<2",
    "update": "lake --set 'n=n * 2' --where id=1",
    "compact": "lake --target-mb 4",
    "optimize": "lake --by n --target-rows 100",
    "deduplicate": "lake --key id --order-by n",
    "restore": "lake --version 3",
    "vacuum": "lake --older-than 0d",
}
AFTER = {
    "write": [(1, 100), (2, 20), (2, 21), (9, 90)],
    "merge": [(1, 100), (2, 20), (9, 90)],
    "apply-changes": [(1, 100), (2, 20)],
    "delete": [(2, 20), (2, 21)],
    "update": [(1, 20), (2, 20), (2, 21)],
    "compact": [(1, 10), (2, 20), (2, 21)],
    "optimize": [(1, 10), (2, 20), (2, 21)],
    "deduplicate": [(1, 10), (2, 21)],
    "restore": [(1, 10), (2, 20), (3, 30)],
    "vacuum": [(1, 10), (2, 20), (2, 21)],
}
OTHER: dict[str, dict[str, Any]] = {
    "write": {"mode": "append", "replace_where": None},
    "merge": {"strategy": "insert"},
    "apply-changes": {"delete_when": None},
    "delete": {"where": "id > 1"},
    "update": {"where": "id > 1"},
    "compact": {"target_rows_per_file": 2},
    "optimize": {"curve": "hilbert"},
    "deduplicate": {"dedup_order_by": ["-n"]},
    "restore": {"version": 4},
}
"""Other options. The plan of a vacuum has the oldest version that stays, whatever the time is."""


@pytest.fixture(autouse=True)
def lake(place: Path) -> None:
    """Rows 1 and 2, and another row 2 in a second file; version 3 has a row 3 instead."""
    Path("in.csv").write_text("id,n\n1,100\n9,90\n")
    io = PyarrowDatasetIO()
    io.write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), "lake")
    io.keep_history("lake", "7d")
    io.write_dataset(pa.table({"id": [3], "n": [30]}), "lake")
    io.delete("lake", where="id = 3")
    io.write_dataset(pa.table({"id": [2], "n": [21]}), "lake")


def rows() -> list[tuple[int, int]]:
    table = PyarrowDatasetIO().read_parquet("lake")
    return sorted(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


def files() -> dict[str, bytes]:
    """The files by their names without the part that each rewrite changes."""
    return {name_stem(path.name): path.read_bytes() for path in Path("lake").glob("*.parquet")}


def plan(operation: str, *more: str) -> dict[str, Any]:
    """Write a plan; merges need keys that are unique in the dataset."""
    if operation in ("merge", "apply-changes"):
        PyarrowDatasetIO().delete("lake", where="n = 21")
    assert main(["plan", operation, *shlex.split(PLANS[operation]), "-o", "plan.json", "-q", *more]) == 0
    return dict(json.loads(Path("plan.json").read_text()))


@pytest.mark.parametrize("operation", PLANS)
def test_a_plan_does_just_that_once_and_from_anywhere(operation: str, fsspeckit: Fsspeckit) -> None:
    document, before = plan(operation), files()
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    code, out, err = fsspeckit("apply", "../plan.json", "--json", "--yes")
    os.chdir("..")
    assert (code, rows()) == (0, AFTER[operation]), err
    if "counts" in document:
        done = json.loads(out)
        counts = {"insert": "inserted", "update": "updated", "delete": "deleted", "unchanged": "unchanged"}
        assert {word: done[name] for word, name in counts.items()} == {
            word: count for word, count in document["counts"].items() if word != "total"
        }
        entries = document["plan"]["entries"]
        assert all(each["reason"] and each["rows"] and "/" not in each["path"] for each in entries)
        wanted = {name_stem(each["path"]) for each in entries if each["action"] == "rewrite"}
        after = files()
        assert {name for name in before if after.get(name) != before[name]} <= wanted
    assert fsspeckit("apply", "plan.json", "--yes")[0] == 3
    assert rows() == AFTER[operation]


@pytest.mark.parametrize("operation", PLANS)
def test_apply_refuses_what_has_changed(operation: str, fsspeckit: Fsspeckit) -> None:
    document = plan(operation)
    before, changes = files(), []
    if operation in OTHER:
        changes.append(document | {"options": document["options"] | OTHER[operation]})
    if "facts" in document["plan"]:
        facts = document["plan"]["facts"] | {"dry_run": False}
        changes += [document | {"plan": document["plan"] | each} for each in ({"facts": facts}, {"state": "0" * 64})]
    for change in changes:
        Path("plan.json").write_text(json.dumps(change))
        code, out, err = fsspeckit("apply", "plan.json", "--yes")
        assert (code, out, err.splitlines()[1]) == (3, "", "to do: make a new plan"), change
        assert files() == before
    Path("plan.json").write_text(json.dumps(document))
    if "source" in document:
        text = Path("in.csv").read_text()
        for other, touched in ((text.replace("100", "101"), None), (text, (1, 1))):
            Path("in.csv").write_text(other)
            if touched:
                os.utime("in.csv", touched)
            assert fsspeckit("apply", "plan.json", "--yes")[0] == 3
    PyarrowDatasetIO().write_dataset(pa.table({"id": [7], "n": [70]}), "lake")
    before = files()
    assert fsspeckit("apply", "plan.json", "--yes")[0] == 3
    assert files() == before


def test_apply_refuses_a_file_with_other_content_and_the_same_size_and_time() -> None:
    plan("merge")
    for path in (*Path("lake").glob("*.parquet"), Path("in.csv")):
        status, content = path.stat(), path.read_bytes()
        time.sleep(0.02)  # longer than a tick of the kernel's clock
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        before = files()
        assert main(["apply", "plan.json"]) == 3
        assert files() == before


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("duckdb", "parquet"),
        pytest.param("spark", "csv", marks=pytest.mark.more),
        pytest.param("spark", "parquet", marks=pytest.mark.more),
    ],
)
def test_every_engine_keeps_to_its_plan(fsspeckit: Fsspeckit, engine: str, kind: str) -> None:
    """SRC as rows that are read here, and as a folder that an engine reads in its own way."""

    def source(v: str) -> str:
        Path("b.csv").write_text(f"id,v\n2,{v}\n3,C\n1,a\n")
        if kind == "csv":
            return "b.csv"
        assert fsspeckit("write", "b.csv", "b", "--mode", "overwrite", "--yes", "-q")[0] == 0
        return "b"

    def planned(src: str) -> dict[str, Any]:
        assert fsspeckit("plan", "merge", src, "new", "--key", "id", "--engine", engine, "-o", "plan.json")[0] == 0
        return dict(json.loads(Path("plan.json").read_text()))

    Path("a.csv").write_text("id,v\n1,a\n2,b\n")
    assert fsspeckit("write", "a.csv", "new", "--engine", engine, "--max-rows-per-file", "1", "-q")[0] == 0
    assert planned(source("B"))["engine"] == engine
    source("X")
    assert fsspeckit("apply", "plan.json")[0] == 3, "the source has changed"
    document = planned(source("Y"))
    done = json.loads(fsspeckit("apply", "plan.json", "--json")[1])
    assert (done["inserted"], done["updated"], done["unchanged"]) == (1, 2, 1)
    assert document["counts"] == {"insert": 1, "update": 2, "delete": 0, "unchanged": 1, "total": 3}
    assert fsspeckit("apply", "plan.json")[0] == 3, "it is done"


@pytest.mark.more
def test_a_plan_on_an_object_store(fsspeckit: Fsspeckit, s3_server: Any, s3_bucket: str) -> None:
    pairs = ("key=test", "secret=hunter2", f"client_kwargs.endpoint_url={s3_server.endpoint}")
    options = [word for pair in pairs for word in ("--storage-option", pair)]
    dest, src = f"s3://{s3_bucket}/lake", f"s3://{s3_bucket}/b.csv"
    s3_server.filesystem().pipe(f"{s3_bucket}/b.csv", b"id,v\n1,a\n")
    words = ["plan", "merge", src, dest, "--key", "id", *options, "-o", "plan.json", "-q"]
    assert fsspeckit(*words)[0] == 0
    s3_server.filesystem().pipe(f"{s3_bucket}/b.csv", b"id,v\n1,b\n")
    assert fsspeckit("apply", "plan.json", *options)[0] == 3
    assert fsspeckit(*words)[0] == 0
    assert "hunter2" not in Path("plan.json").read_text()
    assert fsspeckit("apply", "plan.json", *options, "-q")[0] == 0
    code, out, err = fsspeckit("apply", "plan.json", *options)
    assert (code, "hunter2" in out + err) == (3, False)


def test_secrets_stay_out_of_the_plan(fsspeckit: Fsspeckit, memory_fs: Any) -> None:
    memory_fs.pipe("/in/b.csv", b"id,v\n1,a\n")
    words = [
        "plan",
        "merge",
        "memory://in/b.csv",
        "memory://lake/t",
        "--key",
        "id",
        "--storage-option",
        "secret=hunter2",
    ]
    assert fsspeckit(*words, "-o", "p.json")[0] == 0
    assert "hunter2" not in Path("p.json").read_text()
    assert fsspeckit("apply", "p.json")[0] == 0


def test_a_file_that_is_no_plan(fsspeckit: Fsspeckit) -> None:
    for text in ("", "{}", "[]", '{"fsspeckit_plan": 2}', '{"fsspeckit_plan": 1, "plan": {}}', "\xff", "[" * 100_000):
        Path("p.json").write_bytes(text.encode("latin-1"))
        code, _, err = fsspeckit("apply", "p.json")
        first, second = err.splitlines()
        assert (code, "p.json: " in first, second.startswith("to do: make a new plan")) == (2, True, True), text


INSIDE = "which is not a path inside the dataset"
SPOILED: dict[str, list[tuple[tuple[Any, ...], Any, str]]] = {
    "merge": [
        (("plan", "entries", -1, "path"), "../x.parquet", f"'../x.parquet', {INSIDE}"),
        (("plan", "entries", -1, "path"), "/tmp/x.parquet", f"'/tmp/x.parquet', {INSIDE}"),
        (("plan", "entries", -1, "path"), "a//x.parquet", f"'a//x.parquet', {INSIDE}"),
        (("plan", "entries", -1, "path"), "s3://b/x.parquet", INSIDE),
        (("plan", "entries", -1, "path"), ".staging/x.parquet", "which is not the name of a data file"),
        (("plan", "entries", -1, "path"), "x.sh", "'x.sh', which is not the name of a data file"),
        (("plan", "entries", 0, "path"), "../x.parquet", f"'../x.parquet', {INSIDE}"),
        (("plan", "entries", 0, "rows"), -1, "plan.entries[0].rows: -1 is not a whole number of 0 or more"),
        (("plan", "entries", 0, "rows"), True, "plan.entries[0].rows: True is not a whole number"),
        (("plan", "entries", 0, "action"), "burn", "plan.entries[0].action: 'burn' is not one of"),
        (("plan", "entries"), {}, "plan.entries: an object is not a list"),
        (("plan", "deleted"), 99, "plan.deleted: 99 is more than the dataset has rows"),
        (("plan", "inserted"), 10**30, "plan.inserted: a number of more than 64 bits is not a whole number"),
        (("plan", "updated"), 1.5, "plan.updated: 1.5 is not a whole number of 0 or more"),
        (("plan", "operation"), "purge", "plan.operation: 'purge' is not one of merge, apply_changes, delete, update"),
        (("source",), [], "source: a list is not an object"),
        (("source", "format"), "exe", "source.format: 'exe' is not one of parquet, csv, json"),
        (("source", "delimiter"), ";;", "source.delimiter: ';;' is not one character"),
        (("source", "files"), [{}], "source.files[0]: the key 'path' is missing"),
        (("options", "strategy"), None, "options.strategy: None is not text"),
        (("options", "strategy"), "purge", "options.strategy: 'purge' is not one of upsert, insert,"),
        (("options", "key_columns"), "id", "options.key_columns: 'id' is not a list"),
        (("options", "evolve_files"), "burn", "options.evolve_files: 'burn' is not one of touched, all"),
        (("options", "partition_move"), "burn", "options.partition_move: 'burn' is not one of check, unchecked, move"),
        (("options", "max_rows_per_file"), None, "options.max_rows_per_file: None is not a whole number"),
        (("options", "update_columns"), ["n", 1], "options.update_columns[1]: 1 is not text"),
        (("options", "newer_by"), ["id"], "options.newer_by: a list is not text"),
        (("options", "delete_when"), True, "options.delete_when: True is not text"),
        (("options", "delete_when"), "id = 1; DROP TABLE x", "is not one SQL expression"),
        (("options", "update_when"), "source.id >", "options.update_when: 'source.id >' is not one SQL expression"),
        (("options", "insert_when"), "", "options.insert_when: '' is not one SQL expression"),
        (("options", "scope"), "(" * 9999, "options.scope: "),
        (("options", "sequence_by"), "id", "options: the key 'sequence_by' is unknown"),
        (("options", "filesystem"), "x", "options: the key 'filesystem' is unknown"),
        (("command",), "apply_changes", "command: 'apply_changes' does not agree with the plan"),
        (("command",), "purge", "command: 'purge' is not one of merge, apply_changes, delete, update"),
        (("command",), "delete", "the key 'source' is unknown"),
        (("engine",), "polars", "engine: 'polars' is not one of spark, duckdb, pyarrow"),
        (("dest",), "a\0b", "dest: the text has characters that are not allowed"),
        (("more",), 1, "the key 'more' is unknown"),
        (("made_at",), 5, "made_at: 5 is not text"),
        (("made_at",), "soon", "made_at: 'soon' is not a time"),
        (("counts",), {}, "counts: an object that does not agree with the plan"),
        (("counts", "delete"), 7, "counts: an object that does not agree with the plan"),
        (("counts", "insert"), "1", "counts.insert: '1' is not a whole number"),
        (("totals",), [], "totals: a list is not an object"),
        (("totals", "rewrite"), None, "totals.rewrite: None is not an object"),
        (("totals", "rewrite", "rows"), 99, "totals: an object that does not agree with the plan"),
        (("fsspeckit_plan",), 2, "fsspeckit_plan: 2 is the format of another version of fsspeckit"),
    ],
    "apply-changes": [
        (("options", "sequence_by"), None, "options.sequence_by: None is not text"),
        (("options", "sequence_by"), ["lsn"], "options.sequence_by: a list is not text"),
        (("options", "ignore_null_updates"), "yes", "options.ignore_null_updates: 'yes' is not true or false"),
        (("options", "ignore_null_updates"), 1, "options.ignore_null_updates: 1 is not true or false"),
        (("options", "columns"), "day", "options.columns: 'day' is not a list"),
        (("options", "except_columns"), [None], "options.except_columns[0]: None is not text"),
        (("options", "delete_when"), "op =", "options.delete_when: 'op =' is not one SQL expression"),
        (("options", "strategy"), "upsert", "options: the key 'strategy' is unknown"),
        (("options", "scope"), "true", "options: the key 'scope' is unknown"),
        (("options", "scd_type"), "2", "options.scd_type: '2' is not a whole number"),
        (("plan", "operation"), "delete", "plan.source_count: "),
    ],
    "delete": [
        (("options", "where"), 5, "options.where: 5 is not text"),
        (("options", "where"), None, "options.where: None is not text"),
        (("options", "key_columns"), ["id"], "options: the key 'key_columns' is unknown"),
        (("options", "compression"), 5, "options.compression: 5 is not text"),
        (("source",), {}, "the key 'source' is unknown"),
        (("command",), "merge", "command: 'merge' does not agree with the plan"),
        (("plan", "inserted"), 1, "plan.inserted: 1 does not go with the operation"),
        (("plan", "source_count"), 1, "plan.source_count: 1 does not go with the operation"),
        (("plan", "operation"), "merge", "command: "),
        (("plan", "entries", 0, "path"), "../x.parquet", INSIDE),
        (("counts", "total"), 9, "counts: an object that does not agree with the plan"),
    ],
    "update": [(("options", "set"), {"n": 5}, "options.set.n: 5 is not text")],
    "compact": [
        (("plan", "facts"), [], "plan.json"),
        (("plan", "more"), 1, "plan.json"),
        (("options", "where"), "true", "plan.json"),
        (("options", "target_mb_per_file"), "much", "plan.json"),
        (("counts",), {}, "plan.json"),
        (("command",), "history", "plan.json"),
        (("made_at",), "now", "plan.json"),
    ],
}


@pytest.mark.parametrize("operation", SPOILED)
def test_a_plan_that_somebody_changed(operation: str, fsspeckit: Fsspeckit) -> None:
    """It is refused before its source is read."""
    document, before = plan(operation), files()
    os.remove("in.csv")
    spoiled = [(_with(document, place, value), said) for place, value, said in SPOILED[operation]]
    spoiled += [({name: each for name, each in document.items() if name != key}, f"'{key}'") for key in document]
    needed = {"sequence_by", "where", "set"} & document["options"].keys() - {"compact"}
    for key in needed if operation != "compact" else ():
        options = {name: each for name, each in document["options"].items() if name != key}
        spoiled.append((document | {"options": options}, f"options: the key '{key}' is missing"))
    for content, said in spoiled:
        Path("plan.json").write_text(json.dumps(content))
        code, out, err = fsspeckit("apply", "plan.json", "--json")
        assert (code, said in err, json.loads(out)["error"]) == (2, True, "DocumentError"), (said, err)
        assert files() == before


def _with(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    put(found, place, value)
    return found


@pytest.fixture(scope="module")
def valid_plan(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """A plan, and a file to write changed ones to."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "b.csv").write_text("id,v\n2,2\n3,3\n")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "v": [1, 1]}), str(folder / "lake"))
    words = ["plan", "merge", f"{folder}/b.csv", f"{folder}/lake", "--key", "id", "--engine", "pyarrow", "-q"]
    assert main([*words, "-o", f"{folder}/plan.json"]) == 0
    return json.loads((folder / "plan.json").read_text()), folder / "plan.json"


@given(data=st.data())
def test_a_changed_plan_is_a_plan_or_an_error_of_ours(
    valid_plan: tuple[dict[str, Any], Path], data: st.DataObject
) -> None:
    document, file = valid_plan
    file.write_bytes(data.draw(changed(document) | st.binary(max_size=50)))
    try:
        found = read_plan(file)
    except DocumentError:
        return
    assert isinstance(found, SavedPlan)
    assert all(not entry.path.startswith("/") and ".." not in entry.path.split("/") for entry in found.plan.entries)


YES = {
    "write in.csv lake --mode overwrite": [(1, 100), (9, 90)],
    "write none.csv lake --mode overwrite --replace-where id>0": [],
    "merge none.csv lake --key id --strategy full_merge": [],
    "delete lake --where true": [],
    "vacuum lake --older-than 0d": [(1, 10), (2, 20), (2, 21)],
}


@pytest.mark.parametrize("words", YES)
def test_a_plan_that_leaves_nothing_needs_a_yes(words: str, fsspeckit: Fsspeckit) -> None:
    Path("none.csv").write_text("id,n\n")
    assert fsspeckit("plan", *words.split(), "-o", "plan.json", "-q")[0] == 0
    before = files()
    code, _, err = fsspeckit("apply", "plan.json")
    assert (code, "add --yes" in err, files()) == (2, True, before)
    readable = sum(each.readable for each in PyarrowDatasetIO().history("lake"))
    assert fsspeckit("apply", "plan.json", "--yes")[0] == 0
    assert rows() == YES[words]
    assert (sum(each.readable for each in PyarrowDatasetIO().history("lake")) < readable) == words.startswith("vacuum")


def test_a_plan_that_says_it_leaves_rows_is_not_believed(fsspeckit: Fsspeckit) -> None:
    """The question before a delete of all rows depends on the counts of the plan."""
    assert fsspeckit("plan", "delete", "lake", "--where", "true", "-o", "plan.json", "-q")[0] == 0
    document = json.loads(Path("plan.json").read_text())
    document["plan"] |= {"target_count_before": document["plan"]["target_count_before"] + 7, "total": 7}
    document["counts"]["total"] = 7
    Path("plan.json").write_text(json.dumps(document))
    before = files()
    assert (fsspeckit("apply", "plan.json")[0], files()) == (3, before)


def test_a_plan_of_a_vacuum_removes_no_later_version(fsspeckit: Fsspeckit) -> None:
    document = plan("vacuum")
    assert document["plan"]["facts"]["oldest_version"] == 5
    document["plan"]["facts"]["oldest_version"] = None
    Path("bad.json").write_text(json.dumps(document))
    assert fsspeckit("apply", "bad.json", "--yes")[0] == 3
    assert fsspeckit("compact", "lake", "-q")[0] == 0
    assert fsspeckit("apply", "plan.json", "--yes")[0] == 3


def test_a_plan_without_effect_commits_nothing(fsspeckit: Fsspeckit) -> None:
    assert fsspeckit("optimize", "lake", "--by", "n", "-q")[0] == 0
    newest = PyarrowDatasetIO().history("lake")[0].version
    for words in ("compact lake", "restore lake --version 6", "optimize lake --by n", "vacuum lake --older-than 9d"):
        words_of_plan = ("plan", *words.split(), "-o", "plan.json", "-q", "--noop-exit-code", "7")
        assert fsspeckit(*words_of_plan)[0] == 7, words
        code, out, _ = fsspeckit("apply", "plan.json", "--noop-exit-code", "7")
        assert (code, "would" in out) == (7, False), words
        assert json.loads(fsspeckit("apply", "plan.json", "--json")[1])["dry_run"] is False, words
    assert PyarrowDatasetIO().history("lake")[0].version == newest

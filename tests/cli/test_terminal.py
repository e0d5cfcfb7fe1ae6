"""Names with control characters: no command sends them to the terminal, and JSON keeps them as they are."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.conftest import Fsspeckit
from fsspeckit.cli import terminal
from fsspeckit.cli.app import main
from fsspeckit.common.errors import KeyColumnError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

EVIL = "\x1b[31m[red]\x07\r\n\u202e\nerror: fake\x9b2J"
NOT_UTF8 = f"{EVIL}\udc80"
FOLDER = f"lake {EVIL}"
COLUMN = f"id{EVIL}"
PARTITION = f"day={EVIL}"


@pytest.fixture(autouse=True)
def evil(place: Path) -> None:
    """A dataset of evil names, and sources."""
    for partition in (PARTITION, "day=x"):
        Path(FOLDER, partition).mkdir(parents=True)
        for number in range(2):
            name = f"{number}{EVIL}.parquet"
            pq.write_table(pa.table({COLUMN: [number, 2], "v": [EVIL, "x"]}), str(Path(FOLDER, partition, name)))
    pq.write_table(pa.table({COLUMN: [1, 1], "v": ["a", "b"], "day": [EVIL] * 2}), "twice.parquet")
    pq.write_table(pa.table({COLUMN: [1], "v": ["a"], "day": [EVIL]}), f"once{EVIL}.parquet")


def control_characters(text: str) -> set[str]:
    return {character for character in text if not character.isprintable() and character != "\n"}


ONCE = f"once{EVIL}.parquet"
COMMANDS = {
    "write": ("write", ONCE, FOLDER),
    "write dry run": ("write", ONCE, FOLDER, "-n"),
    "overwrite": ("write", ONCE, FOLDER, "--mode", "overwrite"),
    "merge plan": ("merge", ONCE, FOLDER, "--key", COLUMN, "--key", "day", "-n"),
    "merge": ("merge", ONCE, FOLDER, "--key", COLUMN, "--key", "day"),
    "verbose": ("merge", ONCE, FOLDER, "--key", COLUMN, "--key", "day", "-v"),
    "move": ("merge", ONCE, FOLDER, "--key", COLUMN),
    "duplicate keys": ("merge", "twice.parquet", FOLDER, "--key", COLUMN, "--key", "day"),
    "plan": ("plan", "merge", ONCE, FOLDER, "--key", COLUMN, "--key", "day", "-o", f"plan{EVIL}.json"),
    "delete plan": ("delete", FOLDER, "--where", f'"{COLUMN}" = 1', "-n"),
    "delete": ("delete", FOLDER, "--where", "v = 'x'"),
    "delete all": ("delete", FOLDER, "--where", "true"),
    "update": ("update", FOLDER, "--set", f"v='{EVIL}'", "--where", "true"),
    "plan update": ("plan", "update", FOLDER, "--set", f"{COLUMN}=1", "--where", "v = 'x'"),
    "no condition": ("delete", FOLDER, "--where", EVIL),
    "no value to set": ("update", FOLDER, "--set", EVIL, "--where", "true"),
    "no column to set": ("update", FOLDER, "--set", f"{EVIL}=1", "--where", "true"),
    "compact": ("compact", FOLDER),
    "compact part": ("compact", FOLDER, "--partition", EVIL),
    "optimize": ("optimize", FOLDER, "--by", COLUMN),
    "deduplicate": ("deduplicate", FOLDER, "--key", COLUMN),
    "inspect": ("inspect", FOLDER, "--key", COLUMN, "--html", f"page{EVIL}.html"),
    "score": ("inspect", FOLDER, "--key", COLUMN, "--fail-under", "100"),
    "recover": ("recover", FOLDER),
    "doctor": ("doctor", FOLDER),
    "no dataset": ("compact", NOT_UTF8),
    "no column": ("merge", ONCE, FOLDER, "--key", EVIL),
    "no option": ("merge", ONCE, FOLDER, f"--{EVIL}"),
    "no source": ("write", NOT_UTF8, FOLDER),
    "no folder": ("write", ONCE, NOT_UTF8),
    "no command": (NOT_UTF8,),
    "no value": ("merge", ONCE, FOLDER, "--key", COLUMN, "--strategy", EVIL),
    "debug": ("compact", NOT_UTF8, "--debug"),
    "no config": ("doctor", "--config", NOT_UTF8),
    "no pipeline": ("run", NOT_UTF8),
    "no variable": ("run", "p.toml", "--var", f"{EVIL}=1"),
    "no plan": ("apply", NOT_UTF8),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_control_character_reaches_the_terminal(fsspeckit: Fsspeckit, name: str) -> None:
    Path("p.toml").write_text('name = "p"\ndatasets.a.path = "x"\nsteps = [{name="a", do="compact", dataset="a"}]\n')
    code, out, err = fsspeckit(*COMMANDS[name])
    assert out + err
    assert control_characters(out + err) == set()
    assert not re.search("^error: fake", out + err, re.MULTILINE)
    if code and name != "debug":
        assert len(err.splitlines()) == 2, err


def test_json_keeps_names_as_they_are(fsspeckit: Fsspeckit) -> None:
    code, out, err = fsspeckit("inspect", FOLDER, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    found = json.loads(out)
    assert (found["path"], list(found["schema"])) == (FOLDER, [COLUMN, "v"])
    assert PARTITION in {part["partition"] for part in found["partitions"]}
    plan = json.loads(fsspeckit("merge", ONCE, FOLDER, "--key", COLUMN, "--key", "day", "-n", "--json")[1])
    assert {Path(entry["path"]).parent.name for entry in plan["entries"]} == {PARTITION, "day=x"}


def test_a_page_shows_names_escaped(fsspeckit: Fsspeckit) -> None:
    code, _, err = fsspeckit("inspect", FOLDER, "--key", COLUMN, "--html", "page.html")
    assert (code, err) == (0, "")
    assert control_characters(Path("page.html").read_text("utf-8")) == set()
    assert r"\x1b[31m" in Path("page.html").read_text("utf-8")


def test_errors_and_tables_of_the_library_are_printable(fsspeckit: Fsspeckit) -> None:
    io = PyarrowDatasetIO()
    with pytest.raises(KeyColumnError) as caught:
        io.merge("twice.parquet", FOLDER, key_columns=[COLUMN, "day"], strategy="upsert")
    assert str(caught.value).isprintable()
    plan = io.merge(f"once{EVIL}.parquet", FOLDER, key_columns=[COLUMN, "day"], strategy="upsert", dry_run=True)
    assert control_characters(str(plan) + plan._repr_html_()) == set()


def test_an_output_that_cannot_show_a_letter(fsspeckit: Fsspeckit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished operation is not reported as failed because its name has letters that the terminal lacks."""
    with open("out.txt", "w", encoding="ascii") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["compact", FOLDER]) == 0
        assert main(["write", "twice.parquet", "søndag", "-q"]) == 0
        assert main(["inspect", "søndag"]) == 0
    assert r"s\xf8ndag" in Path("out.txt").read_text("ascii")


def test_one_module_writes_to_the_terminal() -> None:
    """Every other module of the program goes through it, so that nothing is printed as it is."""
    folder = Path(terminal.__file__).parent
    writers = [
        path.name
        for path in sorted(folder.glob("*.py"))
        if re.search(r"\bprint\(|typer\.echo|std(out|err)\.write", path.read_text("utf-8"))
    ]
    assert writers == []
    assert "stream.write" in Path(terminal.__file__).read_text("utf-8")

"""One rule for exit codes of all commands: 2 the command is wrong, 1 the operation failed, 3 conflict, 0 otherwise."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit as package
from fsspeckit.cli.app import app, main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

OPTION = re.compile(r"(?<![\w(-])--[a-z][a-z-]+(?![a-z-]*:)")
"""Not the variables of a style sheet, such as `--ink: #1d2329`."""
SOURCE = Path(package.__file__).parent
UNKNOWN_COLUMN: dict[str, list[str]] = {
    "write": ["in.csv new --partition-by nope", "in.csv lake --partition-by nope", "in.csv lake --schema nope=int"],
    "merge": [
        "in.csv lake --key nope",
        "in.csv new --key nope",
        "in.csv new --key id --partition-by nope",
        "in.csv lake --key id --update-columns nope",
        "in.csv lake --key id --newer-by nope",
        "in.csv lake --key id --strategy deduplicate --order-by nope",
        "in.csv lake --key id --delete-when nope=1",
        "in.csv lake --key id --update-when source.nope=1",
        "in.csv lake --key id --insert-when source.nope=1",
        "in.csv lake --key id --strategy full_merge --scope nope=1",
        "in.parquet lake --key id --cast nope=int",
    ],
    "apply-changes": [
        "in.csv lake --key nope --sequence-by id",
        "in.csv lake --key id --sequence-by nope",
        "in.csv lake --key id --sequence-by n --columns nope",
        "in.csv lake --key id --sequence-by n --except-columns nope",
        "in.csv lake --key id --sequence-by nope --scd-type 2",
    ],
    "delete": ["lake --where nope=1"],
    "update": ["lake --set nope=1 --where true", "lake --set n=nope --where true", "lake --set n=1 --where nope=1"],
    "optimize": [
        "lake --by nope",
        "lake --by id --bloom nope",
        "lake --by id --deduplicate-key nope",
        "lake --deduplicate-key id --order-by nope",
    ],
    "deduplicate": ["lake --key nope", "lake --key id --order-by nope"],
    "inspect": ["lake --key nope"],
    "changes": ["kept --since 2 --key nope"],
    "plan merge": ["in.csv lake --key nope"],
    "plan apply-changes": ["in.csv lake --key id --sequence-by nope"],
    "plan delete": ["lake --where nope=1"],
    "plan update": ["lake --set n=nope --where true"],
    "plan write": ["in.csv new --partition-by nope"],
    "plan optimize": ["lake --by nope"],
    "plan deduplicate": ["lake --key nope"],
}
MISSING_DATASET = {
    "delete": "nowhere --where id=1",
    "update": "nowhere --set id=1 --where true",
    "compact": "nowhere",
    "optimize": "nowhere --by id",
    "deduplicate": "nowhere --key id",
    "inspect": "nowhere",
    "recover": "nowhere",
    "forget": "nowhere",
    "history": "nowhere",
    "changes": "nowhere --since 1",
    "restore": "nowhere --version 1",
    "vacuum": "nowhere",
    "export": "delta nowhere",
    "register": "nowhere --catalog glue --table db.name --catalog-option region_name=us-east-1",
    "write": "in.csv nowhere --must-exist",
    "merge": "in.csv nowhere --key id --must-exist",
    "apply-changes": "in.csv nowhere --key id --sequence-by n --must-exist",
    "plan delete": "nowhere --where id=1",
    "plan update": "nowhere --set id=1 --where true",
    "plan compact": "nowhere",
    "plan optimize": "nowhere --by id",
    "plan deduplicate": "nowhere --key id",
    "plan restore": "nowhere --version 1",
    "plan vacuum": "nowhere",
}
UNKNOWN_VERSION = {
    "changes": ["lake --since 9", "kept --since 9", "kept --since 2 --until 9", "kept --since 1", "lake --since -1"],
    "restore": ["lake --version 9", "kept --version 9", "kept --version 1", "kept --as-of 1999-01-01", "lake"],
    "plan restore": ["lake --version 9", "kept --version 9", "kept --as-of 1999-01-01"],
}
WRONG_VALUE = {
    "write": "in.csv lake --mode nope",
    "merge": "in.csv lake --key id --strategy nope",
    "apply-changes": "in.csv lake --key id --sequence-by n --scd-type 3",
    "delete": "lake --where id=",
    "update": "lake --set n --where true",
    "compact": "lake --target-mb 0",
    "optimize": "lake --by id --curve nope",
    "deduplicate": "lake --key id --max-files 0",
    "history": "lake --retain soon",
    "changes": "lake --since soon",
    "restore": "lake --as-of soon",
    "vacuum": "lake --older-than soon",
    "export": "nope lake",
    "register": "lake --catalog glue --table nope",
    "recover": "lake --storage-option nope",
    "forget": "lake --storage-option nope",
    "inspect": "lake --fail-under 101",
    "apply": "in.csv",
    "run": "p.toml --dry-run --select nope",
    "doctor": "lake --engine nope",
}
FAILURE = {
    "write": [
        "text.csv lake",
        "big.parquet new --cast n=tinyint",
        "odd.csv new",
        "lost.csv new",
        "in.csv taken --mode error",
        "out.csv lake --mode overwrite --replace-where n=1",
    ],
    "merge": ["text.csv lake --key id", "twice.csv lake --key id", "lost.csv lake --key id"],
    "apply-changes": ["text.csv lake --key id --sequence-by n", "lost.csv lake --key id --sequence-by n"],
    "delete": ["taken --where 1/(id-1)=1"],
    "update": ["taken --set n=n%(id-1) --where true"],
    "compact": ["damaged"],
    "inspect": ["small --fail-under 100 --key id", "damaged"],
}
"""Right calls whose data or state make them fail."""
NEITHER = {"plan merge", "plan apply-changes", "plan write", "apply", "run", "doctor"}
"""Commands that may create a dataset, or whose dataset another file names."""
PLANS = {f"plan {each.name}" for group in app.registered_groups for each in group.typer_instance.registered_commands}
COMMANDS = sorted({each.name or "" for each in app.registered_commands} | PLANS)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    Path("in.csv").write_text("id,n\n1,10\n2,20\n")
    io, rows = PyarrowDatasetIO(), pa.table({"id": [1, 2], "n": [1, 2]})
    io.write_dataset(rows, "in.parquet")
    io.write_dataset(rows, "lake")
    io.write_dataset(rows, "kept")
    io.keep_history("kept", "7d")
    io.delete("kept", where="id = 1")
    io.write_dataset(rows, "taken")
    for _ in range(3):
        io.write_dataset(rows, "small")
    pq.write_table(pa.table({"id": [1], "n": [1000]}), "big.parquet")
    Path("out.csv").write_text("id,n\n1,5\n")
    io.write_dataset(rows, "damaged")
    (Path("damaged") / "bad.parquet").write_text("PAR1")
    Path("text.csv").write_text("id,n\n1,many\n")
    Path("odd.csv").write_text("id;n\n1;2\n")
    Path("twice.csv").write_text("id,n\n1,2\n1,3\n")
    Path("p.toml").write_text('name = "p"\ndatasets.a.path = "x"\nsteps = [{name="a", do="compact", dataset="a"}]\n')


def words_of(text: str) -> list[str]:
    """Words of a call; a type is behind its column."""
    return [re.sub(r"=(int|tinyint)$", r" \1", word) for word in text.split(" ")]


@pytest.mark.parametrize("command", UNKNOWN_COLUMN)
def test_an_unknown_column_is_a_usage_error(command: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    for text in UNKNOWN_COLUMN[command]:
        code, said = main([*command.split(), *words_of(text)]), capsys.readouterr().err
        assert (code, "nope" in said) == (2, True), (text, said)


@pytest.mark.parametrize("command", UNKNOWN_VERSION)
def test_an_unknown_version_is_a_usage_error(command: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    for text in UNKNOWN_VERSION[command]:
        assert main([*command.split(), *text.split()]) == 2, (text, capsys.readouterr().err)
    capsys.readouterr()
    assert main([*command.split(), *text.split(), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_value_is_a_usage_error(command: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    words = WRONG_VALUE[command.removeprefix("plan ")].split()
    assert main([*command.split(), *words]) == 2, capsys.readouterr().err
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("command", FAILURE)
def test_data_that_do_not_fit_are_a_failure(command: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    for text in FAILURE[command]:
        assert main([*command.split(), *words_of(text)]) == 1, (text, capsys.readouterr())


@pytest.mark.parametrize("command", MISSING_DATASET)
def test_a_missing_dataset_is_a_failure(command: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), *MISSING_DATASET[command].split()]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_a_usage_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--no-such-option"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_every_command_is_covered() -> None:
    assert {*COMMANDS} == {*MISSING_DATASET, *UNKNOWN_COLUMN} | NEITHER


def test_changed_data_is_a_conflict_and_nothing_to_do_is_none(lake: None) -> None:
    assert main(["plan", "delete", "lake", "--where", "id=1", "-o", "plan.json", "-q"]) == 0
    assert main(["delete", "lake", "--where", "id=2", "-q"]) == 0
    assert main(["apply", "plan.json", "-q"]) == 3
    assert main(["delete", "lake", "--where", "id=9", "-q"]) == 0
    assert main(["delete", "lake", "--where", "id=9", "-q", "--noop-exit-code", "7"]) == 7


def texts() -> Iterator[tuple[Path, str]]:
    """Every text of the source that is not the description of a module, class or function."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
                yield path, node.value


def test_every_option_that_a_text_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"--help", "--add-modules"}  # the second one is an option of Java
    for command in ["", *COMMANDS]:
        main([*command.split(), "--help"])
        known |= {*re.findall(OPTION, capsys.readouterr().out)}
    found = [(path, option) for path, text in texts() for option in re.findall(OPTION, text)]
    assert len(found) > 100
    assert [each for each in found if each[1] not in known] == []


def test_an_option_before_the_command_is_told_where_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-v", "compact", "lake"]) == 2
    problem, remedy = capsys.readouterr().err.splitlines()
    assert problem == "error: No such option: -v"
    assert remedy == "to do: write options behind the command, or see `fsspeckit --help`"

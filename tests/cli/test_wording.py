"""Errors speak of what the reader can type: of options that the very command has, never of parameters of Python."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit as package
from fsspeckit.cli import command
from fsspeckit.cli.app import app, main
from fsspeckit.cli.wording import as_options
from fsspeckit.common.wording import FUNCTIONS as NAMED_FUNCTIONS
from fsspeckit.common.wording import PARAMETERS, WORDS
from fsspeckit.core import ext
from fsspeckit.core.incremental import plan_incremental_rewrite
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline.model import AnyStep
from fsspeckit.pipeline.wording import as_keys
from sweeps import sweep_size

SOURCE = Path(package.__file__).parent
FUNCTIONS = [
    *(each for _, each in inspect.getmembers(SparkDatasetIO, inspect.isfunction)),
    *(each.__init__ for each in (PyarrowDatasetIO, DuckDBDatasetIO, SparkDatasetIO)),
    *(ext.read_csv, ext.read_json, ext.read_parquet, plan_incremental_rewrite),
]
LIBRARY = {
    name
    for function in FUNCTIONS
    if not function.__name__.startswith("_") or function.__name__ == "__init__"
    for name in inspect.signature(function).parameters
    if "_" in name
} - {"dataset_path", "source_keys"}
NAMED = re.compile(rf"(?<![\w'\"/.-])(?:{'|'.join(LIBRARY)})\b(?!['\"/])|\b\w+_parquet_dataset\b|(?<![\w.])\w+\(\)")
PLANS = {f"plan {each.name}" for group in app.registered_groups for each in group.typer_instance.registered_commands}
COMMANDS = sorted({command.name or "" for command in app.registered_commands} | PLANS)


@pytest.fixture(scope="module")
def offered() -> dict[str, set[str]]:
    """The options of each command, as its help lists them."""
    from typer.testing import CliRunner

    pages = {name: CliRunner().invoke(app, [*name.split(), "--help"]).output for name in COMMANDS}
    return {name: set(re.findall(r"(?<!\w)--[a-z][a-z-]+", page)) for name, page in pages.items()}


def _filled(part: ast.expr) -> str:
    """A part of an f-string; a value is X, in quotes where the message quotes it."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    return "'X'" if isinstance(part, ast.FormattedValue) and part.conversion == ord("r") else "X"


def messages() -> Iterator[str]:
    """Every text in the source that may be a message, with X for what is filled in."""
    for folder in ("common", "core", "datasets"):
        for path in sorted((SOURCE / folder).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            inner = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    yield re.sub(r"=X\b", "=5", "".join(map(_filled, node.values)))
                elif (
                    isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner | described
                ):
                    yield node.value


MESSAGES = [text for text in messages() if " " in text and NAMED.search(text) and "SELECT" not in text]


def test_every_parameter_is_known() -> None:
    assert {*PARAMETERS} == LIBRARY
    assert len(MESSAGES) > 30


def test_every_word_and_function_is_named_by_a_message() -> None:
    texts = [*messages(), "version=5", "before=5", "after=5"]  # `check_version` gets the name of the parameter
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    chosen = {*re.findall(r'check_(?:choice|version)\("(\w+)"', source)}
    assert [word for word in {*WORDS} - chosen if not any(re.search(rf"\b{word}=", text) for text in texts)] == []
    assert [name for name in NAMED_FUNCTIONS if not any(re.search(name, text) for text in texts if " " in text)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_message_of_the_library_fits_the_command(command: str, offered: dict[str, set[str]]) -> None:
    for message in MESSAGES:
        said = as_options(message, offered[command])
        for other, rest in re.findall(r"`fsspeckit (\w+)([^`]*)`", said):
            assert {*re.findall(r"--[a-z][a-z-]+", rest)} <= offered[other], said
        own = re.sub(r"`fsspeckit [^`]*`", "", said)
        assert {*re.findall(r"(?<!\w)--[a-z][a-z-]+", own)} <= offered[command], said
        assert NAMED.search(own) is None, said
        assert said.strip(" .;"), message


@pytest.mark.parametrize("step", [None, *AnyStep.__args__], ids=lambda step: step.__name__ if step else "no step")  # type: ignore[attr-defined]
def test_every_message_of_the_library_fits_the_step(step: type[AnyStep] | None) -> None:
    keys = {name for name, field in step.model_fields.items()} if step is not None else set()
    for message in MESSAGES:
        said = as_keys(message, step.model_construct() if step is not None else None)
        named = {*NAMED.findall(said)} - {"storage_options"}
        assert named <= keys, said


VALUES = ("'x; y'", "','", "5", "nan", "-1", "True", "['a', 'b']")
ASSIGNED = re.compile(r"(?<![\w'/.-])[a-z_]+=(?=['\"\[\d-]|nan|True|\.\.\.)")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_message_has_the_syntax_of_a_call(command: str, offered: dict[str, set[str]]) -> None:
    """Every parameter with every kind of value, and every message in the source that has a parameter with a value."""
    made = [f"{name}={value} is unknown; pass another" for name in (*PARAMETERS, *WORDS) for value in VALUES]
    made += [f"pass {name}=';', else pass {name}=','." for name in WORDS]
    for message in [*made, *messages()]:
        said = as_options(message, offered[command])
        quoted = re.sub(r"'[a-z]+=[^']*'", "", said)  # folders of partitions
        if " " in said and "<t" not in said:
            assert ASSIGNED.sub("", quoted) == quoted or "uri=" in said, said


BAD: dict[str, list[list[str]]] = {
    "write": [
        ["in.csv", "lake", "--mode", "overwrite_partitions"],
        ["other.csv", "lake"],
        ["in.csv", "lake", "--partition-by", "id"],
        ["in.csv", "lake", "--partition-by", "day", "--partition-by", "day"],
        ["in.csv", "lake", "--max-rows-per-file", "0"],
        ["in.csv", "lake", "--compression", "zip"],
        ["in.csv", "lake", "--memory-limit", "much"],
        ["bad.csv", "lake"],
        ["in.csv", "new", "--partition-by", "who"],
    ],
    "merge": [
        ["moved.csv", "parted", "--key", "id"],
        ["twice.csv", "lake", "--key", "id"],
        ["null.parquet", "lake", "--key", "day"],
        ["other.csv", "lake", "--key", "id"],
        ["in.csv", "lake", "--key", "id", "--order-by", "day"],
        ["in.csv", "lake", "--key", "id", "--strategy", "deduplicate", "--order-by", "who"],
        ["in.csv", "parted", "--key", "id", "--partition-by", "id"],
        ["in.csv", "lake", "--key", "id", "--key", "id"],
        ["in.csv", "nested", "--key", "list"],
        ["in.csv", "lake", "--key", "id", "--update-columns", "who"],
        ["in.csv", "lake", "--key", "id", "--update-columns", "id"],
        ["in.csv", "lake", "--key", "id", "--newer-by", "who"],
        ["in.csv", "lake", "--key", "id", "--delete-when", "day ="],
        ["in.csv", "lake", "--key", "id", "--update-when", "day = 'm'"],
        ["in.csv", "lake", "--key", "id", "--insert-when", "target.day = 'm'"],
        ["in.csv", "lake", "--key", "id", "--scope", "day = 'm'"],
        ["in.csv", "lake", "--key", "id", "--strategy", "full_merge", "--scope", "day = 'm'"],
        ["in.csv", "lake", "--key", "id", "--strategy", "insert", "--update-when", "source.id = 1"],
        ["in.csv", "lake", "--key", "id", "--strategy", "update", "--insert-when", "source.id = 1"],
    ],
    "apply-changes": [
        ["in.csv", "lake", "--key", "who", "--sequence-by", "id"],
        ["in.csv", "lake", "--key", "id", "--sequence-by", "who"],
        ["in.csv", "lake", "--key", "id", "--sequence-by", "id", "--except-columns", "id"],
        ["in.csv", "lake", "--key", "id", "--sequence-by", "id", "--columns", "who"],
        ["in.csv", "lake", "--key", "id", "--sequence-by", "id", "--delete-when", "dya = 'm'"],
        ["in.csv", "lake", "--key", "id"],
    ],
    "plan apply-changes": [["in.csv", "lake", "--key", "id", "--sequence-by", "who"]],
    "plan merge": [
        ["moved.csv", "parted", "--key", "id"],
        ["twice.csv", "lake", "--key", "id"],
        ["null.parquet", "lake", "--key", "day"],
    ],
    "delete": [
        ["nowhere", "--where", "true"],
        ["lake", "--where", "idd = 1"],
        ["lake", "--where", "id ="],
        ["lake", "--where", ""],
        ["lake", "--where", "id"],
        ["lake", "--where", "id = 'x'"],
        ["lake", "--where", "1 / (id - 1) = 1"],
        ["lake", "--where", "id = 1", "--compression", "zip"],
        ["lake", "--where", "true"],
        ["lake"],
    ],
    "plan delete": [["lake", "--where", "idd = 1"], ["lake", "--where", "true", "-o", "no/plan.json"]],
    "update": [
        ["lake", "--set", "id=idd", "--where", "true"],
        ["lake", "--set", "idd=1", "--where", "true"],
        ["lake", "--set", "id=day", "--where", "true"],
        ["lake", "--set", "id", "--where", "true"],
        ["lake", "--set", "=1", "--where", "true"],
        ["lake", "--set", "id=", "--where", "true"],
        ["lake", "--set", "id=1", "--set", "id=2", "--where", "true"],
        ["lake", "--set", "id=1", "--where", "idd = 1"],
        ["lake", "--set", "id=1 / (id - 1)", "--where", "true"],
        ["parted", "--set", "day=''", "--where", "true"],
        ["lake", "--set", "id=1"],
        ["lake", "--where", "true"],
    ],
    "plan update": [["lake", "--set", "id=day", "--where", "true"], ["lake", "--set", "id=1", "--where", "idd = 1"]],
    "compact": [
        ["lake", "--target-mb", "-1"],
        ["lake", "--target-rows", "0"],
        ["lake", "--partition", "../x"],
        ["parted", "--partition", "day=w"],
        ["close", "--partition", "day=1"],
        ["lake", "--max-files", "0"],
        ["lake", "--row-group-size", "0"],
    ],
    "optimize": [
        ["lake"],
        ["lake", "--by", "who"],
        ["lake", "--by", "id", "--by", "id"],
        ["lake", "--by", "id", "--bloom", "who"],
        ["lake", "--by", "id", "--order-by", "day"],
        ["lake", "--deduplicate-key", "id", "--curve", "hilbert", "--force"],
        ["lake", "--deduplicate-key", "id", "--max-files", "2"],
        ["nulls", "--deduplicate-key", "day"],
        ["lake", "--deduplicate-key", "who"],
        ["nested", "--by", "list"],
        ["parted", "--by", "day"],
    ],
    "deduplicate": [
        ["nulls", "--key", "day"],
        ["lake", "--key", "who"],
        ["lake", "--key", "id", "--order-by", "who"],
        ["nested", "--key", "list"],
        ["lake", "--key", ""],
    ],
    "inspect": [["nowhere"], ["lake", "--key", "who"], ["lake", "--compare", "in.csv"]],
    "recover": [["nowhere"], ["s3://"]],
    "doctor": [["s4://x"]],
    "apply": [["in.csv"], ["bad-plan.json"], ["bad-delete.json"]],
    "run": [["in.csv"], ["nowhere.toml"], ["p.toml", "--var", "x=1"], []],
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small datasets and sources that go wrong in one way each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    Path("in.csv").write_text("id,day\n1,m\n2,t\n")
    Path("other.csv").write_text("id,what\n1,m\n")
    Path("moved.csv").write_text("id,day\n1,t\n")
    Path("twice.csv").write_text("id,day\n1,t\n1,t\n")
    Path("bad.csv").write_text("id,day\n1,t\n1\n")
    Path("p.toml").write_text('name = "p"\ndatasets.a.path = "x"\nsteps = [{name="a", do="compact", dataset="a"}]\n')
    io, rows = PyarrowDatasetIO(), pa.table({"id": [1, 2], "day": ["m", "t"]})
    for _ in range(2):
        io.write_dataset(rows, "lake")
    io.write_dataset(rows, "parted", partition_by=["day"])
    io.write_dataset(pa.table({"id": [1, 2], "day": ["1", "10"]}), "close", partition_by=["day"])
    io.write_dataset(pa.table({"id": [1, 2], "day": ["m", None]}), "nulls")
    io.write_dataset(pa.table({"id": [1], "list": [[1]]}), "nested")
    pq.write_table(pa.table({"id": [1], "day": pa.nulls(1, pa.string())}), "null.parquet")
    assert main(["plan", "merge", "in.csv", "lake", "--key", "id", "-o", "plan.json", "-q"]) == 0
    text = Path("plan.json").read_text().replace('"null_keys": "error"', '"null_keys": "what"')
    Path("bad-plan.json").write_text(text)
    assert main(["plan", "delete", "lake", "--where", "id = 1", "-o", "plan.json", "-q"]) == 0
    text = Path("plan.json").read_text().replace('"where": "id = 1"', '"where": "idd = 1"')
    Path("bad-delete.json").write_text(text)


@pytest.mark.parametrize(
    ("command", "words"),
    sweep_size().some([(name, words) for name, lines in BAD.items() for words in lines], quick=25),
    ids=str,
)
def test_what_a_command_says_can_be_typed(
    command: str, words: list[str], offered: dict[str, set[str]], lake: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), *words]) in (1, 2)
    shown = capsys.readouterr()
    said = shown.err or shown.out
    if command != "doctor":
        assert len(said.splitlines()) == 2, said
    for other, rest in re.findall(r"`fsspeckit (plan\b|\w+)([^`]*)`", said):
        assert {*re.findall(r"--[a-z][a-z-]+", rest)} <= offered.get(other, set()) | {"--help"}, said
    said = re.sub(r"`fsspeckit [^`]*`", "", said)
    assert {*re.findall(r"(?<!\w)--[a-z][a-z-]+", said)} <= offered[command] | {"--help"}, said
    assert NAMED.search(said) is None, said


def test_the_example_of_partition_selects_a_folder(lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("compact", "optimize", "deduplicate"):
        assert main([verb, "--help"]) == 0
        page = " ".join(capsys.readouterr().out.split())
        example = re.search(r"--partition FOLDER .*? such as (\S+);", page)
        assert example is not None, page
        column, _, value = example[1].partition("=")
        PyarrowDatasetIO().write_dataset(pa.table({"id": [1], column: [value]}), f"by-{verb}", partition_by=[column])
        more = {"compact": [], "optimize": ["--by", "id"], "deduplicate": ["--key", "id"]}[verb]
        assert main([verb, f"by-{verb}", "--partition", example[1], "--dry-run", "-q", *more]) == 0


def test_a_command_knows_its_options(offered: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command takes for its options is what its help lists."""
    seen: dict[str, frozenset[str]] = {}
    monkeypatch.setattr(command, "execute", lambda this, _: seen.update({this.command: this.offered}) or 0)
    needed = {"write": 2, "merge": 2, "apply-changes": 2}
    for name in COMMANDS:
        verb = name.split()[-1]
        keys = ["--key", "id"] if verb in ("merge", "apply-changes", "deduplicate") else []
        keys += ["--sequence-by", "id"] if verb == "apply-changes" else []
        keys += ["--where", "true"] if verb in ("delete", "update") else []
        keys += ["--set", "id=1"] if verb == "update" else []
        keys += ["--since", "1"] if verb == "changes" else []
        keys += ["--catalog", "glue", "--table", "a.b"] if verb == "register" else []
        first = ["delta"] if verb == "export" else []
        assert main([*name.split(), *first, *["x"] * needed.get(verb, 1), *keys]) == 0
        assert seen.pop(verb) == offered[name] - {"--help"}, name


def test_names_of_files_and_columns_are_left_alone() -> None:
    text = "the dataset has no column 'null_keys'; it has ['key_columns', 'mode'], at lake/null_keys/a.parquet"
    assert as_options(text, {"--key", "--null-keys"}) == text


@pytest.mark.parametrize(
    "name",
    [
        "plan=pro",
        "plan=pro-monthly",
        "mode=a%2Fb",
        "schema=v1.2",
        "max_files=x-1",
        "key_columns=5-a",
        "'use key_columns, or mode=\"x\"; null_keys'",
        "strategy=a:b",
    ],
)
def test_folders_of_partitions_are_left_alone(name: str) -> None:
    text = f"{name} has no file; look at ({name}, {name}) and {name}/a.parquet, or pass null_keys='match'."
    assert as_options(text, {"--null-keys"}) == text.replace("null_keys='match'.", "--null-keys match.")
    assert as_options(text, set()) == text.replace(", or pass null_keys='match'", "")
    assert as_keys(text, None) == text.replace(", or pass null_keys='match'", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_message_keeps_every_name_that_is_filled_in(command: str, offered: dict[str, set[str]]) -> None:
    for message in MESSAGES:
        numbers = iter(range(99))
        filled = re.sub(r"\bX\b", lambda _, numbers=numbers: f"name{next(numbers)}", message)  # type: ignore[misc]
        names = set(re.findall(r"name\d+", filled))
        assert names <= set(re.findall(r"name\d+", as_options(filled, offered[command]))), filled


def test_a_command_without_schemas_does_not_speak_of_them() -> None:
    text = "read_json of a.json: no. Correct the file, or give the types with schema=."
    assert as_options(text, {"--format"}) == "read_json of a.json: no. Correct the file."


def test_a_path_without_a_dataset_is_no_matter_of_partitions(lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["compact"], ["optimize", "--by", "id"], ["deduplicate", "--key", "id"]):
        assert main([words[0], "nope", *words[1:]]) == 1
        assert "--partition" not in capsys.readouterr().err
    assert main(["compact", "parted", "--partition", "day=w"]) == 1
    assert "correct --partition" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["parted/day=m", "."])
def test_recover_refuses_what_other_commands_refuse(path: str, lake: None, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--dry-run"]):
        assert main(["recover", path, "--json", *more]) == 1
        assert '"error": "NestedDatasetError"' in capsys.readouterr().out

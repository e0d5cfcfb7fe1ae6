"""Messages of the library as a command line or a pipeline file spells them, also those that no test provokes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsspeckit as package
from cli.test_wrong_calls import COMMANDS, OFFERED, OPTION
from fsspeckit.common.wording import FUNCTIONS as NAMED_FUNCTIONS
from fsspeckit.common.wording import PARAMETERS, WORDS
from fsspeckit.core import ext
from fsspeckit.core.incremental import plan_incremental_rewrite
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline import Pipeline
from inside_programs import as_keys, as_options

SOURCE = Path(package.__file__).parent
NAMED = re.compile(rf"(?<![\w'\"/.-])(?:{'|'.join(PARAMETERS)})\b(?!['\"/])|\b\w+_parquet_dataset\b|(?<![\w.])\w+\(\)")
VALUES = ("'x; y'", "','", "5", "nan", "-1", "True", "['a', 'b']")
ASSIGNED = re.compile(r"(?<![\w'/.-])[a-z_]+=(?=['\"\[\d-]|nan|True|\.\.\.)")


def _filled(part: ast.expr) -> str:
    """A part of an f-string; a value is X, in quotes where the message quotes it."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    return "'X'" if isinstance(part, ast.FormattedValue) and part.conversion == ord("r") else "X"


def messages(*folders: str) -> Iterator[str]:
    """Every text in the source that may be a message, with X for what is filled in."""
    for path in sorted(path for folder in folders for path in (SOURCE / folder).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inner = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield re.sub(r"=X\b", "=5", "".join(map(_filled, node.values)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner | described:
                yield node.value


TEXTS = list(messages("common", "core", "datasets"))
MESSAGES = [text for text in TEXTS if " " in text and NAMED.search(text) and "SELECT" not in text]


def test_every_parameter_word_and_function_is_known_and_named_by_a_message() -> None:
    functions = [each for name, each in inspect.getmembers(SparkDatasetIO, inspect.isfunction) if name[0] != "_"]
    functions += [each.__init__ for each in (PyarrowDatasetIO, DuckDBDatasetIO, SparkDatasetIO)]
    functions += [ext.read_csv, ext.read_json, ext.read_parquet, plan_incremental_rewrite]
    library = {name for each in functions for name in inspect.signature(each).parameters if "_" in name}
    assert {*PARAMETERS} == library - {"dataset_path", "source_keys"}
    assert len(MESSAGES) > 30
    texts = [*TEXTS, "version=5", "before=5", "after=5"]  # `check_version` gets the name of the parameter
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    chosen = {*re.findall(r'check_(?:choice|version)\("(\w+)"', source)}
    assert [word for word in {*WORDS} - chosen if not any(re.search(rf"\b{word}=", text) for text in texts)] == []
    assert [name for name in NAMED_FUNCTIONS if not any(re.search(name, text) for text in texts if " " in text)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_message_of_the_library_fits_the_command(command: str) -> None:
    """It names options of the command only, has no syntax of a call, and keeps every name that is filled in."""
    offered = OFFERED[command] - {"--help"}
    for message in MESSAGES:
        said = as_options(message, offered)
        for other, rest in re.findall(r"`fsspeckit (\w+)([^`]*)`", said):
            assert {*OPTION.findall(rest)} <= OFFERED[other], said
        own = re.sub(r"`fsspeckit [^`]*`", "", said)
        assert {*OPTION.findall(own)} <= offered, said
        assert NAMED.search(own) is None, said
        assert said.strip(" .;"), message
        numbers = iter(range(99))
        filled = re.sub(r"\bX\b", lambda _, numbers=numbers: f"name{next(numbers)}", message)  # type: ignore[misc]
        assert {*re.findall(r"name\d+", filled)} <= {*re.findall(r"name\d+", as_options(filled, offered))}, filled
    made = [f"{name}={value} is unknown; pass another" for name in (*PARAMETERS, *WORDS) for value in VALUES]
    made += [f"pass {name}=';', else pass {name}=','." for name in WORDS]
    for message in [*made, *TEXTS]:
        said = as_options(message, offered)
        quoted = re.sub(r"'[a-z]+=[^']*'", "", said)  # folders of partitions
        if " " in said and "<t" not in said and "pandas" not in said:
            assert ASSIGNED.sub("", quoted) == quoted or "uri=" in said, said


def test_every_message_of_the_library_fits_the_step() -> None:
    datasets = {name: {"path": name} for name in ("a", "b")}
    keys = {"do": "merge", "from": "raw", "into": "a", "keys": ["id"]}
    steps = [
        keys,
        keys | {"do": "apply_changes", "sequence_by": "lsn"},
        {"do": "write", "from": "raw", "into": "a"},
        {"do": "delete", "dataset": "a", "where": "true"},
        {"do": "update", "dataset": "a", "where": "true", "set": {"a": "1"}},
        *({"do": do, "dataset": "a", "keys": ["id"]} for do in ("deduplicate",)),
        {"do": "compact", "dataset": "a"},
        {"do": "optimize", "dataset": "a", "by": ["id"]},
        {"do": "check", "dataset": "a", "checks": {"rows": {"min": 1}}},
    ]
    named = [{"name": f"s{number}"} | step for number, step in enumerate(steps)]
    file = {"name": "p", "sources": {"raw": {"format": "csv", "path": "x"}}, "datasets": datasets, "steps": named}
    for step in (None, *Pipeline.of(file).file.steps):
        known = {*type(step).model_fields} if step is not None else set()
        for message in MESSAGES:
            said = as_keys(message, step)
            assert {*NAMED.findall(said)} - {"storage_options"} <= known, said


@pytest.mark.parametrize(
    "name",
    [
        *("plan=pro", "plan=pro-monthly", "mode=a%2Fb", "schema=v1.2", "max_files=x-1", "key_columns=5-a"),
        *("'use key_columns, or mode=\"x\"; null_keys'", "strategy=a:b"),
    ],
)
def test_folders_of_partitions_are_left_alone(name: str) -> None:
    text = f"{name} has no file; look at ({name}, {name}) and {name}/a.parquet, or pass null_keys='match'."
    assert as_options(text, {"--null-keys"}) == text.replace("null_keys='match'.", "--null-keys match.")
    assert as_options(text, set()) == text.replace(", or pass null_keys='match'", "")
    assert as_keys(text, None) == text.replace(", or pass null_keys='match'", "")


def test_names_and_other_commands_are_left_alone() -> None:
    text = "the dataset has no column 'null_keys'; it has ['key_columns', 'mode'], at lake/null_keys/a.parquet"
    assert as_options(text, {"--key", "--null-keys"}) == text
    text = "read_json of a.json: no. Correct the file, or give the types with schema=."
    assert as_options(text, {"--format"}) == "read_json of a.json: no. Correct the file."


def test_every_option_that_a_text_names_exists() -> None:
    option = re.compile(OPTION.pattern + r"(?![a-z-]*:)")
    """Not the variables of a style sheet, such as `--ink: #1d2329`."""
    known = {"--add-modules"}.union(*OFFERED.values())  # an option of Java
    found = [(text, each) for text in messages(".") for each in option.findall(text)]
    assert len(found) > 100
    assert [each for each in found if each[1] not in known] == []

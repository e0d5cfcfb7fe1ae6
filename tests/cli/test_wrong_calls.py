"""One rule for wrong calls of all commands: 2 the command is wrong, 1 the operation failed, 3 conflict, 0 otherwise.

What is said has two lines, names only options that can be typed, and has no syntax of Python.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from cli.conftest import Fsspeckit
from fsspeckit.cli.app import app, main
from fsspeckit.common.wording import PARAMETERS
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

CALLS = """
2 write in.csv lake --mode nope
1 write in.csv lake --mode overwrite_partitions
2 write in.csv new --partition-by nope :: nope
2 write in.csv lake --partition-by nope :: nope
2 write in.csv lake --partition-by id
2 write in.csv lake --partition-by n --partition-by n
2 write in.csv lake --schema 'nope int' :: nope
2 write in.csv lake --max-rows-per-file 0 :: --max-rows-per-file 0
2 write in.csv lake --compression zip
2 write in.csv lake --memory-limit much
2 write in.csv new --delimiter ;; :: is not one character
2 write in.csv new --delimiter '"' :: is not one character
2 write in.csv new --delimiter '' :: is not one character
2 write in.csv new --delimiter ';' --format json :: --delimiter
2 write in.csv new --encoding '' :: --encoding is empty
2 write in.csv new --encoding klingon :: --encoding klingon is unknown
2 write in.parquet new --encoding latin-1 :: does not go with parquet
2 write in.csv new --format ''
2 write in.csv new --engine polars :: polars
2 write in.csv new --storage-option x :: name=value
2 write in.csv new --config gone.toml :: gone.toml
1 write in.csv nowhere --must-exist :: nowhere
1 write text.csv lake
1 write short.csv lake
1 write other.csv lake
1 write odd.csv new
1 write gone.csv new :: gone.csv
1 write gone new :: check the path
1 write big.parquet new --cast 'n tinyint'
1 write in.csv taken --mode error
1 write out.csv lake --mode overwrite --replace-where n=1
2 plan write in.csv new --partition-by nope :: nope
2 merge in.csv :: DEST
2 merge in.csv lake :: --key
2 merge in.csv lake --key '' :: such as --key id
2 merge in.csv lake --key nope :: nope
2 merge in.csv new --key nope :: nope
2 merge in.csv lake --key id --key id
2 merge in.csv lake --key id --strategy upser :: upser
2 merge in.csv new --key id --partition-by nope :: nope
2 merge in.csv parted --key id --partition-by id
2 merge in.csv lake --key id --update-columns nope :: nope
2 merge in.csv lake --key id --update-columns id
2 merge in.csv lake --key id --newer-by nope :: nope
2 merge in.csv lake --key id --order-by n :: --order-by has no effect with --strategy upsert
2 merge in.csv lake --key id --strategy deduplicate --order-by nope :: nope
2 merge in.csv lake --key id --delete-when 'n ='
2 merge in.csv lake --key id --delete-when nope=1 :: nope
2 merge in.csv lake --key id --update-when n=1
2 merge in.csv lake --key id --update-when source.nope=1 :: nope
2 merge in.csv lake --key id --insert-when target.n=1
2 merge in.csv lake --key id --insert-when source.nope=1 :: nope
2 merge in.csv lake --key id --scope n=1
2 merge in.csv lake --key id --strategy full_merge --scope nope=1 :: nope
2 merge in.csv lake --key id --strategy insert --update-when source.id=1
2 merge in.csv lake --key id --strategy update --insert-when source.id=1
2 merge in.parquet lake --key id --cast 'nope int' :: nope
1 merge in.csv nowhere --key id --must-exist :: nowhere
1 merge text.csv lake --key id
1 merge twice.csv lake --key id
1 merge empty.csv lake --key id :: it has no columns
1 merge gone.csv lake --key id :: gone.csv
1 merge moved.csv parted --key id
1 merge null.parquet lake --key n
2 merge in.csv nested --key list
1 plan merge moved.csv parted --key id
2 plan merge in.csv lake --key nope :: nope
2 plan merge in.csv lake --key id -o no/plan.json :: there is no folder no
2 apply-changes in.csv lake --key id
2 apply-changes in.csv lake --key nope --sequence-by id :: nope
2 apply-changes in.csv lake --key id --sequence-by nope :: nope
2 apply-changes in.csv lake --key id --sequence-by id --except-columns id
2 apply-changes in.csv lake --key id --sequence-by n --columns nope :: nope
2 apply-changes in.csv lake --key id --sequence-by n --except-columns nope :: nope
2 apply-changes in.csv lake --key id --sequence-by nope --scd-type 2 :: nope
2 apply-changes in.csv lake --key id --sequence-by n --scd-type 3
1 apply-changes in.csv nowhere --key id --sequence-by n --must-exist :: nowhere
1 apply-changes text.csv lake --key id --sequence-by n
2 plan apply-changes in.csv lake --key id --sequence-by nope :: nope
2 plan apply-changes - lake --key id --sequence-by n :: put the rows into a file first
2 delete lake
2 delete lake --where '' :: --where
2 delete lake --where id= :: --where
2 delete lake --where nope=1 :: --where: unknown column 'nope'
2 delete lake --where idd=1 :: did you mean 'id'?
2 delete lake --where id :: --where: 'id' is a number, not a condition
2 delete lake --where "id='x'" :: --where: cannot compare a number with a text
2 delete lake --where id=1 --compression zip
2 delete lake --where true :: add --yes if that is meant
1 delete nowhere --where id=1 :: nowhere
1 delete taken --where '1/(id-1)=1'
2 plan delete lake --where nope=1 :: nope
2 plan delete lake --where true -o no/plan.json
1 plan delete nowhere --where id=1 :: nowhere
2 update lake --set n=1
2 update lake --where true
2 update lake --set n --where true :: --set 'n' is not COLUMN=EXPRESSION
2 update lake --set =1 --where true
2 update lake --set n= --where true
2 update lake --set nope=1 --where true :: --set: unknown column(s) ['nope']
2 update lake --set n=nope --where true :: --set: unknown column 'nope'
2 update lake --set n=1 --where nope=1 :: --where: unknown column 'nope'
2 update nulls --set id=day --where true :: --set: 'day' has the type string
2 update lake --set n=1 --set n=2 --where true :: --set names the column 'n' twice
1 update nowhere --set id=1 --where true :: nowhere
1 update taken --set 'n=n%(id-1)' --where true
2 plan update lake --set n=nope --where true :: nope
1 plan update nowhere --set id=1 --where true :: nowhere
2 compact lake --target-mb 0 :: --target-mb 0.0 must be a number above zero
2 compact lake --target-rows 0
2 compact lake --row-group-size 0
2 compact lake --max-files 0
2 compact lake --partition ../x
1 compact parted --partition n=7 :: correct --partition
1 compact nowhere :: nowhere
1 compact damaged :: `fsspeckit doctor PATH` names all such files
2 -v compact lake :: write options behind the command, or see `fsspeckit --help`
2 compact lake --dry-runn :: use --dry-run
2 compact lake --zzz :: see `fsspeckit compact --help`
2 compact lake --publish rename :: --publish 'rename' is unknown
1 plan compact nowhere :: nowhere
2 optimize lake
2 optimize lake --by nope :: nope
2 optimize lake --by id --by id
2 optimize lake --by id --bloom nope :: nope
2 optimize lake --by id --order-by n
2 optimize lake --by id --curve nope
2 optimize lake --by id --deduplicate-key nope :: nope
2 optimize lake --deduplicate-key id --order-by nope :: nope
2 optimize lake --deduplicate-key id --max-files 2
2 optimize lake --sort-by id :: use --by
1 optimize nested --by list
2 optimize parted --by n
1 optimize nulls --deduplicate-key day
1 optimize nowhere --by id :: nowhere
2 plan optimize lake --by nope :: nope
1 plan optimize nowhere --by id :: nowhere
2 deduplicate lake --key ''
2 deduplicate lake --key nope :: nope
2 deduplicate lake --key id --order-by nope :: nope
2 deduplicate lake --key id --max-files 0
1 deduplicate nested --key list
1 deduplicate nulls --key day
1 deduplicate nowhere --key id :: nowhere
2 plan deduplicate lake --key nope :: nope
1 plan deduplicate nowhere --key id :: nowhere
2 history lake --retain soon :: --retain soon is not a duration
2 history lake --retain 0d :: is not between
2 history lake --keep 7d :: use --retain
1 history nowhere :: no parquet dataset at nowhere
2 changes lake
2 changes lake --since soon
2 changes lake --since 9 :: --since 9 is later than version 1
2 changes lake --since -1
2 changes lake --since 0 --key x :: Version 0 of lake is not kept
2 changes kept --since 1 :: is not kept
2 changes kept --since 2 --until 9 :: kept has no version 9
2 changes kept --since 2 --key nope :: nope
1 changes nowhere --since 1 :: nowhere
2 restore lake :: --version 12 or --as-of 2026-11-02T10:00Z
2 restore lake --version 9 :: lake has no version 9
2 restore lake --version 1 :: Version 1 of lake is not kept
2 restore lake --version 9 --as-of 2026-01-01
2 restore lake --as-of yesterday :: is not a time
2 restore kept --as-of 1999-01-01
1 restore nowhere --version 1 :: nowhere
2 plan restore kept --version 9
1 plan restore nowhere --version 1 :: nowhere
2 vacuum lake --older-than 3x :: is not a duration
2 vacuum lake --retain 7d :: use --older-than
1 vacuum nowhere :: nowhere
1 plan vacuum nowhere :: nowhere
2 export hudi lake :: hudi
2 export delta lake --remove --keep-exported :: exclude each other
1 export delta nowhere :: no parquet dataset at nowhere
2 register lake --catalog glue --table nope
1 register nowhere --catalog glue --table db.name --catalog-option region_name=us-east-1 :: nowhere
2 recover lake --storage-option nope
1 recover nowhere :: nowhere
1 recover s3://
2 inspect lake --key nope :: nope
2 inspect parted --key n :: 'n' is a partition column
2 inspect lake --fail-under 101 :: --fail-under must be 100 or less
2 inspect lake --html no/page.html :: there is no folder no
2 inspect lake --html . :: is a folder
1 inspect small --fail-under 100 --key id
1 inspect damaged
1 inspect nowhere :: nowhere
2 apply in.csv
2 apply bad-plan.json
2 apply bad-delete.json
2 run
2 run in.csv
2 run nowhere.toml
2 run p.toml --var x=1
2 run p.toml --dry-run --select nope
2 doctor lake --engine nope
"""
"""The code of a call, its words, and what it says."""
WORDS = ("", "-1", "nope = ", "[x]", "nope")
NUMBERS = ("-1", "0", "999999", "x", "1.5", "inf", "nan")
LEFT_OUT = ("--start-spark", "--debug", "--verbose", "--engine", "--config", "--help", "--noop-exit-code")
BASE = {
    "write": "in.csv lake",
    "merge": "in.csv lake --key id",
    "apply-changes": "in.csv lake --key id --sequence-by n",
    "delete": "lake --where id=1",
    "update": "lake --set n=1 --where id=1",
    "compact": "lake",
    "alter": "lake --timestamps micros",
    "optimize": "lake --by id",
    "deduplicate": "lake --key id",
    "history": "lake",
    "changes": "lake --since 1",
    "restore": "lake --version 1",
    "vacuum": "lake",
    "export": "delta lake",
    "register": "lake --catalog glue --table a.b",
    "recover": "lake",
    "adopt": "lake",
    "forget": "lake",
    "inspect": "lake",
    "apply": "plan.json",
    "run": "p.toml --dry-run",
    "doctor": "lake --engine pyarrow",
}
"""A call of each command that is right but for what a test adds to it."""
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
    base = BASE[name.removeprefix("plan ")].split()
    yield from ([], ["lake"])
    for each in COMMANDS[name].params:
        option = each.opts[0]
        if not option.startswith("--") or option in LEFT_OUT:
            continue
        if getattr(each, "is_flag", False):
            yield [*base, option]
            continue
        is_number = each.type_descriptor.annotation in (int, float)
        values = sweep_size().sample(NUMBERS if is_number else WORDS, 2)
        yield from ([*base, option, value] for value in values)
    options = [option for option in sorted(OFFERED[name]) if option.startswith("--")]
    yield from ([*base, f"{option}x"] for option in sweep_size().sample(options, 3))
    yield [*base, "one", "too", "many"]
    yield [*("nowhere" if word == "lake" else word for word in base)]


@pytest.fixture
def lake(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small datasets and sources that go wrong in one way each."""
    for name, value in (("DEFAULT_REGION", "us-east-1"), ("ENDPOINT_URL", "http://127.0.0.1:9"), ("MAX_ATTEMPTS", "1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    texts = {"in": "id,n\n1,10\n2,20\n", "out": "id,n\n1,5\n", "text": "id,n\n1,many\n", "short": "id,n\n1,2\n1\n"}
    texts |= {"odd": "id;n\n1;2\n", "twice": "id,n\n1,2\n1,3\n", "moved": "id,n\n1,2\n", "other": "id,what\n1,2\n"}
    for name, text in (texts | {"empty": ""}).items():
        Path(f"{name}.csv").write_text(text)
    Path("p.toml").write_text('name = "p"\ndatasets.a.path = "x"\nsteps = [{name="a", do="compact", dataset="a"}]\n')
    io, rows = PyarrowDatasetIO(), pa.table({"id": [1, 2], "n": [1, 2]})
    for path in ("in.parquet", "lake", "kept", "taken", "small", "small", "small", "damaged"):
        io.write_dataset(rows, path)
    io.keep_history("kept", "7d")
    io.delete("kept", where="id = 1")
    (Path("damaged") / "bad.parquet").write_text("PAR1")
    io.write_dataset(rows, "parted", partition_by=["n"])
    io.write_dataset(pa.table({"id": [1, 2], "day": ["m", None]}), "nulls")
    io.write_dataset(pa.table({"id": [1], "n": [1], "list": [[1]]}), "nested")
    pq.write_table(pa.table({"id": [1], "n": [1000]}), "big.parquet")
    pq.write_table(pa.table({"id": [1], "n": pa.nulls(1, pa.int64())}), "null.parquet")
    for words, old, new, file in (
        ("merge in.csv lake --key id", '"null_keys": "error"', '"null_keys": "what"', "bad-plan.json"),
        ("delete lake --where id=1", '"where": "id=1"', '"where": "idd=1"', "bad-delete.json"),
    ):
        assert main(["plan", *words.split(), "-o", "plan.json", "-q"]) == 0
        text = Path("plan.json").read_text()
        Path(file).write_text(text.replace(old, new))
        assert old in text


def check_words(name: str, words: list[str], said: str) -> None:
    """Check what a command has said on standard error."""
    assert len(said.splitlines()) == 2, (words, said)
    problem, remedy = said.splitlines()
    assert problem.startswith("error: "), said
    assert remedy.startswith("to do: "), said
    for other, rest in re.findall(r"`fsspeckit (plan [a-z-]+|[a-z-]+)([^`]*)`", said):
        assert {*OPTION.findall(rest)} <= OFFERED.get(other, {"--help"}), said
    if name == "apply":
        said = re.sub(r"options\.\w+", "", said)  # a key of the plan
    if name == "inspect":
        said = re.sub("fsspeckit [a-z]+ .*", "", said)  # what it recommends
    text = QUOTED.sub("", re.sub(r"`[^`]*`|\S*/\S+", "", said))  # without paths, which may have partitions
    known = OFFERED[name] | {word for word in words if word.startswith("--")}
    assert {*OPTION.findall(text)} <= known, (words, said)
    assert PYTHON.search(text) is None, (words, said)
    assert CALL.search(text) is None, (words, said)


@pytest.mark.sweep
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_wrong_call_says_can_be_typed(name: str, lake: None, fsspeckit: Fsspeckit) -> None:
    """Calls of the table, and of every option with wrong values; the same in JSON."""
    listed, failed = [], 0
    for line in CALLS.strip().splitlines():
        call, _, said = line.partition(" :: ")
        code, *words = shlex.split(call)
        if (verb := " ".join(words[: 1 + (words[0] == "plan")])) == name or (verb == "-v" and name == "compact"):
            found, _, err = fsspeckit(*words)
            assert (found, said in err) == (int(code), True), (line, found, err)
            check_words(name, words, err)
            assert not Path("nowhere").exists(), line
            listed.append((int(code), words))
    is_tried = not name.startswith("plan ") or name == "plan merge"
    for words in wrong_calls(name) if is_tried else ():  # `plan` has the options of the verbs
        code, _, err = fsspeckit(*name.split(), *words)
        assert code in (0, 1, 2, 3), words
        if code and name != "doctor" and words:
            check_words(name, words, err)
            failed += 1
    assert failed >= (5 if is_tried and name != "doctor" else 0), failed
    for code, words in listed[:1]:
        assert json.loads(fsspeckit(*words, "--json")[1])["exit_code"] == code


def test_changed_data_is_a_conflict_and_nothing_to_do_is_none(lake: None) -> None:
    assert main(["plan", "delete", "lake", "--where", "id=1", "-o", "plan.json", "-q"]) == 0
    assert main(["delete", "lake", "--where", "id=2", "-q"]) == 0
    assert main(["apply", "plan.json", "-q"]) == 3
    assert main(["delete", "lake", "--where", "id=9", "-q"]) == 0
    assert main(["delete", "lake", "--where", "id=9", "-q", "--noop-exit-code", "7"]) == 7


def test_the_example_of_partition_selects_a_folder(fsspeckit: Fsspeckit) -> None:
    for verb, more in (("compact", []), ("optimize", ["--by", "id"]), ("deduplicate", ["--key", "id"])):
        page = " ".join(fsspeckit(verb, "--help")[1].split())
        example = re.search(r"--partition FOLDER .*? such as (\S+);", page)
        assert example is not None, page
        column, _, value = example[1].partition("=")
        PyarrowDatasetIO().write_dataset(pa.table({"id": [1], column: [value]}), f"by-{verb}", partition_by=[column])
        assert fsspeckit(verb, f"by-{verb}", "--partition", example[1], "--dry-run", "-q", *more)[0] == 0
        assert "--partition" not in fsspeckit(verb, "nope", *more)[2]


@pytest.mark.parametrize("path", ["parted/n=1", "."])
def test_recover_refuses_what_other_commands_refuse(path: str, lake: None, fsspeckit: Fsspeckit) -> None:
    for more in ([], ["--dry-run"]):
        code, out, _ = fsspeckit("recover", path, "--json", *more)
        assert (code, json.loads(out)["error"]) == (1, "NestedDatasetError")

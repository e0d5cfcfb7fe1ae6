"""`--publish`: every command that commits can choose how a commit becomes visible on local disks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fsspeckit.cli.app import app, main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

COMMITS = {"write", "merge", "apply-changes", "delete", "update", "compact", "optimize", "deduplicate", "alter"}
COMMITS |= {"restore", "apply"}
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def lake(place: Path) -> None:
    Path("in.csv").write_text("id,n\n1,100\n")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), "lake")


def names() -> list[str]:
    return sorted(path.name for path in Path("lake").glob("*.parquet"))


def test_every_command_that_commits_has_the_option(capsys: Said) -> None:
    for each in app.registered_commands:
        main([each.name or "", "--help"])
        assert ("--publish" in capsys.readouterr().out) == (each.name in COMMITS), each.name


def test_the_option_and_the_configuration_decide() -> None:
    before, folder = names(), Path("lake").stat().st_ino
    merge = ["merge", "in.csv", "lake", "--key", "id", "-q"]
    assert main([*merge, "--publish", "replace"]) == 0
    assert (names(), Path("lake").stat().st_ino) == (before, folder)
    Path("in.csv").write_text("id,n\n1,101\n")
    assert main(merge) == 0
    assert names() != before
    before = names()
    Path("fsspeckit.toml").write_text('publish = "replace"\n')
    assert main(["update", "lake", "--set", "n=n+1", "--where", "id=2", "-q"]) == 0
    assert names() == before
    assert main(["update", "lake", "--set", "n=n+1", "--where", "id=2", "-q", "--publish", "exchange"]) == 0
    assert Path("lake").stat().st_ino != folder
    assert PyarrowDatasetIO().read_parquet("lake").sort_by("id")["n"].to_pylist() == [101, 22]


def test_a_saved_plan_and_a_restore_follow_it() -> None:
    PyarrowDatasetIO().keep_history("lake", "7d")
    before = names()
    assert main(["plan", "delete", "lake", "--where", "id=1", "-o", "plan.json", "-q"]) == 0
    assert main(["apply", "plan.json", "--publish", "replace", "-q"]) == 0
    assert names() == before
    assert main(["restore", "lake", "--version", "2", "--publish", "replace", "-q"]) == 0
    assert names() == before
    assert main(["restore", "lake", "--version", "3", "-q"]) == 0
    assert names() != before


def test_an_unknown_way_is_refused(capsys: Said) -> None:
    Path("fsspeckit.toml").write_text('publish = "rename"\n')
    assert main(["compact", "lake"]) == 2
    assert "use one of replace, new_names, exchange" in capsys.readouterr().err

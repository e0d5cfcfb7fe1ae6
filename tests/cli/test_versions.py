"""The commands `history`, `changes`, `restore` and `vacuum`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

Fsspeckit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fsspeckit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fsspeckit:
    """Run a command beside a dataset; exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2, 3]}), "lake")

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def ids() -> list[int]:
    return sorted(PyarrowDatasetIO().read_parquet("lake")["id"].to_pylist())


def test_keep_list_restore_and_remove_versions(fsspeckit: Fsspeckit) -> None:
    assert fsspeckit("history", "lake", "--retain", "7d") == (0, "versions from 2 on are kept for 7d\n", "")
    fsspeckit("delete", "lake", "--where", "id = 1")
    code, out, err = fsspeckit("history", "lake", "--json", "--limit", "2")
    assert (code, err) == (0, "")
    versions = json.loads(out)["versions"]
    assert [(each["version"], each["operation"], each["deleted"], each["readable"]) for each in versions] == [
        (3, "delete", 1, True),
        (2, "keep_history", None, True),
    ]
    assert fsspeckit("history", "lake", "--limit", "1")[1].splitlines()[-1] == "... 2 older versions"
    code, out, err = fsspeckit("changes", "lake", "--since", "2", "--key", "id")
    assert (code, err, out.splitlines()[0]) == (0, "", "1 delete")
    assert out.splitlines()[-1].split()[:3] == ["1", "delete", "3"]
    assert json.loads(fsspeckit("changes", "lake", "--since", "2", "--json")[1])["counts"] == {"delete": 1}
    assert fsspeckit("changes", "lake", "--since", "2", "--limit", "0", "--output", "feed.parquet")[0] == 0
    assert pq.read_table("feed.parquet")["_version"].to_pylist() == [3]
    assert fsspeckit("changes", "lake", "--since", "3", "--noop-exit-code", "7")[:2] == (7, "no changes\n")
    code, out, err = fsspeckit("restore", "lake", "--version", "2", "--dry-run")
    assert (code, err, ids()) == (0, "", [2, 3])
    assert "restored  1 file," in out
    assert fsspeckit("restore", "lake", "--version", "2", "--retries", "1")[0] == 0
    assert ids() == [1, 2, 3]
    assert fsspeckit("restore", "lake", "--as-of", "2100-01-01", "--noop-exit-code", "7")[0] == 7
    assert fsspeckit("vacuum", "lake", "--noop-exit-code", "7")[0] == 7
    code, out, err = fsspeckit("vacuum", "lake", "--older-than", "0s", "--yes", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) | {"removed_bytes": 0} == {
        "removed_files": 2,
        "removed_bytes": 0,
        "oldest_version": 4,
        "dry_run": False,
    }
    assert fsspeckit("history", "lake", "--retain", "off")[1] == "no more versions are kept\n"


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("history", "lake", "--retain", "soon"), 2, "--retain soon is not a duration"),
        (("history", "lake", "--retain", "0d"), 2, "is not between"),
        (("history", "missing"), 1, "no parquet dataset at missing"),
        (("changes", "lake", "--since", "9"), 2, "--since 9 is later than version 1"),
        (("changes", "lake", "--since", "1", "--until", "5"), 2, "lake has no version 5"),
        (("changes", "lake", "--since", "0", "--key", "x"), 2, "Version 0 of lake is not kept"),
        (("restore", "lake"), 2, "--version 12 or --as-of 2026-11-02T10:00Z"),
        (("restore", "lake", "--version", "9"), 2, "lake has no version 9"),
        (("restore", "lake", "--version", "1"), 2, "Version 1 of lake is not kept"),
        (("restore", "lake", "--as-of", "yesterday"), 2, "is not a time"),
        (("vacuum", "lake", "--older-than", "3x"), 2, "is not a duration"),
    ],
)
def test_error_says_what_to_do(fsspeckit: Fsspeckit, words: tuple[str, ...], code: int, problem: str) -> None:
    found, out, err = fsspeckit(*words)
    assert (found, out) == (code, "")
    assert problem in err
    assert len(err.splitlines()) == 2


def test_the_current_version_is_not_called_unreadable(fsspeckit: Fsspeckit) -> None:
    fsspeckit("delete", "lake", "--where", "id = 1")
    lines = fsspeckit("history", "lake")[1].splitlines()
    assert [line.split()[-1] for line in lines] == ["readable", "current", "no"]
    fsspeckit("history", "lake", "--retain", "7d")
    assert fsspeckit("history", "lake")[1].splitlines()[1].split()[-1] == "yes"


def test_an_option_of_another_name_is_answered(fsspeckit: Fsspeckit) -> None:
    for words, meant in (
        (("history", "lake", "--keep", "7d"), "use --retain"),
        (("vacuum", "lake", "--retain", "7d"), "use --older-than"),
        (("optimize", "lake", "--sort-by", "id"), "use --by"),
        (("compact", "lake", "--dry-runn"), "use --dry-run"),
        (("compact", "lake", "--zzz"), "see `fsspeckit compact --help`"),
    ):
        code, _, err = fsspeckit(*words)
        assert (code, err.splitlines()[1].startswith(f"to do: {meant}")) == (2, True), err
    code, _, err = fsspeckit("inspect", "lake", "--fail-under", "101")
    assert (code, err.splitlines()[0]) == (2, "error: --fail-under must be 100 or less")


def test_duplicates_that_were_removed_are_deleted_rows(fsspeckit: Fsspeckit) -> None:
    for words in (("deduplicate", "--key", "id"), ("optimize", "--by", "id", "--deduplicate-key", "id")):
        PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2]}), "lake")
        assert fsspeckit(words[0], "lake", *words[1:])[0] == 0
        versions = json.loads(fsspeckit("history", "lake", "--json")[1])["versions"]
        counted = next(each for each in versions if each["deleted"] is not None)
        assert (counted["inserted"], counted["deleted"]) == (None, 2), versions

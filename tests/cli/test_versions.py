"""The commands `history`, `changes`, `restore` and `vacuum`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.conftest import Fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


@pytest.fixture(autouse=True)
def lake(place: Path) -> None:
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2, 3]}), "lake")


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


def test_the_current_version_is_not_called_unreadable(fsspeckit: Fsspeckit) -> None:
    fsspeckit("delete", "lake", "--where", "id = 1")
    lines = fsspeckit("history", "lake")[1].splitlines()
    assert [line.split()[-1] for line in lines] == ["readable", "current", "no"]
    fsspeckit("history", "lake", "--retain", "7d")
    assert fsspeckit("history", "lake")[1].splitlines()[1].split()[-1] == "yes"


def test_duplicates_that_were_removed_are_deleted_rows(fsspeckit: Fsspeckit) -> None:
    for words in (("deduplicate", "--key", "id"), ("optimize", "--by", "id", "--deduplicate-key", "id")):
        PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2]}), "lake")
        assert fsspeckit(words[0], "lake", *words[1:])[0] == 0
        versions = json.loads(fsspeckit("history", "lake", "--json")[1])["versions"]
        counted = next(each for each in versions if each["deleted"] is not None)
        assert (counted["inserted"], counted["deleted"]) == (None, 2), versions

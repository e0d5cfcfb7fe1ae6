"""The command `adopt`, and commands that take the key that it records."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from fsspeckit.cli.app import main
from kit import contents, put, table_of


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    put(tmp_path / "lake" / "zip=01067" / "a.parquet", pa.table({"id": [1, 2], "v": ["a", "a"]}))
    (tmp_path / "new.csv").write_text("id,v,zip\n2,B,01067\n3,C,01067\n")
    return tmp_path / "lake"


def test_adopt_says_records_and_later_commands_need_no_key(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(lake.parent)
    assert main(["adopt", "lake"]) == 0
    shown = capsys.readouterr().out
    assert "fsspeckit adopt lake --key id --yes" in shown
    assert "zip int32 (would be recorded)" in shown
    assert main(["merge", "new.csv", "lake"]) == 2
    assert "--key" in capsys.readouterr().err
    assert contents(lake.parent) == before
    assert main(["adopt", "lake", "--partition-types", "zip string", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["key_columns"], told["partition_types"], told["dry_run"]) == (["id"], {"zip": "string"}, False)
    assert contents(lake) == {name.removeprefix("lake/"): c for name, c in before.items() if name.startswith("lake/")}
    assert main(["merge", "new.csv", "lake", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["updated"] == 1
    assert [file.parent.name for file in lake.rglob("*.parquet")] == ["zip=01067"] * 2
    assert main(["deduplicate", "lake", "--dry-run"]) == 0
    assert main(["plan", "merge", "new.csv", "lake", "-o", "plan.json"]) == 0
    assert main(["apply", "plan.json"]) == 0
    assert main(["restore", "lake", "--version", "1"]) == 0
    (file,) = lake.rglob("*.parquet")
    assert table_of(file)["v"].to_pylist() == ["a", "a"]


def test_a_wrong_key_is_refused(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adopt", "lake", "--key", "v", "--yes"]) == 1
    assert "deduplicate" in capsys.readouterr().err
    assert not list(lake.parent.glob(".lake.fsspeckit"))

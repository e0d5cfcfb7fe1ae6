"""`plan` and `apply` of operations without row positions (write, maintenance, restore), and `--diff` of all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

PLANS = {
    "write": "in.csv lake --mode overwrite --replace-where id<>2",
    "compact": "lake --target-mb 4",
    "optimize": "lake --by n --target-rows 100",
    "deduplicate": "lake --key id --order-by n",
    "restore": "lake --version 3",
    "vacuum": "lake --older-than 0d",
}
AFTER = {
    "write": [(1, 100), (2, 20), (2, 21), (9, 90)],
    "compact": [(1, 10), (2, 20), (2, 21)],
    "optimize": [(1, 10), (2, 20), (2, 21)],
    "deduplicate": [(1, 10), (2, 21)],
    "restore": [(1, 10), (2, 20), (3, 30)],
    "vacuum": [(1, 10), (2, 20), (2, 21)],
}
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 1 and 2, and another row 2 in a second file; version 3 has a row 3 instead."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FSSPECKIT_ENGINE", "pyarrow")
    Path("in.csv").write_text("id,n\n1,100\n9,90\n")
    io = PyarrowDatasetIO()
    io.write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), "lake")
    io.keep_history("lake", "7d")
    io.write_dataset(pa.table({"id": [3], "n": [30]}), "lake")
    io.delete("lake", where="id = 3")
    io.write_dataset(pa.table({"id": [2], "n": [21]}), "lake")


def rows() -> list[tuple[int, int]]:
    table = PyarrowDatasetIO().read_parquet("lake")
    return sorted(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path("lake").glob("*.parquet")}


def plan(operation: str, *more: str) -> int:
    return main(["plan", operation, *PLANS[operation].split(), "-o", "plan.json", *more])


@pytest.mark.parametrize("operation", PLANS)
def test_a_plan_is_applied_once(operation: str, capsys: Said) -> None:
    before = files()
    assert plan(operation) == 0
    assert "written to plan.json" in capsys.readouterr().out
    assert files() == before
    assert main(["apply", "plan.json", "--yes"]) == 0
    assert rows() == AFTER[operation]
    assert main(["apply", "plan.json", "--yes"]) == 3
    assert rows() == AFTER[operation]


@pytest.mark.parametrize("operation", PLANS)
@pytest.mark.parametrize("change", ["dataset", "options", "facts", "state"])
def test_apply_refuses_what_has_changed(operation: str, change: str, capsys: Said) -> None:
    assert plan(operation, "-q") == 0
    document: dict[str, Any] = json.loads(Path("plan.json").read_text())
    other = {
        "write": {"mode": "append", "replace_where": None},
        "compact": {"target_rows_per_file": 2},
        "optimize": {"curve": "hilbert"},
        "deduplicate": {"dedup_order_by": ["-n"]},
        "restore": {"version": 4},
        "vacuum": {"older_than": "1d"},
    }
    if (operation, change) == ("vacuum", "options"):
        pytest.skip("the plan has the oldest version that stays, whatever the time is")
    if change == "dataset":
        assert main(["write", "in.csv", "lake", "-q"]) == 0
    elif change == "options":
        document["options"] |= other[operation]
    elif change == "facts":
        document["plan"]["facts"]["dry_run"] = False
    else:
        document["plan"]["state"] = "0" * 64
    Path("plan.json").write_text(json.dumps(document))
    before = files()
    capsys.readouterr()
    code = main(["apply", "plan.json"])
    assert (code, "make a new plan" in capsys.readouterr().err) == (3, True)
    assert files() == before


def test_apply_refuses_a_changed_source() -> None:
    assert plan("write", "-q") == 0
    Path("in.csv").write_text("id,n\n1,101\n9,90\n")
    before = files()
    assert main(["apply", "plan.json"]) == 3
    assert files() == before


def test_another_writer_during_apply_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dataset changes after both plans were compared, and before the commit."""
    from fsspeckit.cli.commands import apply

    compared = apply.is_noop

    def then_write(result: Any) -> bool:
        PyarrowDatasetIO().write_dataset(pa.table({"id": [7], "n": [70]}), "lake")
        return compared(result)

    assert plan("compact", "-q") == 0
    monkeypatch.setattr(apply, "is_noop", then_write)
    assert main(["apply", "plan.json"]) == 3
    assert rows() == [(1, 10), (2, 20), (2, 21), (7, 70)]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda document: document["plan"].pop("state"),
        lambda document: document["plan"].update(facts=[]),
        lambda document: document["plan"].update(more=1),
        lambda document: document["options"].update(where="true"),
        lambda document: document["options"].update(target_mb_per_file="much"),
        lambda document: document.update(counts={}),
        lambda document: document.update(command="history"),
        lambda document: document.update(made_at="now"),
    ],
)
def test_a_damaged_plan_is_refused(break_it: Any, capsys: Said) -> None:
    assert plan("compact", "-q") == 0
    document = json.loads(Path("plan.json").read_text())
    break_it(document)
    Path("plan.json").write_text(json.dumps(document))
    assert main(["apply", "plan.json"]) == 2
    assert "plan.json" in capsys.readouterr().err


def test_a_plan_that_replaces_all_asks() -> None:
    assert main(["plan", "write", "in.csv", "lake", "--mode", "overwrite", "-o", "plan.json", "-q"]) == 0
    before = files()
    assert main(["apply", "plan.json"]) == 2
    assert files() == before
    assert main(["apply", "plan.json", "--yes"]) == 0
    assert rows() == [(1, 100), (9, 90)]
    Path("none.csv").write_text("id,n\n")
    assert (
        main(
            [
                "plan",
                "write",
                "none.csv",
                "lake",
                "--mode",
                "overwrite",
                "--replace-where",
                "id>0",
                "-o",
                "plan.json",
                "-q",
            ]
        )
        == 0
    )
    assert main(["apply", "plan.json"]) == 2


def test_a_plan_without_effect_commits_nothing() -> None:
    assert main(["compact", "lake", "-q"]) == 0
    assert plan("compact", "-q", "--noop-exit-code", "7") == 7
    newest = PyarrowDatasetIO().history("lake")[0].version
    assert main(["apply", "plan.json", "--noop-exit-code", "7"]) == 7
    assert PyarrowDatasetIO().history("lake")[0].version == newest


def test_a_plan_without_effect_is_not_applied_as_a_dry_run(capsys: Said) -> None:
    assert main(["optimize", "lake", "--by", "n", "-q"]) == 0
    for words in ("compact lake", "restore lake --version 6", "optimize lake --by n", "vacuum lake --older-than 9d"):
        assert main(["plan", *words.split(), "-o", "plan.json", "-q"]) == 0
        assert main(["apply", "plan.json"]) == 0
        assert "would" not in capsys.readouterr().out, words
        assert main(["apply", "plan.json", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["dry_run"] is False, words


@pytest.mark.parametrize("operation", [*PLANS, "delete", "merge"])
def test_plans_name_files_relative_to_the_dataset(operation: str, capsys: Said) -> None:
    words = {
        "delete": "lake --where id=1",
        "merge": "in.csv lake --key id --strategy insert --on-duplicate-source last",
    }
    PyarrowDatasetIO().deduplicate_parquet_dataset("lake", key_columns=["id"]) if operation == "merge" else None
    assert main(["plan", operation, *(words | PLANS)[operation].split(), "-o", "plan.json"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if ".parquet" in line]
    assert len(table) >= (0 if operation == "vacuum" else 1)
    assert [line for line in table if "/" in line] == []


def test_apply_can_be_tried_and_shows_the_rows(capsys: Said) -> None:
    for operation, more in (("delete", "lake --where id=1"), ("deduplicate", PLANS["deduplicate"])):
        assert main(["plan", operation, *more.split(), "-o", "plan.json", "-q"]) == 0
        before = files()
        assert main(["apply", "plan.json", "--dry-run"]) == 0
        assert main(["apply", "plan.json", "--dry-run", "--diff"]) == 0
        tried = capsys.readouterr().out
        assert files() == before
        assert main(["apply", "plan.json", "--diff"]) == 0
        done = capsys.readouterr().out
        expected = "- 1 10" if operation == "delete" else "- 2 20"
        assert all(expected in [" ".join(line.split()) for line in text.splitlines()] for text in (tried, done)), done
        assert files() != before
        assert main(["apply", "plan.json", "--dry-run"]) == 3
        capsys.readouterr()


def test_a_plan_of_all_versions_asks(capsys: Said) -> None:
    assert plan("vacuum", "-q") == 0
    versions = len([each for each in PyarrowDatasetIO().history("lake") if each.readable])
    assert main(["apply", "plan.json"]) == 2
    assert "all kept versions" in capsys.readouterr().err
    assert main(["vacuum", "lake", "--older-than", "0d"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert len([each for each in PyarrowDatasetIO().history("lake") if each.readable]) == versions
    assert main(["vacuum", "lake", "--older-than", "0d", "--dry-run"]) == 0
    assert main(["vacuum", "lake"]) == 0
    assert main(["vacuum", "lake", "--older-than", "0d", "--yes"]) == 0
    assert len([each for each in PyarrowDatasetIO().history("lake") if each.readable]) == 1


def test_a_plan_of_a_vacuum_removes_no_later_version() -> None:
    assert plan("vacuum", "-q") == 0
    document = json.loads(Path("plan.json").read_text())
    assert document["plan"]["facts"]["oldest_version"] == 5
    document["plan"]["facts"]["oldest_version"] = None
    Path("bad.json").write_text(json.dumps(document))
    assert main(["apply", "bad.json", "--yes"]) == 3
    assert main(["compact", "lake", "-q"]) == 0
    assert main(["apply", "plan.json", "--yes"]) == 3


SAMPLES = {
    "merge in.csv lake --key id --strategy upsert --on-duplicate-source last": ["- 1 10", "+ 1 100", "+ 9 90"],
    "apply-changes in.csv lake --key id --sequence-by n": ["- 1 10", "+ 1 100", "+ 9 90"],
    "update lake --set n=n+1 --where id=2": ["- 2 20", "+ 2 21", "- 2 21", "+ 2 22"],
    "delete lake --where id=1": ["- 1 10"],
    "write in.csv lake": ["+ 1 100", "+ 9 90"],
    "write in.csv lake --mode overwrite": ["- 1 10", "- 2 20", "- 2 21", "+ 1 100", "+ 9 90"],
    "deduplicate lake --key id --order-by n": ["- 2 20"],
    "compact lake": [],
    "optimize lake --by n": [],
    "restore lake --version 3": ["- 2 21", "+ 3 30"],
}


@pytest.mark.parametrize("words", SAMPLES)
def test_sample_rows_before_and_after(words: str, capsys: Said) -> None:
    if words.startswith(("merge", "apply-changes")):
        PyarrowDatasetIO().delete("lake", where="n = 21")
    before, page = files(), Path("review.html")
    capsys.readouterr()
    assert main(["plan", *words.split(), "--diff", "--diff-html", str(page)]) == 0
    said = capsys.readouterr().out
    shown = [" ".join(line.split()) for line in said.splitlines() if re.match("[-+] ", line)]
    assert shown == SAMPLES[words]
    assert ("no row changes" in said) == (not shown)
    assert files() == before
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page.read_text("utf-8"))
    assert all(value in cells for line in shown for value in line.split()[1:])
    assert main(["plan", *words.split(), "--diff", "--json"]) == 0
    sample = json.loads(capsys.readouterr().out)["sample"]
    assert 2 * len(sample["updated"]) + len(sample["inserted"]) + len(sample["deleted"]) == len(shown)
    assert not list(Path().rglob("*.staged")), "staged files are removed"


def test_a_page_of_a_diff_is_escaped_and_short() -> None:
    names = [f"<b>{number}</b>" for number in range(30)]
    PyarrowDatasetIO().write_dataset(pa.table({"<i>": names}), "odd")
    assert main(["plan", "delete", "odd", "--where", "true", "--diff-html", "page.html", "-q"]) == 0
    page = Path("page.html").read_text("utf-8")
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("&lt;b&gt;") == 10
    assert main(["plan", "delete", "odd", "--where", "true", "--diff-html", "no/page.html"]) == 2


def test_a_diff_of_a_new_dataset(capsys: Said) -> None:
    assert main(["plan", "merge", "in.csv", "new", "--key", "id", "--diff"]) == 0
    assert "+  1   100" in capsys.readouterr().out
    assert not Path("new").exists()


def test_a_diff_shows_where_long_values_differ_and_what_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "t": ["abcdefghij" * 8, "short"]}), "long")
    words = ["update", "long", "--set", "t=t || '!'", "--where", "id = 1"]
    assert main(["plan", *words, "--diff", "--diff-html", "page.html", "--engine", "pyarrow"]) == 0
    shown = capsys.readouterr().out
    assert "...abcdefghij\n" in shown
    assert "...abcdefghij!\n" in shown
    page = Path("page.html").read_text("utf-8")
    assert "Plan: update long set t = t || &#x27;!&#x27; where id = 1" in page
    assert "Updated rows: a sample of 1" in page


def test_a_diff_of_texts_and_bytes_that_are_views(capsys: Said) -> None:
    def frame(ids: list[int], text: str) -> pl.DataFrame:
        columns = {"id": ids, "t": [text] * len(ids), "b": [b"b"] * len(ids), "l": [[text]] * len(ids)}
        return pl.DataFrame(columns | {"s": [{"a": text}] * len(ids)})

    PyarrowDatasetIO().write_dataset(frame([1, 2, 3], "old"), "views")
    frame([4, 2], "new").write_parquet("in.parquet")
    words = ["merge", "in.parquet", "views", "--key", "id", "--key", "b"]
    for more in (["plan", *words, "-o", "plan.json"], ["apply", "plan.json"]):
        capsys.readouterr()
        assert main([*more, "--diff"]) == 0
        said = capsys.readouterr().out
        assert re.search(r"\+ +4 +new", said), said
    assert main(["plan", "delete", "views", "--where", "t = 'old'", "--diff"]) == 0
    assert re.search(r"- +1 +old", capsys.readouterr().out)

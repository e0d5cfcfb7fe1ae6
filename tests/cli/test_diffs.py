"""`--diff` of plans: sample rows before and after, on the terminal, as a page and in JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from cli.test_plans import files, lake  # noqa: F401 - a fixture for all
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

Said = pytest.CaptureFixture[str]


def test_apply_can_be_tried_and_shows_the_rows(capsys: Said) -> None:
    for operation, more in (("delete", "lake --where id=1"), ("deduplicate", "lake --key id --order-by n")):
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

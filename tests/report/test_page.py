"""The HTML report: what it says, that it needs nothing but itself, and how a browser shows it, wide, narrow, dark."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from fsspeckit.cli.app import main
from fsspeckit.common.errors import DocumentError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.report.document import comparison, read_document
from fsspeckit.report.page import render_page
from fsspeckit.report.text import render_comparison
from mutations import changed

PROBE = """
<iframe id="page" style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<pre id="answer"></pre>
<script>
document.getElementById("page").onload = function () {{
  const doc = this.contentDocument, root = doc.documentElement, view = this.contentWindow;
  const charts = [...doc.querySelectorAll("svg[role=img]")];
  const names = charts.map(c => doc.getElementById(c.getAttribute("aria-labelledby")).textContent);
  const heights = c => [...c.querySelectorAll("text")].map(t => t.getBoundingClientRect().height);
  const fonts = charts.map(c => Math.min(...heights(c)));
  const fill = charts.map(c => view.getComputedStyle(c.querySelector("text")).fill);
  document.getElementById("answer").textContent = JSON.stringify({{
    wide: root.scrollWidth, room: root.clientWidth, names: names, font: Math.min(...fonts), fill: fill[0],
    ids: [...doc.querySelectorAll("[id]")].map(e => e.id), page: view.getComputedStyle(doc.body).backgroundColor,
    loaded: view.performance.getEntriesByType("resource").length,
    outside: [...doc.querySelectorAll("body *")].filter(e => e.tagName != "svg" && !e.closest("svg, .scroll, pre")
      && e.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName),
  }});
}};
</script>
"""


def lay(path: str) -> None:
    """Files that overlap, in partitions of several sizes, under names that a page must quote."""
    for number in range(6):
        ids = [number, number + 50, 100 + number]
        names = [f"<b>{value}</b>" for value in ids]
        rows = {"id": ids, "na<me": names, "day": ["mon", "mon", "tue & wed"]}
        PyarrowDatasetIO().write_dataset(pa.table(rows), path, partition_by="day")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """A page with before and after."""
    monkeypatch.chdir(tmp_path)
    lay("lake/orders")
    assert main(["inspect", "lake/orders", "--json", "--key", "id"]) == 0
    Path("before.json").write_text(capsys.readouterr().out)
    PyarrowDatasetIO().optimize_parquet_dataset("lake/orders", ["id"], target_rows_per_file=4)
    words = ["inspect", "lake/orders", "--key", "id", "--html", "report.html", "--compare", "before.json"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "written to report.html" in said
    assert re.search(r"files +12 +5\n", said)
    return Path("report.html").read_text("utf-8")


class Outline(HTMLParser):
    """Tags that must be closed, and every address in the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name.split(":")[-1] in ("href", "src", "srcset")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.remove(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_but_itself(report: str) -> None:
    outline = Outline()
    outline.feed(report)
    assert outline.open == []
    assert all(address.startswith("#") for address in outline.addresses)
    assert "<script" not in report
    assert "<b>" not in report
    assert set(re.findall(r"https?://[^\s\"'<]+", report)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    for text in ("12 before", "depth of id", "score: good", "100 on a scale from 0 to 100", ">day=mon<"):
        assert text in report
    assert "partitioned by day; files by codec: snappy (5); a row group has 3 rows" in report
    assert report.count(">105</text>") == 2  # the end of both charts of ranges
    assert "tue &amp; wed" in report or "tue%20" in report


def test_a_dataset_in_which_all_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PyarrowDatasetIO().write_dataset(pa.table({"id": pa.array([None], pa.int64()), "v": [[1]]}), "lake")
    assert main(["inspect", "lake", "--html", "report.html", "-q"]) == 0
    assert "Nothing: file sizes, overlap and row groups are good." in Path("report.html").read_text("utf-8")


ODD: dict[str, dict[str, dict[str, Any]]] = {
    "no rows": {"a.parquet": {"id": pa.array([], pa.int64())}},
    "nested only": {"a.parquet": {"s": [{"a": 1}], "l": [[1]]}},
    "no bounds": {
        f"{name}.parquet": {"n": pa.nulls(2), "f": [float("nan"), float("inf")], "b": [b"\xff", None]} for name in "ab"
    },
    "odd names": {
        "p=a%2Fb/x=__HIVE_DEFAULT_PARTITION__/a.parquet": {'we ird`"<>&$x$': [1], "\u00fc": ["\0"]},
        "p=c d/x=1/a.parquet": {'we ird`"<>&$x$': [2], "\u00fc": ["z" * 500]},
    },
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_datasets_have_a_page_and_compare_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, columns in ODD[kind].items():
        Path("lake", name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), Path("lake", name))
    lay("other")
    for path in ("lake", "other"):
        assert main(["inspect", path, "--json"]) == 0
        Path(f"{path}.json").write_text(capsys.readouterr().out)
    for path, before in (("lake", "other"), ("other", "lake"), ("lake", "lake")):
        assert main(["inspect", path, "--html", "page.html", "--compare", f"{before}.json"]) == 0
        outline = Outline()
        outline.feed(Path("page.html").read_text("utf-8"))
        assert outline.open == []


def test_ranges_that_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name, ids in (("aa", [0, 5]), ("ab", [5, 10])):
        PyarrowDatasetIO().write_dataset(pa.table({"id": ids, "name": [f"x{name}", f"x{name}z"]}), "lake")
    main(["inspect", "lake", "--json", "--key", "id", "--key", "name"])
    found = json.loads(capsys.readouterr().out)["key_ranges"]
    assert [each["column"] for each in found] == ["id", "name"]
    assert found[0]["ranges"] == [[0.0, 0.5], [0.5, 1.0]]
    assert [(each["least"], each["greatest"]) for each in found] == [("0", "10"), ("xaa", "xabz")]
    (first, second) = found[1]["ranges"]
    assert first[0] == 0.0
    assert 0 < first[1] < second[0] < second[1] == 1.0


COMPARED = ("score", "rows", "files", "bytes", "row_groups", "size_histogram", "partitions", "columns", "key_ranges")


@pytest.fixture
def lake_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """What `inspect --json` says of a small dataset."""
    monkeypatch.chdir(tmp_path)
    lay("lake")
    assert main(["inspect", "lake", "--key", "id", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_changed_document_compares_or_is_an_error_of_ours(lake_document: dict[str, Any]) -> None:
    @given(text=changed(lake_document, COMPARED))
    def check(text: bytes) -> None:
        Path("before.json").write_bytes(text)
        try:
            before = read_document(Path("before.json"))
        except DocumentError:
            return
        render_comparison(comparison(before, lake_document))
        render_page(lake_document, before).encode()

    check()


def test_a_document_that_somebody_changed(lake_document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    ranges = [{"least": "a", "greatest": "b", "ranges": [[2, 1]]}]
    for key, value, said in (
        ("score", "high", "score: 'high' is not a whole number of 0 or more"),
        ("rows", -1, "rows: -1 is not a whole number of 0 or more"),
        ("bytes", 10**30, "bytes: a number of more than 64 bits is not a whole number"),
        ("columns", {}, "columns: an object is not a list"),
        ("columns", [{"name": "id", "overlap": 5}], "columns[0].overlap: 5 is not an object"),
        ("size_histogram", {"large": 1}, "size_histogram.large: 1 is the number of files of an unknown size"),
        ("partitions", [None], "partitions[0]: None is not an object"),
        ("key_ranges", ranges, "key_ranges[0].ranges[0]: a list is not two numbers"),
    ):
        Path("before.json").write_text(json.dumps(lake_document | {key: value}))
        assert main(["inspect", "lake", "--compare", "before.json"]) == 2
        problem, remedy = capsys.readouterr().err.splitlines()
        assert f"before.json: {said}" in problem
        assert remedy == "to do: write it with `fsspeckit inspect PATH --json`"


@pytest.fixture
def browser() -> str:
    """The program of a browser."""
    names = [os.environ.get("CHROMIUM", "chromium"), "chromium-browser", "google-chrome"]
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Chromium: install it, or point CHROMIUM to one")
    return program


def look(program: str, page: str, folder: Path, width: int, *flags: str) -> dict[str, Any]:
    """What a browser makes of a page that is so many pixels wide."""
    probe = folder / f"probe-{width}.html"
    probe.write_text(PROBE.format(width=width, page=escape(page)), "utf-8")
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=5000"]
    words += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", *flags, "--dump-dom", probe.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r'<pre id="answer">(.+?)</pre>', done.stdout)
    assert found is not None, done.stderr[-2000:]
    return dict(json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")))


def test_a_browser_shows_it_on_a_desk_and_on_a_phone_in_light_and_dark(
    browser: str, report: str, tmp_path: Path
) -> None:
    desk = look(browser, report, tmp_path, 1280)
    phone = look(browser, report, tmp_path, 360, "--blink-settings=preferredColorScheme=0")
    for seen in (desk, phone):
        assert seen["wide"] <= seen["room"]
        assert seen["outside"] == []
        assert seen["loaded"] == 0
        assert len(seen["ids"]) == len(set(seen["ids"]))
        assert [name.partition(":")[0] for name in seen["names"]] == [
            "Files by size",
            "Ranges of id in 12 files, before",
            "Ranges of id in 5 files, now",
            "Mean overlap depth by column",
            "Partition sizes",
        ]
    assert phone["font"] >= 9
    colors = [
        tuple(map(int, re.findall(r"\d+", seen[part])[:3])) for seen in (desk, phone) for part in ("page", "fill")
    ]
    light_page, light_ink, dark_page, dark_ink = (sum(color) for color in colors)
    assert light_page > 600 > 200 > light_ink
    assert dark_page < 200 < 600 < dark_ink


def test_a_page_recommends_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay("lake")
    assert main(["inspect", "lake", "--key", "id", "--html", "report.html", "-q"]) == 0
    page = Path("report.html").read_text("utf-8")
    assert page.count("Planned effect: ") == 1
    assert re.search(r"<code>(.*)</code>", page)[1] == "fsspeckit optimize lake --by id"  # type: ignore[index]
    assert re.search('<dd class="(fair|bad)">', page)

"""Photograph the HTML report: `python scripts/report_pictures.py` writes docs/report-before.png and report-after.png.

A dataset of small overlapping files is inspected, changed by the command that its report recommends, and inspected
again. Chromium shows the pages; it is found, or installed, by scripts/system.sh.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fsspeckit.cli.app import main as fsspeckit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LAKE = "lake/orders"
DAYS, FILES, ROWS = 6, 20, 25_000
WIDTH, HEIGHTS = 1180, {"before": 1230, "after": 1530}  # pixels of the pages
COLOURS = 96


def lay() -> None:
    """Write the files that a job every hour leaves: small, and each with ids of the whole range."""
    random = np.random.default_rng(3)
    for day in range(1, DAYS + 1):
        folder = Path(LAKE, f"day=2026-11-{day:02}")
        folder.mkdir(parents=True)
        for number in range(FILES):
            rows = {
                "id": random.integers(0, 4_000_000, ROWS),
                "customer": random.integers(0, 50_000, ROWS),
                "amount": random.integers(100, 100_000, ROWS) / 100,
                "note": [f"order {value:x}" for value in random.integers(0, 2**60, ROWS)],
            }
            pq.write_table(pa.table(rows), folder / f"{number:02}.parquet")


def run(*words: str) -> None:
    """Run a command of fsspeckit."""
    assert fsspeckit([*words, "--quiet"]) == 0, words


def recommended() -> list[str]:
    """Return the words of the command that the report recommends, for files of 4 MB, so that some are left to see."""
    report = Path("before.json")
    with report.open("w", encoding="utf-8") as sink, redirect_stdout(sink):
        assert fsspeckit(["inspect", LAKE, "--key", "id", "--json"]) == 0
    commands = [each["command"] for each in json.loads(report.read_text("utf-8"))["findings"] if each["command"]]
    return [*shlex.split(commands[0])[1:], "--target-mb", "4", "--engine", "pyarrow"]


def photograph(chromium: str, name: str) -> None:
    """Save the top of a page as a picture of few colours."""
    page, shot, picture = Path(f"{name}.html"), Path(f"{name}.png").resolve(), DOCS / f"report-{name}.png"
    words = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    words += [f"--user-data-dir={Path('profile').resolve()}", f"--window-size={WIDTH},{HEIGHTS[name]}"]
    subprocess.run([*words, f"--screenshot={shot}", page.resolve().as_uri()], check=True, capture_output=True)
    with Image.open(shot) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)
    print(f"wrote docs/{picture.name}, {picture.stat().st_size // 1024} kB")


def main() -> None:
    """Write both pictures."""
    found = subprocess.run(
        ["sh", str(ROOT / "scripts" / "system.sh"), "chromium"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        sys.exit("there is no Chromium: install it, or set CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        lay()
        change = recommended()
        run("inspect", LAKE, "--key", "id", "--html", "before.html")
        run(*change)
        run("inspect", LAKE, "--key", "id", "--html", "after.html", "--compare", "before.json")
        for name in HEIGHTS:
            photograph(found.stdout.strip(), name)
        os.chdir(ROOT)


if __name__ == "__main__":
    main()

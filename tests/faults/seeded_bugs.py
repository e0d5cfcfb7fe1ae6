"""Prove that the tests find bugs: break a copy of the source in one place at a time and run the tests of that area.

    python tests/faults/seeded_bugs.py                 all bugs
    python tests/faults/seeded_bugs.py cli duckdb      those whose names contain one of these words

A bug is one replacement of text, which must occur exactly once in its file. It is detected when a test fails. A test
run that does not get that far (nothing collected, usage error) is an error of this program. The exit code is 1 if a
bug survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fsspeckit"


@dataclass(frozen=True, slots=True)
class Bug:
    """A replacement in one file of the source, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def seed(self, source: Path) -> None:
        """Put the bug into a copy of the package."""
        path = source / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in {self.file}, not once")
        path.write_text(text.replace(self.old, self.new))


OPERATIONS = ("tests/core/operations",)
COMMIT = ("tests/core/commit",)
VALUES = ("tests/core/values",)
PLANNING = ("tests/core/planning",)

BUGS: tuple[Bug, ...] = (
    Bug(
        "deduplicate: the files of winners may change",
        "core/operations/maintenance_run.py",
        "needed = [file for file in ledger.snapshot.files if file.path not in touched] if losers else []",
        "needed = []",
        OPERATIONS,
    ),
    Bug(
        "maintenance: files may change between two commits",
        "core/operations/maintenance_run.py",
        "changed = [file.path for file in files if listed.get(file.path) != (file.size, file.stamp)]",
        "changed = []",
        OPERATIONS,
    ),
    Bug(
        "deduplicate: others may commit between two commits",
        "core/operations/maintenance_run.py",
        "if changed or (alone and view.head != self.commits[-1]):",
        "if changed:",
        OPERATIONS,
    ),
    Bug(
        "write: overwrite_partitions without the complete view",
        "core/operations/write.py",
        'complete_view=request.mode != "append"',
        'complete_view=request.mode == "overwrite"',
        OPERATIONS,
    ),
    Bug(
        "commit: an input of the same size counts as unchanged",
        "core/commit/record.py",
        "entry.size == self.size and entry.stamp == self.stamp",
        "entry.size == self.size",
        OPERATIONS,
    ),
    Bug(
        "plan: a file of the same size counts as unchanged",
        "core/planning/pinned_plan.py",
        "found = {file.path: (file.size, file.stamp) for file in snapshot.files}",
        "stamps = {e.path: e.stamp for e in agreed.entries}\n"
        "    found = {file.path: (file.size, stamps.get(file.path, file.stamp)) for file in snapshot.files}",
        OPERATIONS,
    ),
)


def main(words: Sequence[str]) -> int:
    """Try the bugs whose names contain one of some words, or all; return how many survive."""
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    check()
    survived = [bug for bug in chosen if not is_detected(bug)]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} bugs detected")
    for bug in survived:
        print(f"SURVIVED {bug.name} ({bug.file}); run: {' '.join(bug.tests)}")
    return 1 if survived else 0


def check() -> None:
    """Raise where a replacement does not fit the source, or tests are not there."""
    for bug in BUGS:
        found = (SOURCE / bug.file).read_text().count(bug.old)
        if found != 1:
            raise SystemExit(f"{bug.name}: {bug.old!r} occurs {found} times in {bug.file}, not once")
        missing = [path for path in bug.tests if not (ROOT / path.partition("::")[0]).exists()]
        if missing:
            raise SystemExit(f"{bug.name}: {missing[0]} is not there")


def is_detected(bug: Bug) -> bool:
    """Run the tests of a bug against a copy of the source that has it."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        shutil.copytree(SOURCE, Path(folder) / "fsspeckit", ignore=shutil.ignore_patterns("__pycache__"))
        bug.seed(Path(folder) / "fsspeckit")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *bug.tests]
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{bug.name}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    verdict = f"detected by {failed[0]}" if failed else "SURVIVED"
    print(f"{bug.name}: {verdict} ({time.perf_counter() - started:.0f} s)", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Prove that the tests find bugs: break a copy of the source in one place at a time, and run tests that reach it.

    python tests/bugs/run.py                     the bugs with names
    python tests/bugs/run.py cli duckdb          those whose names contain one of these words
    python tests/bugs/run.py --draw 40 --seed 1  random changes to modules of decisions, pruning, commits, expressions
    python tests/bugs/run.py --draw 40 commit    random changes to modules whose paths contain a word
    python tests/bugs/run.py --measure           measure again which tests reach which functions (minutes)

A bug is detected when a test fails that passes without it, or when the tests do not end. Tests of random changes are
those that call the changed function, the cheapest first, and the random lives of a dataset last. The exit code is 1 if
a bug with a name survives or does not fit the source.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bugs.named import BUGS, Bug, sources_of  # noqa: E402
from bugs.operators import Mutant, is_valid, mutants_of  # noqa: E402
from bugs.reach import Reach  # noqa: E402

PACKAGE = ROOT / "src" / "fsspeckit"
DRAWN = (
    "core/planning/*",
    "core/commit/*",
    "core/expressions/*",
    "core/kernels/*",
    "core/operations/*",
    "core/decisions/*",
)
"""Modules of random changes. A pattern without a module is no error, so that code can be moved."""
REACH = ROOT / ".bugs" / "reach"
MEASURED = ("tests/core", "tests/conformance", "tests/faults", "tests/common")
QUICK = "not spark and not s3 and not browser and not process and not more"
LIVES = [f"tests/conformance/test_state_machine.py::test_a_life[{part}]" for part in range(3)]
BUDGET = 20.0
"""Seconds of tests for one random change, before the random lives."""
LONGEST = 600.0


@dataclass(frozen=True)
class Verdict:
    """Whether tests have noticed a change, and how."""

    mutant: Mutant
    how: str
    seconds: float

    @property
    def detected(self) -> bool:
        return not self.how.startswith(("SURVIVED", "NOT REACHED"))


def main(arguments: Sequence[str]) -> int:
    """Try bugs and print the share that is detected; return 1 if one with a name survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="words of names of bugs, or of paths of modules")
    parser.add_argument("--draw", type=int, default=0, help="try so many random changes instead of the bugs with names")
    parser.add_argument("--seed", type=int, default=0, help="which random changes")
    parser.add_argument("--workers", type=int, default=1, help="how many at once")
    parser.add_argument("--tests", nargs="*", default=[], help="run these tests instead of the chosen ones")
    parser.add_argument("--measure", action="store_true", help="measure again which tests reach which functions")
    given = parser.parse_args(arguments)
    sources = sources_of(PACKAGE)
    if given.draw or given.measure:
        reach = measured(again=given.measure)
    if given.measure and not given.draw:
        return 0
    bugs: list[Bug] = []
    if given.draw:
        drawn = draw(sources, given.draw, given.seed, given.words)
        work = [(each, given.tests or [*reach.tests_of(each.file, each.function, BUDGET), *LIVES]) for each in drawn]
    else:
        bugs = [bug for bug in BUGS if not given.words or any(word in bug.name for word in given.words)]
        work = []
        for bug in bugs:
            try:
                work.append((bug.seed(sources), given.tests or list(bug.tests)))
            except LookupError as error:
                print(f"DOES NOT FIT {error}", flush=True)
    with ThreadPoolExecutor(given.workers) as pool:
        verdicts = list(pool.map(lambda pair: judge(sources, *pair), work))
    report(sources, verdicts)
    return int(not given.draw and sum(each.detected for each in verdicts) < len(bugs))


def draw(sources: dict[str, str], count: int, seed: int, words: Sequence[str]) -> list[Mutant]:
    """Draw changes: first a module, by its size, then a place."""
    chosen = [
        mutant
        for file, source in sources.items()
        if (any(word in file for word in words) if words else any(fnmatch(file, pattern) for pattern in DRAWN))
        for mutant in mutants_of(file, source)
    ]
    rng = random.Random(seed)
    valid = (each for each in rng.sample(chosen, len(chosen)) if is_valid(each.apply(sources[each.file])))
    return [mutant for mutant, _ in zip(valid, range(count), strict=False)]


def measured(*, again: bool) -> Reach:
    """Return which tests reach which functions; measure it if that was never done."""
    REACH.parent.mkdir(exist_ok=True)
    if again or not list(REACH.parent.glob(f"{REACH.name}.*")):
        for old in REACH.parent.glob(f"{REACH.name}.*"):
            old.unlink()
        command = ["-p", "bugs.reach", "--reach", str(REACH), "-n", "2", "-m", QUICK, *MEASURED]
        run(command, PACKAGE.parent, None, "SWEEP=quick")
    return Reach.load(REACH)


def judge(sources: dict[str, str], mutant: Mutant, tests: Sequence[str]) -> Verdict:
    """Run tests against a copy of the package with a change."""
    started, doubtful = time.monotonic(), list[str]()
    with tempfile.TemporaryDirectory(prefix="bug-") as folder:
        source = Path(folder, "src")
        shutil.copytree(PACKAGE.parent, source, ignore=shutil.ignore_patterns("__pycache__"))
        (source / "fsspeckit" / mutant.file).write_text(mutant.apply(sources[mutant.file]))
        how = _first_failure(source, tests, doubtful)
        while how.endswith("?"):  # fails without the bug too
            how = _first_failure(source, tests, doubtful)
    found = Verdict(mutant, how, time.monotonic() - started)
    print(f"{mutant}: {how} ({found.seconds:.0f} s)", flush=True)
    return found


def _first_failure(source: Path, tests: Sequence[str], doubtful: list[str]) -> str:
    if not tests:
        return "NOT REACHED by any test"
    left = [test for test in tests if test not in doubtful]
    code, output = run(["-x", *left, *(f"--deselect={test}" for test in doubtful)], source, LONGEST)
    if code == 0 or not left or code == 5:
        return "SURVIVED"
    if code is None:
        return "tests did not end"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    if code != 1 or failed is None:
        return "cannot be imported"
    test = failed[1]
    if passes(test):
        return f"detected by {test}"
    doubtful.append(test)
    return f"{test} fails without the bug too?"


@cache
def passes(test: str) -> bool:
    """Whether a test passes without a bug."""
    return run([test], PACKAGE.parent, LONGEST)[0] == 0


def run(arguments: Sequence[str], source: Path, timeout: float | None, *settings: str) -> tuple[int | None, str]:
    """Run pytest with a source; the code is None if it did not end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *arguments]
    paths = f"{source}{os.pathsep}{ROOT / 'tests'}"
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict(each.split("=") for each in settings or ["SWEEP=quick"])
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def report(sources: dict[str, str], verdicts: Sequence[Verdict]) -> None:
    """Print the share of changes that are detected, and those that are not."""
    found = sum(each.detected for each in verdicts)
    spent = sum(each.seconds for each in verdicts) / max(1, len(verdicts))
    print(f"\n{found} of {len(verdicts)} bugs detected ({found / max(1, len(verdicts)):.0%}), {spent:.0f} s each")
    for each in verdicts:
        if not each.detected:
            print(f"{each.how} {each.mutant} in {each.mutant.function or 'the module'}")
            print(each.mutant.diff(sources[each.mutant.file]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

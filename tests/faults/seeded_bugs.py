"""Prove that the tests find bugs: break a copy of the source in one place at a time and run the tests of that area.

    python tests/faults/seeded_bugs.py                 all bugs
    python tests/faults/seeded_bugs.py cli duckdb      those whose names contain one of these words

A bug is one replacement of text, which must occur exactly once in its file. It is detected when a test fails. A test
run that does not get that far (nothing collected, usage error) is an error of this program. A test that fails without
the bug too does not count. The exit code is 1 if a bug survives.
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
        path.write_text(path.read_text().replace(self.old, self.new))


OPERATIONS = ("tests/core/operations",)
COMMIT = ("tests/core/commit",)
KERNELS = ("tests/core/kernels",)
PLANNING = ("tests/core/planning",)
VALUES = ("tests/core/values",)
CLI = ("tests/cli",)

BUGS: tuple[Bug, ...] = (
    Bug(
        "deduplicate: the files of winners may change",
        "core/operations/maintenance_run.py",
        "others = [file for file in self.snapshot.files if file.path not in handled] if exclusive else []",
        "others = []",
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
        "if changed or (exclusive and view.head != self.commits[-1]):",
        "if changed:",
        OPERATIONS,
    ),
    Bug(
        "write: overwrite_partitions without the complete view",
        "core/operations/write.py",
        'needs_view = mode != "append" or',
        'needs_view = mode == "overwrite" or',
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
        "found = {file.path: (file.size, file.version) for file in snapshot.view.files}",
        "stamps = {e.path: e.stamp for e in plan.entries}\n"
        "    found = {file.path: (file.size, stamps.get(file.path, file.version)) for file in snapshot.view.files}",
        OPERATIONS,
    ),
    Bug(
        "plan: the counts of a plan are not compared",
        "core/planning/pinned_plan.py",
        "if count != getattr(plan, name):",
        "if count < 0:",
        OPERATIONS,
    ),
    Bug(
        "optimize: the files of winners may change during a sort",
        "core/operations/optimize.py",
        "exclusive=bool(work.duplicates)",
        "exclusive=False",
        OPERATIONS,
    ),
    Bug(
        "commit: an idempotency key is looked for in ten records",
        "core/commit/log.py",
        "for record in for_each(self._storage, self.read_or_none, self.effective(self.state())):",
        "for record in for_each(self._storage, self.read_or_none, self.effective(self.state())[-10:]):",
        COMMIT,
    ),
    Bug(
        "commit: files that a pending commit retires are still listed",
        "core/commit/listing.py",
        "files = {path: file for path, file in files.items() if path not in retired}",
        "files = dict(files)",
        ("tests/faults/test_commit_faults.py",),
    ),
    Bug(
        "commit: a replay replaces a file that was changed since",
        "core/commit/replay.py",
        "if item.replaces.matches(current):",
        "if True:",
        ("tests/faults/test_protocol.py",),
    ),
    Bug(
        "storage: the time of a local file does not count",
        "core/storage/local.py",
        'return f"{info.st_mtime_ns}:{info.st_ino}"',
        'return f"{info.st_ino}"',
        OPERATIONS,
    ),
    Bug(
        "storage: the ETag of an object does not count",
        "core/storage/fsspec.py",
        'str(tag) if tag else f"{size}:{modified!r}"',
        'f"{size}:{modified!r}"',
        ("tests/faults/test_s3.py",),
    ),
    Bug(
        "kernels: INT96 is checked in the first row group only",
        "core/parquet/reader.py",
        "for group in row_groups if names else ():",
        "for group in list(row_groups)[:1] if names else ():",
        KERNELS,
    ),
    Bug(
        "kernels: value ranges are checked in the first row group only",
        "core/kernels/value_range_check.py",
        "for group in range(reader.num_row_groups):",
        "for group in range(1):",
        KERNELS,
    ),
    Bug(
        "kernels: null keys are looked for in the first row group only",
        "core/kernels/match_keys.py",
        "for i in range(reader.num_row_groups)",
        "for i in range(1)",
        KERNELS,
    ),
    Bug(
        "kernels: a null does not count as the upper end of a file",
        "core/kernels/file_bounds.py",
        "return low, None if len(known) < len(form) else high",
        "return low, high",
        PLANNING,
    ),
    Bug(
        "kernels: a minus before an order column is ignored",
        "core/kernels/find_duplicates.py",
        "[~rank if low else rank for rank, low in zip(ranks, lowest, strict=True)]",
        "list(ranks)",
        ("tests/conformance/test_deduplicate.py",),
    ),
    Bug(
        "planning: bounds without a count of nulls exclude a null",
        "core/planning/statistics.py",
        "not (null_wanted and nulls != 0)",
        "not (null_wanted and nulls)",
        PLANNING,
    ),
    Bug(
        "planning: files without a count of nulls have an upper end",
        "core/planning/file_overlap.py",
        "has_null = any(count is None or count > 0 for count in stats.nulls)",
        "has_null = any(count for count in stats.nulls)",
        PLANNING,
    ),
    Bug(
        "planning: of very many texts the last one is missed",
        "core/planning/statistics.py",
        'return (_search(self.bounds, lower, "left") < 2) & (',
        'return (_search(self.bounds, lower, "left") < 1) & (',
        VALUES,
    ),
    Bug(
        "values: codes of composite keys are compressed on one side only",
        "core/values/keys.py",
        "self._columns.append(_KeyColumnCodes(values, compressed))",
        "self._columns.append(_KeyColumnCodes(values, None))",
        VALUES,
    ),
    Bug(
        "values: codes of composite keys overflow",
        "core/values/keys.py",
        "if len(combined) and int(combined.max()) > _MAX_CODE // max(1, len(combined)):",
        "if len(combined) < 0:",
        VALUES,
    ),
    Bug(
        "dataset: the first of several source rows is the last",
        "core/dataset/source_keys.py",
        "return np.sort(len(codes) - 1 - last_of_each(codes[::-1], []))",
        "return last_of_each(codes, [])",
        ("tests/conformance/test_merge_examples.py",),
    ),
    Bug(
        "duckdb: null keys match nothing",
        "datasets/duckdb/matching.py",
        "IS NOT DISTINCT FROM",
        "=",
        ("tests/engines/duckdb/test_matching.py",),
    ),
    Bug(
        "duckdb: files are compared with the keys of other partitions",
        "datasets/duckdb/matching.py",
        '(["part"] if len(key_sets) > 1 else [])',
        "[]",
        ("tests/engines/duckdb/test_matching.py",),
    ),
    Bug(
        "exchange: a full merge removes matched rows that its conditions keep",
        "core/kernels/exchange/route_rows.py",
        "matched = [orders, dropped, sent[KEEP].rows_of(each.number)[1]]",
        "matched = [orders, dropped]",
        ("tests/core/operations/test_exchanged_merge.py",),
    ),
    Bug(
        "exchange: rows outside the scope count as rows that a full merge would delete",
        "core/kernels/exchange/decide_keys.py",
        "spared = both.where(both.in_scope).file_rows",
        "spared = both.file_rows",
        ("tests/core/operations/test_exchanged_merge.py",),
    ),
    Bug(
        "exchange: a moved row at a cut goes to the task before",
        "core/kernels/exchange/route_moves.py",
        'np.searchsorted(cuts, moved.positions[mine], "right")',
        'np.searchsorted(cuts, moved.positions[mine], "left")',
        ("tests/core/operations/test_exchanged_merge.py",),
    ),
    Bug(
        "exchange: history rows of different files are counted as those of one",
        "core/kernels/exchange/change_histories.py",
        "order = np.lexsort((positions, files))",
        "order = np.lexsort((files, positions))",
        ("tests/core/operations/test_exchanged_merge.py",),
    ),
    Bug(
        "spark: cached listings survive a commit",
        "datasets/spark/session.py",
        "spark.catalog.refreshByPath(to_spark(address))",
        "to_spark(address)",
        ("tests/engines/spark/test_paths.py",),
    ),
    Bug(
        "expressions: NOT LIKE is LIKE",
        "core/expressions/parse.py",
        'return Call("not", (found,), pa.bool_()) if node.args.get("negate") else found',
        "return found",
        ("tests/core/expressions",),
    ),
    Bug(
        "proofs: statistics exclude NaN",
        "core/planning/condition_proofs.py",
        "return bounds[0], None if pat.is_floating(type_) else bounds[1]",
        "return bounds[0], bounds[1]",
        PLANNING,
    ),
    Bug(
        "proofs: a count of nulls is believed beside bounds",
        "core/planning/condition_proofs.py",
        "if nulls == rows and bounds != (None, None):",
        "if nulls == -1:",
        PLANNING,
    ),
    Bug(
        "merge: a stale delete deletes",
        "core/planning/merge_changes.py",
        "deletes = _kept(check, files, removals, conditions=False)",
        "deletes = _Kept(tuple(removals), tuple(removals))",
        ("tests/conformance/test_row_changes.py",),
    ),
    Bug(
        "merge: a row that moves stays in its old partition",
        "core/planning/merge_changes.py",
        "parts = [self.deletes.changing[number].positions, self.moves.changing[number].positions]",
        "parts = [self.deletes.changing[number].positions]",
        ("tests/conformance/test_row_changes.py",),
    ),
    Bug(
        "cli: apply takes a source that has changed",
        "cli/commands/apply.py",
        "state_of(source) != saved.source.files:",
        "len(state_of(source)) != len(saved.source.files):",
        CLI,
    ),
    Bug(
        "cli: a full merge of nothing does not ask",
        "cli/commands/merge.py",
        ' or "insert_when" in options or is_empty(rows, source.options)',
        ' or "insert_when" in options',
        CLI,
    ),
    Bug(
        "cli: partition columns are not passed on",
        "cli/command.py",
        "if value is not None and value != []",
        'if value is not None and value != [] and key != "partition_by"',
        CLI,
    ),
    Bug(
        "cli: a condition of a plan is not parsed",
        "cli/plan_files.py",
        "read = _expression if name in EXPRESSIONS else _reader(kinds[0])",
        "read = _reader(kinds[0])",
        CLI,
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


def check(bugs: Sequence[Bug] = BUGS) -> None:
    """Raise where a replacement does not fit the source, or tests are not there."""
    for bug in bugs:
        found = (SOURCE / bug.file).read_text().count(bug.old)
        if found != 1:
            raise SystemExit(f"{bug.name}: {bug.old!r} occurs {found} times in {bug.file}, not once")
        missing = [path for path in bug.tests if not (ROOT / path.partition("::")[0]).exists()]
        if missing:
            raise SystemExit(f"{bug.name}: {missing[0]} is not there")


def is_detected(bug: Bug) -> bool:
    """Run the tests of a bug against a copy of the source that has it; only a test that passes without it counts."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="seeded-") as folder:
        shutil.copytree(SOURCE, Path(folder) / "fsspeckit", ignore=shutil.ignore_patterns("__pycache__"))
        bug.seed(Path(folder) / "fsspeckit")
        doubtful: list[str] = []
        failed = first_failure(bug, Path(folder), *bug.tests)
        while failed and first_failure(bug, SOURCE.parent, failed):
            doubtful.append(failed)
            print(f"{failed} fails without the bug too", flush=True)
            failed = first_failure(bug, Path(folder), *bug.tests, *(f"--deselect={test}" for test in doubtful))
    verdict = f"detected by {failed}" if failed else "SURVIVED"
    print(f"{bug.name}: {verdict} ({time.perf_counter() - started:.0f} s)", flush=True)
    return failed is not None


def first_failure(bug: Bug, source: Path, *words: str) -> str | None:
    """The first test that fails with a source."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *words]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{bug.name}: pytest ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

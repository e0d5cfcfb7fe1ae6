"""Command line of the benchmarks: run the cases and report the results and bars."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import MERGES
from benchmarks.document import replace_results
from benchmarks.history import HISTORY
from benchmarks.report import as_json, as_markdown, as_text, verdicts
from benchmarks.row_changes import ROW_CHANGES
from benchmarks.runner import CaseResult, Settings, run_case
from benchmarks.upkeep import MAINTENANCE

CASES = (*MERGES, *ROW_CHANGES, *HISTORY, *MAINTENANCE)
NAMES = ", ".join(case.name for case in CASES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected cases; return 1 if a bar is missed or a contender fails."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.case) - {case.name for case in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; choose among {NAMES}")
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-") as temporary:
        data = options.data or Path(temporary)
        data.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            data.resolve(), options.scale, options.repeats, not options.no_cold, tuple(options.contender)
        )
        wanted = [case for case in CASES if not options.case or case.name in options.case]
        results = [run_case(case, settings, _say) for case in wanted]
    print(as_text(results))
    if options.json:
        options.json.write_text(json.dumps(as_json(results), indent=1) + "\n")
    if options.markdown:
        replace_results(options.markdown, as_markdown(results))
    return 0 if _good(results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("case", nargs="*", help=f"{NAMES}; all by default")
    parser.add_argument("--contender", action="append", default=[], help="only contenders whose label contains this")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each contender; the best counts")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the data; the bars are meant for 1")
    parser.add_argument(
        "--data", type=Path, help="folder in which the data is kept for later runs; by default a temporary folder"
    )
    parser.add_argument("--no-cold", action="store_true", help="skip the runs on a cold cache (bytes read)")
    parser.add_argument("--json", type=Path, help="write all runs to this file")
    parser.add_argument("--markdown", type=Path, help="insert the tables between the marks of this file")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _good(results: Sequence[CaseResult]) -> bool:
    return not any(result.failures for result in results) and all(
        item.passed is not False for item in verdicts(results)
    )


if __name__ == "__main__":
    sys.exit(main())

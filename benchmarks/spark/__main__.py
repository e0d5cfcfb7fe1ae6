"""Command line of the Spark benchmarks: run the cases in one session and report the results and bars."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.document import replace_results
from benchmarks.spark.cases import CASES, CLUSTER, CLUSTER_SETTINGS, FORMATS
from benchmarks.spark.formats import settings as format_settings
from benchmarks.spark.jars import fetch
from benchmarks.spark.report import Report, as_json, as_markdown, as_text, from_json, joined, verdicts
from benchmarks.spark.runner import Settings, run_case
from benchmarks.spark.session import start
from benchmarks.spark.slopes import measure_plans

_DRIVER = "driver"
_NAMES = (*(case.name for case in CASES), FORMATS, CLUSTER, _DRIVER)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected cases; return 1 if a bar is missed or a contender fails."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.case) - set(_NAMES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    names = _selected(options.case)
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-") as temporary:
        data = (options.data or Path(temporary)).resolve()
        data.mkdir(parents=True, exist_ok=True)
        plans = measure_plans(data, options.scale, _say) if _DRIVER in names else []
        jars = options.jars or _fetched(data / "jars")
        settings = Settings(data, options.scale, options.repeats, tuple(options.contender))
        results, seconds = [], 0.0
        for more in ({}, CLUSTER_SETTINGS):
            cases = [case for case in CASES if case.name in names and _is_cluster(case.name) == bool(more)]
            if cases:
                spark, seconds = start((format_settings(jars, data / "iceberg") if jars else {}) | more)
                results += [run_case(case, spark, settings, _say) for case in cases]
                spark.stop()
    earlier = [from_json(json.loads(path.read_text())) for path in options.earlier]
    report = joined([*earlier, Report(seconds, results, plans)])
    print(as_text(report))
    if options.json:
        options.json.write_text(json.dumps(as_json(report), indent=1) + "\n")
    if options.markdown:
        replace_results(options.markdown, as_markdown(report))
    failed = any(result.failures for result in report.cases)
    return 1 if failed or any(item.passed is False for item in verdicts(report)) else 0


def _selected(names: Sequence[str]) -> set[str]:
    """Return the names of the cases to run; `formats` and `cluster` stand for all cases with this prefix."""
    found = set(names or _NAMES)
    prefixes = tuple(f"{name}-" for name in (FORMATS, CLUSTER) if name in found)
    return found | {case.name for case in CASES if case.name.startswith(prefixes)}


def _is_cluster(name: str) -> bool:
    return name.startswith(f"{CLUSTER}-")


def _fetched(folder: Path) -> str:
    """Return the jars of Delta and Iceberg, or nothing: then these contenders do not take part."""
    jars, reason = fetch(folder)
    if reason:
        _say(f"Delta and Iceberg do not take part: {reason}")
    return jars


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("case", nargs="*", help=f"{', '.join(_NAMES)}; all by default")
    parser.add_argument("--contender", action="append", default=[], help="only contenders whose label contains this")
    parser.add_argument("--repeats", type=int, default=4, help="runs of each contender; the best counts")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the data; the bars are meant for 1")
    parser.add_argument(
        "--data", type=Path, help="folder in which the data is kept for later runs; by default a temporary folder"
    )
    parser.add_argument("--jars", help="jars of Delta and Iceberg, separated by commas; by default Maven fetches them")
    parser.add_argument("--json", type=Path, help="write all runs to this file")
    parser.add_argument("--earlier", type=Path, action="append", default=[], help="add the cases of such a file")
    parser.add_argument("--markdown", type=Path, help="insert the tables between the marks of this file")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

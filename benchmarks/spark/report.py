"""Render measured runs as a table for the terminal, as Markdown for the documentation, or as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.spark.cases import CASES, PEERS, Bar
from benchmarks.spark.runner import CaseResult
from benchmarks.spark.slopes import MEMORY_LIMIT_MB, Plan

_PARTS = ("source_s", "match_s", "rewrite_s", "commit_s")
_USED = ("cpu_s", "python_mb", "java_mb")
_USED_HEADS = ("CPU s", "Python MB", "Java MB")
_HEADS = (
    "contender",
    "wall s",
    "to best peer",
    "shuffled MB",
    "jobs' tasks",
    *_USED_HEADS,
    *(p[:-2] + " s" for p in _PARTS),
)
_PLAN_HEADS = ("plan over", "number", "seconds", "Python peak MB", "of it the plan's", "Java peak MB", "Java heap MB")
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one call."""

    start_seconds: float
    cases: Sequence[CaseResult]
    plans: Sequence[Plan]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and its result; ``passed`` is None if a number is missing."""

    case: str
    text: str
    value: float | None
    passed: bool | None

    def line(self) -> str:
        word = "n/a " if self.passed is None else "pass" if self.passed else "FAIL"
        value = "not measured" if self.value is None else f"{self.value:.2f}"
        return f"{word}  {self.case}: {self.text}: {value}"


def verdicts(report: Report) -> list[Verdict]:
    found = [_judge(result, bar) for result in report.cases for bar in result.case.bars]
    plans = [plan for plan in report.plans if plan.what == "files"]
    if plans:
        most = max(plans, key=lambda plan: plan.number)
        text = f"driver memory of a plan over {most.number:,} files, Python and Java, below {MEMORY_LIMIT_MB} MB"
        found.append(Verdict("driver", text, most.memory_mb, most.memory_mb < MEMORY_LIMIT_MB))
    return found


def _judge(result: CaseResult, bar: Bar) -> Verdict:
    base = bar.text or " + ".join(bar.against)
    text = f"{bar.metric} of {bar.whose} at most {bar.factor:.2g} x {base}"
    mine = _metric(result, bar.whose, bar.metric)
    others = [value for label in bar.against if (value := _metric(result, label, bar.metric))]
    if mine is None or not others or (bar.summed and len(others) < len(bar.against)):
        return Verdict(result.case.name, text, None, None)
    value = mine / (sum(others) if bar.summed else min(others))
    return Verdict(result.case.name, text, value, value <= bar.factor)


def _metric(result: CaseResult, label: str, metric: str) -> float | None:
    best = result.best(label)
    return None if best is None or metric not in best else float(best[metric])


def as_text(report: Report) -> str:
    parts = [f"session start: {report.start_seconds:.1f} s", ""]
    for result in report.cases:
        parts += [result.case.title, _aligned([_HEADS, *_rows(result)]), *_notes(result), ""]
    if report.plans:
        parts += ["Plans", _aligned([_PLAN_HEADS, *map(_plan_row, report.plans)]), ""]
    return "\n".join([*parts, *(verdict.line() for verdict in verdicts(report))])


def as_markdown(report: Report) -> str:
    parts = [f"Machine: {machine()}. Start of the session: {report.start_seconds:.1f} s.", ""]
    for result in report.cases:
        parts += [f"### {result.case.title}", "", *_pipes([_HEADS, *_rows(result)]), "", *_notes(result)]
    if report.plans:
        parts += ["### What a plan costs the driver", "", *_pipes([_PLAN_HEADS, *map(_plan_row, report.plans)]), ""]
    parts += ["### Bars", "", "```text", *(verdict.line() for verdict in verdicts(report)), "```", ""]
    return "\n".join(parts)


def as_json(report: Report) -> dict[str, Any]:
    return {
        "machine": machine(),
        "start_seconds": report.start_seconds,
        "cases": {
            result.case.name: {
                "title": result.case.title,
                "best": {label: result.best(label) for label in result.runs},
                "runs": result.runs,
                "failures": result.failures,
            }
            for result in report.cases
        },
        "plans": [{"what": plan.what, "number": plan.number, **plan.facts} for plan in report.plans],
        "bars": [
            {"case": item.case, "bar": item.text, "value": item.value, "passed": item.passed}
            for item in verdicts(report)
        ],
    }


def from_json(found: Mapping[str, Any]) -> Report:
    """Return the report from the output of `as_json`."""
    cases = {case.name: case for case in CASES}
    results = [
        CaseResult(cases[name], runs=part["runs"], failures=part["failures"]) for name, part in found["cases"].items()
    ]
    plans = [Plan(plan["what"], plan["number"], plan) for plan in found["plans"]]
    return Report(found["start_seconds"], results, plans)


def joined(reports: Sequence[Report]) -> Report:
    """Combine several reports into one, with the cases in their defined order."""
    order = [case.name for case in CASES]
    results = sorted((r for report in reports for r in report.cases), key=lambda result: order.index(result.case.name))
    return Report(
        min(report.start_seconds for report in reports), results, [p for report in reports for p in report.plans]
    )


def machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy"))
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {packages}"


def _rows(result: CaseResult) -> list[Row]:
    peers = [wall for label in PEERS if (wall := _metric(result, label, "wall")) is not None]
    found: list[Row] = []
    for label in sorted(result.runs, key=lambda label: _metric(result, label, "wall") or 0.0):
        best = result.best(label) or {}
        found.append(
            (
                label,
                f"{best['wall']:.3f}",
                _number(best["wall"] / min(peers) if peers else None, 2),
                f"{best['shuffle_mb']:.1f}",
                f"{best['spark_tasks']}",
                *(_number(best.get(name), 1 if name == "cpu_s" else 0) for name in _USED),
                *(_number(best.get(part), 3) for part in _PARTS),
            )
        )
    return found


def _plan_row(plan: Plan) -> Row:
    facts = plan.facts
    return (
        plan.what,
        f"{plan.number:,}",
        f"{facts['wall']:.2f}",
        f"{facts['python_mb']:.0f}",
        f"{facts['python_mb'] - facts['python_start_mb']:.0f}",
        f"{facts['java_mb']:.0f}",
        f"{facts['java_heap_mb']:.0f}",
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _notes(result: CaseResult) -> list[str]:
    return [f"{label}: failed, {reason}" for label, reason in result.failures.items()]


def _aligned(table: Sequence[Row]) -> str:
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    )


def _pipes(table: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return [lines[0], "|---|" + "--:|" * (len(table[0]) - 1), *lines[1:]]

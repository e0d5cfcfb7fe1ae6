"""Render measured runs as a table for the terminal, as Markdown for the documentation, or as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.cases import Bar
from benchmarks.runner import CaseResult

_HEADS = ("contender", "wall s", "ratio", "CPU s", "peak MB", "read MB", "written MB", "commit %", "fsync s", "cold s")
_PACKAGES = ("pyarrow", "numpy", "duckdb", "polars", "deltalake")
Row = tuple[str, ...]


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


def verdicts(results: Sequence[CaseResult]) -> list[Verdict]:
    by_name = {result.case.name: result for result in results}
    return [_judge(result, bar, by_name) for result in results for bar in result.case.bars]


def _judge(result: CaseResult, bar: Bar, by_name: Mapping[str, CaseResult]) -> Verdict:
    value = _metric(result, bar.of, bar.metric)
    if bar.base is not None and value is not None:
        other = by_name.get(bar.base_case or result.case.name)
        base = None if other is None else _metric(other, bar.base, bar.metric)
        value = None if base is None else value / base
    return Verdict(result.case.name, bar.text(), value, None if value is None else value <= bar.factor)


def _metric(result: CaseResult, contender: str, metric: str) -> float | None:
    best = result.best(contender)
    return None if best is None or metric not in best else float(best[metric])


def as_text(results: Sequence[CaseResult]) -> str:
    parts = []
    for result in results:
        parts += [result.case.title, _aligned([_HEADS, *_rows(result)]), *_notes(result), ""]
    return "\n".join([*parts, *(verdict.line() for verdict in verdicts(results))])


def as_markdown(results: Sequence[CaseResult]) -> str:
    parts = [f"Machine: {machine()}.", ""]
    for result in results:
        parts += [f"### {result.case.title}", "", *_pipes([_HEADS, *_rows(result)]), "", *_notes(result)]
    parts += ["### Bars", "", "```text", *(verdict.line() for verdict in verdicts(results)), "```", ""]
    return "\n".join(parts)


def as_json(results: Sequence[CaseResult]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "cases": {
            result.case.name: {
                "title": result.case.title,
                "best": {label: result.best(label) for label in result.runs},
                "runs": result.runs,
                "cold": result.cold,
                "failures": result.failures,
            }
            for result in results
        },
        "bars": [
            {"case": item.case, "bar": item.text, "value": item.value, "passed": item.passed}
            for item in verdicts(results)
        ],
    }


def machine() -> str:
    packages = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {packages}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _rows(result: CaseResult) -> list[Row]:
    base = _metric(result, result.case.base, "wall")
    found: list[Row] = []
    for label in sorted(result.runs, key=lambda label: _metric(result, label, "wall") or 0.0):
        best = result.best(label) or {}
        share = best["commit_seconds"] / best["wall"] * 100 if "commit_seconds" in best else None
        found.append(
            (
                label,
                f"{best['wall']:.3f}",
                _number(best["wall"] / base if base else None, 2),
                f"{best['cpu']:.2f}",
                f"{best['peak_mb']:.0f}",
                _number(best.get("read_mb"), 0),
                _number(best["written_mb"], 1),
                _number(share, 1),
                _number(best.get("fsync_seconds"), 3),
                _number(best.get("cold_wall"), 2),
            )
        )
    return found


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

"""Which tests stand for which scenario of the specification: reads the marks, writes `docs/compliance.md`.

The marks are read from the source of the tests, so nothing is imported or run. A mark on a class or in `pytestmark`
counts for every test below it.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compliance.md"

_GROUPS = {
    "UP": "PyArrow datasets (UP)",
    "PM": "The merge function (PM)",
    "IO": "Dataset input and output (IO)",
    "ID": "Dataset input and output, delta (ID)",
    "MD": "Maintenance design (MD)",
}
_Marked = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def load_scenarios() -> dict[str, str]:
    """Every scenario id with its description, from the list kept beside this module."""
    return tomllib.loads(Path(__file__).with_name("scenarios.toml").read_text("utf-8"))


def find_marks(tests: Path) -> dict[str, list[str]]:
    """Map each marked scenario id to the tests that carry it, as `folder/test_file.py::test_name`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(tests.rglob("test_*.py")):
        module = ast.parse(path.read_text("utf-8"), str(path))
        for name, ids in _tests_in(module.body, _module_ids(module)):
            for scenario in ids:
                found[scenario].add(f"{path.relative_to(tests).as_posix()}::{name}")
    return {scenario: sorted(names) for scenario, names in found.items()}


def _tests_in(body: Iterable[ast.stmt], inherited: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for node in body:
        if not isinstance(node, _Marked):
            continue
        ids = inherited | _ids_of(node.decorator_list)
        if isinstance(node, ast.ClassDef):
            if node.name.startswith("Test"):
                yield from ((f"{node.name}::{name}", inner) for name, inner in _tests_in(node.body, ids))
        elif node.name.startswith("test_") and ids:
            yield node.name, ids


def _module_ids(module: ast.Module) -> frozenset[str]:
    return _ids_of(
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    )


def _ids_of(nodes: Iterable[ast.expr]) -> frozenset[str]:
    """The ids of every `...scenario("X", "Y")` call below the nodes."""
    return frozenset(
        argument.value
        for node in nodes
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "scenario"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )


def render(scenarios: Mapping[str, str], marks: Mapping[str, list[str]]) -> str:
    """The compliance page."""
    lines = [
        "# Compliance",
        "",
        "Which tests stand for which scenario of the specification. Written by `make compliance` from the marks of the",
        "tests; do not edit. A scenario without a test fails the tests.",
        "",
        f"{len(scenarios)} scenarios.",
    ]
    for prefix, title in _GROUPS.items():
        group = {key: text for key, text in scenarios.items() if key.startswith(prefix + "-")}
        lines += ["", f"## {title}", "", "| id | what must hold | tests |", "|---|---|---|"]
        lines += [f"| {key} | {_cell(text)} | {_by_file(marks.get(key, []))} |" for key, text in group.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _by_file(names: Iterable[str]) -> str:
    """The tests of each file; no links, since the site of `docs/` does not hold the tests."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for name in names:
        file, _, test = name.partition("::")
        by_file[file].append(f"`{test}`")
    return "<br>".join(f"{file}: {', '.join(tests)}" for file, tests in by_file.items()) or "none"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(load_scenarios(), find_marks(ROOT / "tests")), "utf-8")


if __name__ == "__main__":
    main()

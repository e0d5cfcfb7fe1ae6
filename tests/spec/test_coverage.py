"""Every scenario has a test, every mark names a known scenario, and the compliance page says so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from marks import NEEDS
from spec.compliance import PAGE, ROOT, find_marks, load_scenarios, render

SCENARIOS = load_scenarios()
MARKS = find_marks(ROOT / "tests")


def test_every_scenario_has_a_test_and_every_mark_a_scenario() -> None:
    assert {scenario for scenario, tests in MARKS.items() if tests} == {*SCENARIOS}


def test_every_scenario_is_on_the_page() -> None:
    assert [scenario for scenario in SCENARIOS if f"\n| {scenario} | " not in PAGE.read_text("utf-8")] == []


def test_every_marker_is_used() -> None:
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    source = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    names = [re.split(r"\W", marker)[0] for marker in markers]
    assert [name for name in names if f"pytest.mark.{name}" not in source and name not in NEEDS] == []


def test_compliance_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == render(SCENARIOS, MARKS), "docs/compliance.md is stale: run `make compliance`"


def test_marks_are_found_on_functions_classes_modules_and_parameters(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "pytestmark = [pytest.mark.scenario('M-1')]\n"
        "@pytest.mark.scenario('F-1', 'F-2')\ndef test_f(): ...\n"
        "@mark.scenario('C-1')\nclass TestC:\n    @pytest.mark.scenario('F-1')\n    def test_m(self): ...\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.scenario('P-1'))])\ndef test_p(x): ...\n"
        "@pytest.mark.scenario('NO')\ndef helper(): ...\n"
    )
    assert find_marks(tmp_path) == {
        "M-1": ["test_a.py::TestC::test_m", "test_a.py::test_f", "test_a.py::test_p"],
        "F-1": ["test_a.py::TestC::test_m", "test_a.py::test_f"],
        "F-2": ["test_a.py::test_f"],
        "C-1": ["test_a.py::TestC::test_m"],
        "P-1": ["test_a.py::test_p"],
    }

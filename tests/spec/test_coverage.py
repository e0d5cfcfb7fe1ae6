"""Every scenario in scope has a test, every mark names a known scenario, and the compliance page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec.compliance import PAGE, ROOT, find_marks, load_scenarios, render

SCENARIOS = load_scenarios()
MARKS = find_marks(ROOT / "tests")


@pytest.mark.parametrize("scenario", SCENARIOS.in_scope)
def test_scenario_in_scope_has_a_test(scenario: str) -> None:
    assert MARKS.get(scenario), f'no test carries @pytest.mark.scenario("{scenario}"): {SCENARIOS.in_scope[scenario]}'


def test_every_mark_names_a_scenario() -> None:
    known = {*SCENARIOS.in_scope, *SCENARIOS.later}
    assert {scenario: tests for scenario, tests in MARKS.items() if scenario not in known} == {}


def test_no_scenario_is_listed_twice() -> None:
    assert SCENARIOS.in_scope.keys() & SCENARIOS.later.keys() == set()


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

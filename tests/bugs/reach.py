"""Which tests reach which functions: a plugin of pytest that writes it down, and the choice of tests for a function.

    SWEEP=quick pytest -p bugs.reach --reach FILE -m '...'

The tests of one file name functions by module and name, so moved code only needs a new measurement.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from bugs.operators import outermost

_PACKAGE = "/fsspeckit/"
_VARIATIONS = 4
"""The most variations of one test that are run for one mutant."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach", help="write the functions that each test calls to this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--reach")
    if path:
        worker = getattr(config, "workerinput", {}).get("workerid", "main")
        config.pluginmanager.register(_Recorder(Path(f"{path}.{worker}")))


class _Recorder:
    """Records the functions that are called during each test, in all threads."""

    def __init__(self, path: Path) -> None:
        self.path, self.found = path, dict[str, Any]()
        self.called: set[CodeType] = set()
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        self.called.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.called, started = set(), time.process_time()
        sys.settrace(self.trace)
        result = yield
        called = self.called.copy()  # threads of the test may still add to it
        names = {f"{c.co_filename.rpartition(_PACKAGE)[2]}:{outermost(c.co_qualname)}" for c in called if _is_ours(c)}
        self.found[item.nodeid] = [round(time.process_time() - started, 2), sorted(names)]
        return result

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        self.path.write_text(json.dumps(self.found))


def _is_ours(code: CodeType) -> bool:
    return f"/src{_PACKAGE}" in code.co_filename


@dataclass(frozen=True)
class Reach:
    """For each test its seconds and the functions that it calls."""

    tests: Mapping[str, tuple[float, frozenset[str]]]

    @classmethod
    def load(cls, path: Path) -> Reach:
        """Read what the processes of a run have written."""
        tests = {}
        for part in sorted(path.parent.glob(f"{path.name}.*")):
            for test, (seconds, names) in json.loads(part.read_text()).items():
                tests[f"tests/{test}" if not test.startswith("tests/") else test] = (seconds, frozenset(names))
        return cls(tests)

    def tests_of(self, file: str, function: str, budget: float) -> list[str]:
        """The cheapest tests that call a function, or any of its module if it is none, up to some seconds."""
        wanted = f"{file}:{function}"
        if not function or not any(wanted in names for _, names in self.tests.values()):
            found = [(s, t) for t, (s, names) in self.tests.items() if any(n.startswith(f"{file}:") for n in names)]
        else:
            found = [(s, test) for test, (s, names) in self.tests.items() if wanted in names]
        chosen, seen, spent = list[str](), dict[str, int](), 0.0
        for seconds, test in sorted(found):
            name = test.partition("[")[0]
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > _VARIATIONS or spent + seconds > budget:
                continue
            spent += seconds
            chosen.append(test)
        return chosen

"""`dag` and `task` as the snippets use them: tasks get context by the names of their parameters, and retries."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

_building: list[Dag] = []


class Dag:
    """What a function under `@dag` gives: its tasks, in the order in which they were called."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Callable[..., Any], int]] = []

    def test(self, logical_date: datetime) -> dict[str, Any]:
        """Run all tasks once, as `airflow dags test` does; what they return goes through JSON, as an XCom does."""
        context = {"run_id": f"manual__{logical_date.isoformat()}", "ds": logical_date.date().isoformat()}
        return {
            function.__name__: json.loads(json.dumps(_run(function, retries, context)))
            for function, retries in self.tasks
        }


def _run(function: Callable[..., Any], retries: int, context: dict[str, str]) -> Any:
    wanted = {name: context[name] for name in inspect.signature(function).parameters}
    for left in range(retries, -1, -1):
        try:
            return function(**wanted)
        except Exception:
            if left == 0:
                raise
    raise AssertionError("no try was left")


def dag(*, schedule: str, catchup: bool) -> Callable[[Callable[[], None]], Callable[[], Dag]]:
    """A function that calls tasks becomes one that gives a Dag of them."""
    assert schedule.startswith("@")
    assert not catchup

    def decorate(function: Callable[[], None]) -> Callable[[], Dag]:
        def build() -> Dag:
            _building.append(Dag())
            function()
            return _building.pop()

        return build

    return decorate


def task(function: Callable[..., Any], *, retries: int = 0) -> Callable[[], None]:
    """A function that, where it is called inside a Dag, becomes a task of it."""
    return lambda: _building[-1].tasks.append((function, retries))

"""How many random examples a test runs: bounded and the same every time by default, many and new with a full sweep.

A failure is made small only in a full sweep, since shrinking writes thousands of files:
``SWEEP=full pytest tests/conformance -k <the failing test>``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from sweeps import sweep_size

T = TypeVar("T")
_examples = {"share": 1}


def share_examples(share: int) -> None:
    """Run only one in so many of the examples from now on: for engines whose every call costs a job."""
    _examples["share"] = share


def run_examples(name: str, count: int, values: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check ``count`` random values, or as many as the size of the sweep makes of that.

    The name chooses the values of a bounded run, so that every parameter of a test meets values of its own. Hypothesis
    tries the simplest value first, which finds little and costs as much: a bounded run leaves it out.
    """
    sweep, left_out = sweep_size(), itertools.count()
    bounded = settings(
        max_examples=1 + max(1, int(count * sweep.examples) // _examples["share"]),
        database=None,
        deadline=None,
        print_blob=True,
        phases=tuple(Phase) if sweep.full else (Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )

    @bounded
    @given(values)
    def test(value: Any) -> None:
        if sweep.full or next(left_out):
            check(value)

    (test if sweep.full else seed(zlib.crc32(name.encode()))(test))()


def for_each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let one test run with each value, in a folder of its own: for facts of which a test of each would say no more.

    Engines on which few variations of a test run take as many of the values.
    """
    arguments, known = names.split(", "), list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters

        @functools.wraps(test)
        def run(engine: str, tmp_path: Path, **fixtures: Any) -> None:
            fixtures |= {"engine": engine} if "engine" in parameters else {}
            for number, value in enumerate(chosen(engine, test.__qualname__, known)):
                given = dict(zip(arguments, value if len(arguments) > 1 else [value], strict=True))
                folder = tmp_path / str(number)
                folder.mkdir()
                try:
                    test(tmp_path=folder, **fixtures, **given)
                except BaseException as error:
                    error.add_note(f"with {given}")
                    raise

        left = [each for name, each in parameters.items() if name not in (*arguments, "engine")]
        engine = inspect.Parameter("engine", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(run)["__signature__"] = inspect.Signature([*left, engine])
        return run

    return decorate


def chosen(engine: str, name: str, found: list[T]) -> list[T]:
    """Variations of a test, evenly spread; tests start at different ones, so that together they meet all."""
    sweep = sweep_size()
    first = zlib.crc32(name.encode()) % max(1, len(found))
    return sweep.sample(found[first:] + found[:first], sweep.variations.get(engine, len(found)))

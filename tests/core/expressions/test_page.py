"""Every operator and function on the page of expressions does what its example says, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.functions import FUNCTIONS
from fsspeckit.core.expressions.parse import SHARED_TYPE, parse_expression

PAGE = (Path(__file__).parents[3] / "docs" / "expressions.md").read_text("utf-8")
ROWS = re.findall(r"^\| .*? \| `(.+)` \| `(.*)` \|$", PAGE, re.MULTILINE)


def shown(value: Any) -> str:
    return "NULL" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(("example", "result"), ROWS, ids=[example for example, _ in ROWS])
def test_the_example_gives_the_result(example: str, result: str) -> None:
    expression = parse_expression(example.replace("\\|", "|"), pa.schema([]))
    (value,) = evaluate(expression, pa.table({"": pa.nulls(1)})).to_pylist()
    assert shown(value) == result


def test_every_function_is_on_the_page() -> None:
    documented = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    assert documented == {*FUNCTIONS, *SHARED_TYPE, "mod"}
    assert len(ROWS) > len(documented)

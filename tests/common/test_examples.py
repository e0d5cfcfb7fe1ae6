"""The examples in the docstrings of `fsspeckit.common` run and print what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["casting", "documents", "inference", "logging", "partitions", "schema", "text_values", "types"]
)
def test_docstring_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"fsspeckit.common.{name}"))
    assert result.attempted > 0
    assert result.failed == 0

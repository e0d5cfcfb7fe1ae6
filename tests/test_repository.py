"""The files around the code name what exists: workflows, hooks, the contributor's guide, hints how to install."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import fsspeckit
from fsspeckit import Dataset
from fsspeckit.common.install import DEVELOPMENT, extras, install_command

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
DECLARED = {
    each.rpartition(" ")[2] for each in PROJECT["project"]["classifiers"] if re.search(r":: Python :: 3\.\d+$", each)
}
TEXTS = [
    *(path for folder in ("src", "docs", "tests", "examples", "scripts") for path in (ROOT / folder).rglob("*.*")),
    *ROOT.glob("*.md"),
    ROOT / "Makefile",
]


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    called = [re.fullmatch(r"make ([a-z-]+)( PYTHON=python)?", command) for command in commands]
    assert all(called), commands
    assert {found[1] for found in called if found} <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_declared_versions_of_python(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    matrix = {
        version for job in jobs.values() for version in job.get("strategy", {}).get("matrix", {}).get("python", ())
    }
    chosen = {step["with"]["python-version"] for step in steps(workflow) if "setup-python" in step.get("uses", "")}
    assert {each for each in chosen if "${{" not in each} | matrix == DECLARED


def test_there_is_a_workflow() -> None:
    assert WORKFLOWS


def test_declared_versions_of_python_agree() -> None:
    lowest, above = re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"])
    assert {f"3.{minor}" for minor in range(int(lowest), int(above))} == DECLARED


def test_hooks_run_what_the_checks_run() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    for hook in (hook for repo in config["repos"] for hook in repo["hooks"]):
        program = hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude")
        assert f"\t$(BIN)/{program}\n" in recipe[1], hook


def test_the_issue_template_asks_for_the_doctor() -> None:
    forms = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]
    labels = [part["attributes"]["label"] for form in forms for part in form.get("body", ())]
    assert any("fsspeckit doctor --json" in label for label in labels)


def test_the_version_is_written_once() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert fsspeckit.__version__ in (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text()


def test_every_path_of_the_contributors_guide_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`([\w./-]*(?:/|\.(?:py|md|toml|yaml)))`", text) + re.findall(r"\]\(([^)]+)\)", text)
    assert len(named) > 30
    missing = [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src" / "fsspeckit"))]
    assert missing == []
    assert "`DEFAULT_ROW_GROUP`" in text
    assert len(text.splitlines()) < 60


def test_no_hint_installs_a_package_with_the_name_of_this_one() -> None:
    name = "fsspec" + "kit"
    hint = re.compile(rf"\binstall [^\n`]*\b{name}\b|\b{name}\[[a-z]")
    files = [path for path in TEXTS if path.is_file() and path.suffix in (".py", ".md", ".toml", ".sh", ".html", "")]
    wrong = [str(path) for path in files if hint.search(path.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.parametrize("extra", ["duckdb", "spark", "java", "s3", "gcs", "azure", "report", "cli"])
def test_hints_name_the_declared_versions(extra: str) -> None:
    from packaging.requirements import Requirement

    for text in PROJECT["project"]["optional-dependencies"][extra]:
        wanted = Requirement(text)
        (given,) = re.findall(r"'([^']+)'", install_command(wanted.name))
        assert Requirement(given) == wanted


@pytest.mark.parametrize("with_uv", [True, False])
def test_the_set_up_shows_what_it_does(tmp_path: Path, with_uv: bool) -> None:
    """Programs that print their arguments take the place of uv and pip, which need a network."""
    for name in ("uv", "venv/bin/pip"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{program.name}: $*"\n')
        program.chmod(0o755)
    command = ["sh", str(ROOT / "scripts" / "install.sh"), str(tmp_path / "venv"), "c.txt", "--editable", ".[test]"]
    env = {"PATH": os.environ["PATH"], "UV": str(tmp_path / "uv") if with_uv else ""}
    first, second = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    assert first.startswith("Installing --editable .[test] into ")
    assert second.startswith("uv: pip install --python" if with_uv else "pip: --disable-pip-version-check install")
    assert "--constraint c.txt --editable .[test]" in second
    assert "quiet" not in second


def test_every_version_is_pinned() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!-]+(?: *;.*)?", line)] == []
    setup = (ROOT / "Makefile").read_text() + (ROOT / "scripts" / "install.sh").read_text()
    assert re.findall(r"index-url|https?://|(?<![\w./$)])/(?:home|work|opt|usr)/", setup) == []


def test_every_extra_is_documented_and_checked() -> None:
    declared = PROJECT["project"]["optional-dependencies"]
    users = {name: packages for name, packages in declared.items() if name not in DEVELOPMENT}
    assert declared.keys() >= DEVELOPMENT
    names = {name: {re.split(r"[<>=!~\[]", each)[0] for each in packages} for name, packages in users.items()}
    assert {name: set(packages) for name, packages in extras().items()} == names
    table = (ROOT / "README.md").read_text().partition("| extra | for |\n|---|---|\n")[2].partition("\n\n")[0]
    listed = [name for line in table.splitlines() for name in re.findall(r"`([a-z0-9]+)`", line.split("|")[1])]
    assert sorted(listed) == sorted(users)
    checked = {check.name for check in Dataset("lake", engine="pyarrow").doctor().checks}
    assert {f"extra {name}" for name in users} <= checked


def test_every_page_is_in_the_list_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    internal = {"index.md", "reference.md", "reference-core.md", "compliance.md"}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - internal <= set(
        re.findall(r"\(docs/([\w-]+\.md)", text)
    )

"""Every snippet of README, CONTRIBUTING and docs runs, and prints what the page says it prints.

The Python snippets of a page run one after the other in one namespace and one empty working folder. A `text` block
right after a snippet is its expected output, where `...` stands for anything. In shell snippets `make <target>` is
checked to be a target, and a plain call of `fsspeckit` runs in this process; any other command runs in the same folder.
A `toml` block becomes the file that its first line names.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
OTHERS = ("integrations.md",)
"""Pages whose snippets need other programs: tests/integrations runs them in the environment of these programs."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in OTHERS),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Snippet:
    line: int
    language: str
    code: str
    output: str | None


def snippets(page: Path) -> Iterator[Snippet]:
    text = page.read_text("utf-8")
    blocks = list(FENCE.finditer(text))
    for block, follower in zip_longest(blocks, blocks[1:]):
        has_output = follower and follower[1] == "text" and not text[block.end() : follower.start()].strip()
        output = follower[2] if follower and has_output else None
        yield Snippet(text.count("\n", 0, block.start()) + 2, block[1], block[2], output)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def run_python(snippet: Snippet, page: Path, namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    padded = "\n" * (snippet.line - 1) + snippet.code
    exec(compile(padded, str(page), "exec", dont_inherit=True), namespace)
    printed = capsys.readouterr().out
    if snippet.output is not None:
        same = doctest.OutputChecker().check_output(snippet.output, printed, LOOSE)
        assert same, f"{page.name}:{snippet.line} prints\n{printed}\ninstead of\n{snippet.output}"


def run_shell(snippet: Snippet, page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fsspeckit.cli.app import main  # environments without the command line take names of this module

    for command in filter(None, (line.split("#")[0].strip() for line in snippet.code.splitlines())):
        if command.startswith("make "):
            assert command.split()[1] in targets(), f"{page.name}:{snippet.line}: no target for `{command}`"
            continue
        if command.startswith("fsspeckit ") and not set(command) & set("|<>&;$*~"):
            code = main(shlex.split(command)[1:])
            assert code == 0, f"{page.name}:{snippet.line}: {command}: {capsys.readouterr()}"
            capsys.readouterr()
            continue
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env={**os.environ, "PATH": path}, check=True
        )


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], memory_fs: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for snippet in snippets(page):
        match snippet.language:
            case "python":
                run_python(snippet, page, namespace, capsys)
            case "bash" | "console" | "sh":
                run_shell(snippet, page, tmp_path, capsys)
            case "toml":
                (tmp_path / snippet.code.splitlines()[0].removeprefix("# ")).write_text(snippet.code)
            case "text":
                pass
            case other:
                pytest.fail(
                    f"{page.name}:{snippet.line}: a block in {other!r} is not run; use python, bash, toml or text"
                )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text("utf-8")))
    assert named <= targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.spark
@pytest.mark.parametrize(
    "example",
    [path for path in sorted((ROOT / "examples").glob("*.py")) if path.name != "tour.py"],
    ids=lambda path: path.name,
)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    """The tour is run by tests/pipeline/test_tour.py."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()

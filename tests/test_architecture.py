"""What import contracts cannot say of the architecture."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import fsspeckit

ROOT = Path(__file__).parents[1]
SOURCES = Path(fsspeckit.__file__).parent
CHANGES = {
    *("publish", "retire", "remove", "remove_many", "remove_tree", "remove_dir_if_empty"),
    *("create_exclusive", "write_bytes", "make_dirs", "claim_staging", "link", "exchange"),
}
ALLOWED = ("core/storage/", "core/commit/")
PROBES = {"doctor.py"}  # writes a file beside a dataset to see whether it can, and deletes it


def calls_of_storage(tree: ast.AST) -> Iterator[str]:
    """Methods that change a storage, called on something that is named storage."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            owner = ast.unparse(node.func.value)
            if owner.rpartition(".")[2].lstrip("_") == "storage":
                yield node.func.attr


def test_only_the_commit_changes_a_dataset_folder() -> None:
    found = {}
    for path in SOURCES.rglob("*.py"):
        name = path.relative_to(SOURCES).as_posix()
        calls = sorted(calls_of_storage(ast.parse(path.read_text("utf-8"))))
        if calls and not name.startswith(ALLOWED) and name not in PROBES:
            found[name] = calls
    assert not found


def test_only_exchanges_import_the_kernels_of_exchanges() -> None:
    """Executors that run other kernels do not load them."""
    kernels = (SOURCES / "core" / "kernels").glob("*.py")
    assert [path.name for path in kernels if "core.kernels.exchange" in path.read_text("utf-8")] == []


def test_the_commit_would_be_found() -> None:
    texts = [(SOURCES / "core" / "commit" / name).read_text("utf-8") for name in ("publishing.py", "replay.py")]
    assert {"publish", "retire"} <= {call for text in texts for call in calls_of_storage(ast.parse(text))}


def test_the_diagram_of_the_packages_is_current() -> None:
    spec = spec_from_file_location("package_diagram", ROOT / "scripts" / "package_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    diagram = module_from_spec(spec)
    spec.loader.exec_module(diagram)
    drawn = (ROOT / "docs" / "packages.svg").read_text("utf-8")
    assert drawn == diagram.svg(), "run `python scripts/package_diagram.py`"
    assert drawn.count("<line") > 10


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*/__init__.py")), ids=lambda path: path.parent.name)
def test_each_package_says_what_it_owns_and_which_file_to_read_first(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert "Must not: " in text
    named = re.findall(r"[a-z_/]+\.py", text.partition("Read first: ")[2])
    assert named or "Read first: this file." in text
    assert all((path.parent / name).is_file() for name in named)


def test_the_page_of_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = re.findall(r"(?:core|datasets)/[a-z_/]+\.py", text)
    assert len(named) > 8
    assert [name for name in named if not (SOURCES / name).is_file()] == []


TESTS = Path(__file__).parent
PUBLIC = {
    *(
        "fsspeckit",
        "fsspeckit.api",
        "fsspeckit.cli",
        "fsspeckit.cli.app",
        "fsspeckit.cli.__main__",
        "fsspeckit.datasets",
        "fsspeckit.pipeline",
    ),
    *("fsspeckit.datasets.duckdb", "fsspeckit.datasets.pyarrow", "fsspeckit.datasets.spark"),
    *("fsspeckit.core", "fsspeckit.core.ext", "fsspeckit.core.incremental", "fsspeckit.core.merge"),
}
"""Modules that users import, besides those of `fsspeckit.common` and `fsspeckit.integrations`."""
KNOW_THE_INSIDE = ("core/", "inside.py", "inside_programs.py")
OWN = {
    "engines/duckdb/": "fsspeckit.datasets.duckdb.",
    "engines/spark/": "fsspeckit.datasets.spark.",
    **{f"{name}/": f"fsspeckit.{name}." for name in ("cli", "pipeline", "report")},
}
"""Folders whose tests are about a package that is not the core, and may import its modules."""


def modules_of(tree: ast.AST) -> Iterator[str]:
    """Modules of the package that a test imports, or names to change a value of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fsspeckit"):
            assert node.module is not None
            yield node.module
            names = [f"{node.module}.{each.name}" for each in node.names]
            yield from (name for name in names if (SOURCES.parent / name.replace(".", "/")).with_suffix(".py").exists())
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("fsspeckit"))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            first = node.args[0]
            if isinstance(first, ast.Constant) and str(first.value).startswith("fsspeckit."):
                yield str(first.value)


def test_tests_outside_the_core_import_what_users_import() -> None:
    found = {}
    for path in TESTS.rglob("*.py"):
        name = path.relative_to(TESTS).as_posix()
        if not name.startswith(KNOW_THE_INSIDE):
            own = [package for folder, package in OWN.items() if name.startswith(folder)]
            users = ("fsspeckit.common", "fsspeckit.integrations", *own)
            named = {each for each in modules_of(ast.parse(path.read_text("utf-8"))) if not each.startswith(users)}
            found |= {name: sorted(named - PUBLIC)} if named - PUBLIC else {}
    assert found == {}, "import it in tests/inside.py"

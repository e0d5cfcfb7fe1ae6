"""What import contracts cannot say of the architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fsspeckit

SOURCES = Path(fsspeckit.__file__).parent
CHANGES = {
    *("publish", "retire", "remove", "remove_tree", "remove_dir_if_empty"),
    *("create_exclusive", "write_bytes", "make_dirs", "claim_staging"),
}
ALLOWED = ("core/storage/", "core/commit/")
PROBES = {"cli/commands/doctor.py"}  # writes a file beside a dataset to see whether it can, and deletes it


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


def test_the_commit_would_be_found() -> None:
    text = (SOURCES / "core" / "commit" / "replay.py").read_text("utf-8")
    assert {"publish", "retire"} <= set(calls_of_storage(ast.parse(text)))

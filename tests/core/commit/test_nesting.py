"""If an outer and an inner dataset are created at the same time, at most one of them gets a journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsspeckit.common.errors import NestedDatasetError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.transaction import Transaction
from fsspeckit.core.storage import LocalStorage


def journal(path: Path) -> Journal:
    return Journal(LocalStorage(), str(path))


def start(path: Path) -> Transaction:
    opened = journal(path)
    return opened.begin(opened.view_to_change(), "test")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_inner_writer_detects_an_outer_dataset_created_after_its_check(tmp_path: Path) -> None:
    inner = journal(tmp_path / "a" / "b")
    view = inner.view_to_change()
    with start(tmp_path / "a"):
        before = names(tmp_path)
        with pytest.raises(NestedDatasetError, match="is inside the dataset"):
            inner.begin(view, "test")
        assert not (tmp_path / "a" / ".b.fsspeckit").exists()
        assert [name for name in names(tmp_path) if name != "a"] == before


def test_outer_writer_detects_an_inner_dataset_created_after_its_check(tmp_path: Path) -> None:
    outer = journal(tmp_path / "a")
    view = outer.view_to_change()
    with start(tmp_path / "a" / "b"):
        with pytest.raises(NestedDatasetError, match=r"contains .*\.b\.fsspeckit"):
            outer.begin(view, "test")
        assert not (tmp_path / ".a.fsspeckit").exists()

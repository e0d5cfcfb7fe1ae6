"""The tool that seeds bugs: its bugs fit the source, its changes are small and valid, and tests are chosen by reach."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

import fsspeckit
from bugs.named import BUGS, Bug, sources_of
from bugs.operators import is_valid, mutants_of
from bugs.reach import Reach
from bugs.run import DRAWN, ROOT, draw

SOURCES = sources_of(Path(fsspeckit.__file__).parent)
MODULE = '''
"""A module."""

class Files:
    limit: int = 3

    def first(self, names: list[str], sync: bool = True) -> bool:
        """Say something."""
        _logger.info("left alone")
        if not names or len(names) < self.limit:
            raise ValueError(f"{names} are {1 + 1}")
        with self.lock:
            self.sync(names[1:], deep=sync)
        return any(name for name in names if name != "a")
'''


def test_every_bug_fits_the_source_and_has_tests() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) > 60
    for bug in BUGS:
        mutant = bug.seed(SOURCES)
        changed = mutant.apply(SOURCES[mutant.file])
        assert changed != SOURCES[mutant.file], bug.name
        assert is_valid(changed), bug.name
        assert all((ROOT / path.partition("::")[0]).exists() for path in bug.tests), bug.name


def test_a_bug_is_found_in_formatted_and_in_moved_code() -> None:
    bug = Bug("limit", "Files.first", "len(names) < self.limit", "False", ())
    moved = {"a.py": "", "b.py": MODULE.replace("len(names) < self.limit", "len( names )<self . limit")}
    assert "if not names or (False):" in bug.seed(moved).apply(moved["b.py"])
    body = Bug("sync", "Files.first", "", "names = names[1:]\n...", ()).seed(moved)
    assert "names = names[1:]\n        'Say something.'" in body.apply(moved["b.py"])


@pytest.mark.parametrize(("old", "count"), [("len(names) > 1", 0), ("names", 5)])
def test_a_bug_that_does_not_fit_once_is_an_error(old: str, count: int) -> None:
    with pytest.raises(LookupError, match=rf"wrong: Files\.first has {count} places of '.*', not one"):
        Bug("wrong", "Files.first", old, "1", ()).seed({"a.py": MODULE})


def test_changes_are_those_of_a_careless_edit() -> None:
    found = {each.kind for each in mutants_of("a.py", MODULE)}
    assert {"condition negated", "not dropped", "comparison changed", "and, or", "error dropped"} <= found
    assert {"statement dropped", "context dropped", "argument deep dropped", "slice moved"} <= found
    assert {"filter dropped", "returns False", "another function"} <= found
    assert not [
        each for each in mutants_of("a.py", MODULE) if each.line in (5, 7, 8, 9, 11) and each.kind != "error dropped"
    ]
    assert {each.function for each in mutants_of("a.py", MODULE)} == {"Files.first"}


def test_a_draw_repeats_itself() -> None:
    found = draw(SOURCES, 60, 1, ["commit/"])
    assert found == draw(SOURCES, 60, 1, ["commit/"])
    assert found != draw(SOURCES, 60, 2, ["commit/"])
    assert all(is_valid(each.apply(SOURCES[each.file])) for each in found)
    assert len({each.kind for each in found}) > 8
    assert any(fnmatch(file, pattern) for pattern in DRAWN for file in SOURCES)
    assert {each.file for each in draw(SOURCES, 5, 1, ["commit/log"])} == {"core/commit/log.py"}


def test_the_cheapest_tests_that_reach_a_function_come_first() -> None:
    here, there = frozenset({"a.py:f"}), frozenset({"a.py:g", "b.py:h"})
    reach = Reach({"t::slow": (9.0, here), "t::fast": (0.1, here), "t::other": (0.5, there), "t::long": (50.0, here)})
    assert reach.tests_of("a.py", "f", 10) == ["t::fast", "t::slow"]
    assert reach.tests_of("a.py", "", 10) == ["t::fast", "t::other", "t::slow"]
    assert reach.tests_of("a.py", "new", 1) == ["t::fast", "t::other"]
    many = Reach({f"t::same[{number}]": (0.1, here) for number in range(9)})
    assert len(many.tests_of("a.py", "f", 10)) == 4

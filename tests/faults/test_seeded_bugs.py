"""The bugs of `seeded_bugs.py` still fit the source; `make seeded-bugs` checks that tests find them."""

from __future__ import annotations

import pytest

from faults.seeded_bugs import BUGS, Bug, check


def test_every_bug_fits_the_source_and_has_tests() -> None:
    check()
    assert len(BUGS) >= 20
    assert len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.parametrize("old", ["self._storage", "no such line"])
def test_a_replacement_that_does_not_fit_once_is_an_error(old: str) -> None:
    bug = Bug("wrong", "core/commit/log.py", old, "", ("tests/core/commit",))
    with pytest.raises(SystemExit, match=r"times in core/commit/log\.py, not once"):
        check([bug])

"""Which files overlap, from the bounds of their values."""

from __future__ import annotations

import numpy as np
import pytest

from fsspeckit.core.planning.file_overlap import runs_overlap

INF = np.inf


@pytest.mark.parametrize(
    ("ends", "runs", "expected"),
    [
        ([(0, 5), (3, 9)], "ab", [True, True]),
        ([(0, 5), (3, 9)], "aa", [False, False]),
        ([(0, 5), (5, 9)], "ab", [False, False]),
        ([(5, 5), (5, 9)], "ab", [False, False]),
        ([(0, 9), (5, 5)], "ab", [True, True]),
        ([(0, INF), (5, 9)], "ab", [True, True]),
        ([(0, INF), (INF, INF)], "ab", [False, False]),
        ([(-INF, INF), (5, 9)], "ab", [False, False]),
        ([(0, 9), (1, 2), (3, 4), (10, 12)], "abba", [True, True, True, False]),
    ],
)
def test_files_of_different_runs_overlap(ends: list[tuple[float, float]], runs: str, expected: list[bool]) -> None:
    assert runs_overlap(np.array(ends, dtype=float), list(runs)).tolist() == expected


def test_a_file_without_a_run_is_ignored() -> None:
    assert not runs_overlap(np.array([(0.0, 5.0), (3.0, 9.0)]), ["a", ""]).any()

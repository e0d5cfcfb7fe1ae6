"""Odd and damaged csv and json files: a typed error or the rows that Python's own modules read, and no crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faults.odd_texts import Case
from faults.text_files import try_out
from sweeps import sweep_size

PROGRAM = Path(__file__).with_name("text_files.py")


@pytest.mark.sweep
def test_odd_text_files() -> None:
    """In processes of their own, since a file may end one; a full sweep reads a hundred thousand."""
    count = str(sweep_size().size(ci=600, full=100_000))
    command = [sys.executable, str(PROGRAM), "--count", count, "--seed", "23"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.endswith(", 0 bad\n")


@pytest.mark.parametrize(
    "case",
    [
        Case("json", b'{"a": 1, "b": "01"}\n{"a": 2.5, "b": null, "c": [{"d": 18446744073709551615}]}\n'),
        Case("csv", b'a,b,c\n1,"x\ny",1.50\n-7,"a""b",\n'),
    ],
)
def test_sound_files_are_read(case: Case) -> None:
    """Else the test above could pass because every file is refused."""
    assert try_out(case) == "ok"

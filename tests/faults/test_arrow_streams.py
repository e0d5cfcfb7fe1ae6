"""Damaged Arrow IPC data gives a typed error or is read, and never crashes the process."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from faults.arrow_streams import sound_streams
from fsspeckit.common.errors import SourceFileError
from inside import read_ipc
from sweeps import sweep_size

PROGRAM = Path(__file__).with_name("arrow_streams.py")


@pytest.mark.sweep
def test_damaged_streams() -> None:
    """Runs in child processes, because damaged data can crash one."""
    command = [sys.executable, str(PROGRAM), str(sweep_size().size(ci=40, full=5_000)), "17"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.endswith(", 0 bad\n")


@pytest.mark.parametrize("form", [0, 1])
def test_an_offset_outside_its_buffer_is_an_error(form: int) -> None:
    data = bytearray(sound_streams()[form])
    at = bytes(data).find(struct.pack("<4i", 0, 0, 6, 12))  # the offsets of the first texts
    assert at > 0
    data[at + 11] ^= 0x40
    with pytest.raises(SourceFileError, match="standard input is not an Arrow IPC stream, or is damaged"):
        read_ipc(io.BufferedReader(io.BytesIO(bytes(data))), "standard input")


@pytest.mark.parametrize("form", [0, 1])
def test_sound_data_is_read(form: int) -> None:
    table = read_ipc(io.BufferedReader(io.BytesIO(sound_streams()[form])), "standard input")
    assert table["id"].to_pylist() == list(range(20))
    assert table["text"].to_pylist() == table["view"].to_pylist() == table["code"].cast(pa.string()).to_pylist()

"""CPU time and peak memory of the processes of a run: the driver's Python, its Java, and the Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MB = 1e6
_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"


class Processes:
    """This process and its descendants since the object was created. Resets their peaks of memory."""

    def __init__(self) -> None:
        self._before = cpu_seconds()
        for process in (os.getpid(), *java_processes()):
            Path(f"/proc/{process}/clear_refs").write_text(_RESET_PEAK)

    def facts(self) -> dict[str, float]:
        """Return CPU seconds of all processes, and the peaks of the driver's Python and Java in MB."""
        java = sum(peak_mb(process) for process in java_processes())
        return {"cpu_s": cpu_seconds() - self._before, "python_mb": peak_mb(os.getpid()), "java_mb": java}


def cpu_seconds() -> float:
    """Return the CPU time of this process, its descendants, and those of them that have ended."""
    return sum(_ticks(process) for process in (os.getpid(), *_descendants(os.getpid()))) / _TICKS


def java_processes() -> list[int]:
    """Return the Java process of the driver."""
    return [process for process in _children(os.getpid()) if _name(process) == "java"]


def peak_mb(process: int) -> float:
    """Return the high-water mark of the memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / _MB
    raise RuntimeError("no VmHWM; the benchmarks need Linux")


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(value) for value in fields[11:15])  # user and system time, of the process and of ended children


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _descendants(process: int) -> Iterator[int]:
    for child in _children(process):
        yield child
        yield from _descendants(child)


def _children(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found

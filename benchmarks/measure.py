"""Measure one run in a separate process: `python -m benchmarks.measure` with a specification as JSON.

Imports and the loading of the source are not timed and are reported separately. Peak memory is the high-water mark of
the process, including mapped file pages.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.data import load_source
from benchmarks.job import Job, Where, find_contender

_MB = 1e6


def run(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run a contender once and return its time, CPU time, memory and reads."""
    begin = time.perf_counter()
    contender = find_contender(spec["contender"])
    job = Job(
        Path(spec["target"]),
        load_source(Path(spec["source"])),
        spec["strategy"],
        tuple(spec["affected"]),
        Where(*spec["where"]) if spec["where"] else None,
        load_source(Path(spec["full"])) if spec["full"] else None,
    )
    work = contender(job)
    prepared = time.perf_counter() - begin
    io, cpu, start = _io(), _cpu(), time.perf_counter()
    facts = work() or {}
    wall = time.perf_counter() - start
    cpu, after = _cpu() - cpu, _io()
    return {
        "wall": wall,
        "cpu": cpu,
        "peak_mb": _peak_mb(),
        "prepare": prepared,
        "disk_read_mb": (after["read_bytes"] - io["read_bytes"]) / _MB,
        "call_read_mb": (after["rchar"] - io["rchar"]) / _MB,
        "written_mb": (after["wchar"] - io["wchar"]) / _MB,
        **facts,
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _io() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def _peak_mb() -> float:
    """Return the high-water mark of the kernel; `ru_maxrss` would include the peak of the parent process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / _MB
    raise RuntimeError("no VmHWM in /proc/self/status; the benchmarks need Linux")


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))

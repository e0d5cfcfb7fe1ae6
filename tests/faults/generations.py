"""A dataset whose rows all have the same generation, so that any mixture of two commits is visible.

Also the program of the kill tests (``python -m faults.generations FOLDER KILLS SEED WRITER``): it forks writers, kills
each with -9 at a random time, and checks the dataset in another fork, so that the parent starts no thread and can be
forked again.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import LocalStorage, is_data_file, left_behind, recover

ROWS = 20


def table(generation: int) -> pa.Table:
    """Every row at a generation; most of them in another partition than before."""
    parts = [(number + generation) % 3 for number in range(ROWS)]
    return pa.table({"id": range(ROWS), "value": [generation] * ROWS, "part": parts})


def write_generation(root: str, generation: int) -> None:
    """Set every row to a generation: alternately in place and by replacing all files."""
    if generation % 2:
        PyarrowDatasetIO(publish="replace").update(root, set={"value": str(generation)}, where="true")
    else:
        PyarrowDatasetIO().write_dataset(table(generation), root, mode="overwrite", partition_by="part")


def change_generation(root: str, generation: int, publish: Any = "new_names") -> None:
    """Set every row to a generation: alternately by an update and by a change feed that moves most rows."""
    io = PyarrowDatasetIO(publish=publish)
    if generation % 2:
        io.update(root, set={"value": str(generation)}, where="true")
    else:
        io.apply_changes(table(generation), root, key_columns="id", sequence_by="value", delete_when="value < 0")


def exchange_generation(root: str, generation: int) -> None:
    """The same by exchanges of folders, in a dataset that keeps versions."""
    if not any(each.readable for each in PyarrowDatasetIO().history(root)):
        PyarrowDatasetIO().keep_history(root)
    change_generation(root, generation, "exchange")


WRITERS = {"in place": write_generation, "row changes": change_generation, "kept exchanges": exchange_generation}


def generation_of(rows: Counter[tuple[int, int]]) -> int:
    """Return the generation of the rows. Raise if there is more than one."""
    generations = {value for _, value in rows}
    if len(generations) != 1 or sorted(rows.elements()) != [(number, min(generations)) for number in range(ROWS)]:
        raise AssertionError(f"not one generation: {sorted(rows.elements())}")
    return generations.pop()


def read_ours(root: str, version: int | None = None) -> int:
    """Return the generation that our own reader sees."""
    found = PyarrowDatasetIO().read_parquet(root, version=version)
    return generation_of(Counter(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True)))


def read_raw(root: str) -> Counter[tuple[int, int]]:
    """Return the rows that a reader without fsspeckit sees."""
    rows: Counter[tuple[int, int]] = Counter()
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if is_data_file(os.path.relpath(path, root)):
                with open(path, "rb") as file:
                    table = pq.ParquetFile(pa.BufferReader(file.read())).read()
                rows.update(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))
    return rows


def judge(root: str, last_reported: int) -> int:
    """Check after a kill that all readers see the last reported generation or the next one, and return it."""
    storage, seen = LocalStorage(), read_ours(root)
    recover(storage, root)
    found = generation_of(read_raw(root))
    if found != seen or found not in (last_reported, last_reported + 1):
        raise AssertionError(f"reported {last_reported}, our reader saw {seen}, after recovery {found}")
    if recover(storage, root) or left_behind(storage, root):
        raise AssertionError("a second recovery found something to do, or something is left")
    readable = [each.version for each in PyarrowDatasetIO().history(root)[:12] if each.readable]
    versions = [read_ours(root, number) for number in readable]
    if versions != sorted(versions, reverse=True) or (versions and versions[0] != found):
        raise AssertionError(f"the versions {readable} have the generations {versions}")
    return found


def _write_on(writer: str, root: str, generation: int, report: int) -> None:
    while True:
        generation += 1
        WRITERS[writer](root, generation)
        os.write(report, f"{generation}\n".encode())


def _fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Run in a child process. Return its id and the read end of its pipe."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        work(writer)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child must not run on into the parent's code
        traceback.print_exc()
        os._exit(1)


def _read_all(reader: int) -> list[int]:
    content = b""
    while chunk := os.read(reader, 65536):
        content += chunk
    os.close(reader)
    return [int(line) for line in content.decode().splitlines() if line]


def kill_many(root: str, count: int, seed: int, writer: str) -> int:
    """Kill ``count`` writers and return how many commits they reported. Raise on the first violation."""
    rng = random.Random(seed)
    generation = commits = 0
    pa.array([0])  # imports what Arrow imports late once here instead of in every child
    child, reader = _fork(lambda report: write_generation(root, 0))
    if os.waitpid(child, 0)[1]:
        raise AssertionError("the first generation could not be written")
    os.close(reader)
    for number in range(count):
        child, reader = _fork(lambda report, start=generation: _write_on(writer, root, start, report))  # type: ignore[misc]
        select.select([reader], [], [], 10)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reported = _read_all(reader)
        commits += len(reported)
        last = max(reported, default=generation)
        judged, answer = _fork(lambda report, last=last: void(os.write(report, f"{judge(root, last)}\n".encode())))  # type: ignore[misc]
        status = os.waitpid(judged, 0)[1]
        found = _read_all(answer)
        if status or not found:
            raise AssertionError(f"violation after kill {number}, seed {seed}")
        generation = found[0]
    return commits


def void(_: object) -> None:
    """Discard a result."""


if __name__ == "__main__":
    folder, how_many, random_seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(kill_many(f"{folder}/ds", how_many, random_seed, sys.argv[4]))

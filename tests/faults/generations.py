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

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.transaction import Changes, Publish
from fsspeckit.core.file_names import is_data_file
from fsspeckit.core.parquet.reader import open_file
from fsspeckit.core.storage import LocalStorage, Storage, join
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = 20
_JUDGED_VERSIONS = 12
FILES = 4


def write_generation(storage: Storage, root: str, generation: int) -> None:
    """Set every row to a generation: alternately in place and by replacing all files."""
    journal = Journal(storage, root)
    journal.recover()
    view = journal.view()
    in_place = storage.in_place and generation % 2 == 0 and len(view.files) == FILES
    with journal.begin(view, f"generation {generation}") as transaction:
        publish = []
        for number in range(FILES):
            data = pa.table({"id": list(range(number, ROWS, FILES)), "value": [generation] * (ROWS // FILES)})
            staged = transaction.staged_path()
            with storage.open_output(staged) as file:
                pq.write_table(data, file)
            fresh = f"part={(number + generation) % 3}/g{generation}-{number}.parquet"
            path = view.files[number].path if in_place else fresh
            publish.append(Publish(staged, path, data.num_rows, replaces=in_place))
        retire = () if in_place else tuple(file.path for file in view.files)
        transaction.commit(Changes(tuple(publish), retire, complete_view=True))


def change_generation(storage: Storage, root: str, generation: int) -> None:
    """Set every row to a generation: alternately by an update and by a change feed that moves most rows."""
    io = PyarrowDatasetIO(filesystem=storage, publish=Journal.publish)
    if generation % 2:
        io.update(root, set={"value": str(generation)}, where="true")
        return
    parts = [(number + generation) % 3 for number in range(ROWS)]
    feed = pa.table({"id": list(range(ROWS)), "value": [generation] * ROWS, "part": parts})
    io.apply_changes(feed, root, key_columns="id", sequence_by="value", delete_when="value < 0")


def keep_generation(storage: Storage, root: str, generation: int) -> None:
    """Set every row to a generation in a dataset that keeps versions."""
    if not Journal(storage, root).view().log.retain:
        PyarrowDatasetIO(filesystem=storage).keep_history(root)
    write_generation(storage, root, generation)


def exchange_generation(storage: Storage, root: str, generation: int) -> None:
    """Set every row to a generation by an exchange of folders, in a dataset that keeps versions."""
    Journal.publish = "exchange"
    keep_generation(storage, root, generation)


WRITERS = {
    "commits": write_generation,
    "row changes": change_generation,
    "kept versions": keep_generation,
    "exchanges": exchange_generation,
}


def generation_of(rows: Counter[tuple[int, int]]) -> int:
    """Return the generation of the rows. Raise if there is more than one."""
    generations = {value for _, value in rows}
    if len(generations) != 1 or sorted(rows.elements()) != [(number, min(generations)) for number in range(ROWS)]:
        raise AssertionError(f"not one generation: {sorted(rows.elements())}")
    return generations.pop()


def read_view(storage: Storage, view: View) -> Counter[tuple[int, int]]:
    """Return the rows of a view. Raise FileNotFoundError if the view is out of date."""
    rows: Counter[tuple[int, int]] = Counter()
    for file in view.files:
        with open_file(storage, file) as opened:
            table = pq.ParquetFile(opened).read()
        rows.update(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))
    return rows


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
    storage = LocalStorage()
    seen = generation_of(read_view(storage, Journal(storage, root).view()))
    Journal(storage, root).recover()
    found = generation_of(read_raw(root))
    if found != seen or found not in (last_reported, last_reported + 1):
        raise AssertionError(f"reported {last_reported}, our reader saw {seen}, after recovery {found}")
    sidecar = SidecarLocations(storage, root).find()
    if sidecar is None or Log(storage, sidecar).stagings() or Log(storage, sidecar).state().is_pending:
        raise AssertionError(f"something is left in {sidecar}")
    if Journal(storage, root).recover():
        raise AssertionError("a second recovery found something to do")
    judge_versions(storage, root, found)
    return found


def judge_versions(storage: Storage, root: str, newest: int) -> None:
    """Check that the last kept versions have one generation each, in order."""
    journal = Journal(storage, root)
    versions = journal.versions(journal.view(), root)
    readable = [each.version for each in versions.history[:_JUDGED_VERSIONS] if each.readable]
    found = [generation_of(read_view(storage, versions.view_of(number))) for number in readable]
    if found != sorted(found, reverse=True) or (found and found[0] != newest):
        raise AssertionError(f"the versions {readable} have the generations {found}")


def _write_on(writer: str, root: str, generation: int, report: int) -> None:
    storage = LocalStorage()
    while True:
        generation += 1
        WRITERS[writer](storage, root, generation)
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
    child, reader = _fork(lambda report: write_generation(LocalStorage(), root, 0))
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
    print(kill_many(join(folder, "ds"), how_many, random_seed, sys.argv[4]))

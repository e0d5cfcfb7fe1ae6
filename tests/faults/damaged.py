"""Run every operation on files that may be damaged, each in its own process, so that a crash is detected.

As a program, this module runs all operations on the files of a folder, such as a checkout of apache/parquet-testing
or apache/arrow-testing, or on files that it damages itself, and prints the outcomes:

    python tests/faults/damaged.py --engine pyarrow --engine duckdb path/to/parquet-testing/data
    python tests/faults/damaged.py --engine pyarrow --damage 10000 --seed 1

An outcome is ``ok`` (the rows are those that pyarrow reads, less and plus what the operation counts), ``typed`` (an
error of fsspeckit, and no data file changed), or one of the bad ones: ``lost``, ``untyped``, ``changed``, ``signal``,
``hang``.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GOOD = ("ok", "typed")
_SECONDS = 120
_MEMORY = 12 << 30
_SAMPLE = 3
_COPIES = {"compact": 3, "optimize": 2, "deduplicate": 2}

Operation = Callable[[Any, str, pa.Table, str], int]
"""Run on a folder with rows and a key column. Return by how many rows the dataset must have grown."""


def _merged(strategy: str) -> Operation:
    def run(io: Any, folder: str, rows: pa.Table, key: str) -> int:
        options = {"null_keys": "match", "on_duplicate_source": "last"}
        result = io.merge(rows, folder, strategy=strategy, key_columns=[key], **options)
        assert min(result.inserted, result.updated, result.deleted) >= 0, result
        return int(result.inserted - result.deleted)

    return run


def _deleted(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    first = rows[key][0].as_py() if rows.num_rows and key in rows.column_names else None
    result = io.delete(folder, where=(pc.field(key) == first) if first is not None else pc.field(key).is_null())
    return -int(result.deleted)


def _set_to_null(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    other = next((name for name in rows.column_names if name != key), key)
    quoted = other.replace('"', '""')
    io.update(folder, set={other: "NULL"}, where=f'"{quoted}" IS NOT NULL')
    return 0


def _fed(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    quoted = key.replace('"', '""')
    result = io.apply_changes(
        rows, folder, key_columns=[key], sequence_by=rows.column_names[:2][-1], delete_when=f'"{quoted}" IS NULL'
    )
    return int(result.inserted - result.deleted)


def _deduplicated(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    return -int(io.deduplicate_parquet_dataset(folder, key_columns=[key], null_keys="match")["deduplicated_rows"])


def _unchanged(call: Callable[[Any, str, str], Any]) -> Operation:
    def run(io: Any, folder: str, rows: pa.Table, key: str) -> int:
        call(io, folder, key)
        return 0

    return run


def _appended(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    return int(io.write_dataset(rows, folder, mode="append").rows)


def _read(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    found, expected = io.read_parquet(folder).num_rows, _count(Path(folder))
    return 0 if expected is None else int(expected - found)


OPERATIONS: dict[str, Operation] = {
    "read": _read,
    "append": _appended,
    "upsert": _merged("upsert"),
    "update": _merged("update"),
    "full_merge": _merged("full_merge"),
    "compact": _unchanged(lambda io, folder, key: io.compact_parquet_dataset(folder, target_rows_per_file=10**9)),
    "optimize": _unchanged(lambda io, folder, key: io.optimize_parquet_dataset(folder, zorder_columns=[key])),
    "deduplicate": _deduplicated,
    "delete": _deleted,
    "set": _set_to_null,
    "feed": _fed,
    "plan": _unchanged(lambda io, folder, key: io.optimize_parquet_dataset(folder, zorder_columns=[key], dry_run=True)),
}
_WITH_ROWS = ("append", "upsert", "update", "full_merge", "feed")


@dataclass(frozen=True, slots=True)
class Case:
    """A file to test, and the valid file that it was made from; without one, the dataset holds copies of the file."""

    name: str
    data: bytes
    sound: bytes | None = None

    def dataset(self, folder: Path, files: int) -> None:
        """Create a folder with the file and others."""
        folder.mkdir()
        for number in range(files):
            content = self.data if number == 0 or self.sound is None else self.sound
            (folder / f"{number}.parquet").write_bytes(content)


def make_io(engine: str) -> Any:
    """Return a DatasetIO of an engine."""
    if engine == "pyarrow":
        from fsspeckit.datasets.pyarrow import PyarrowDatasetIO as Io
    elif engine == "duckdb":
        from fsspeckit.datasets.duckdb import DuckDBDatasetIO as Io
    else:
        from fsspeckit.datasets.spark import SparkDatasetIO as Io
    return Io()


def try_out(io: Any, name: str, case: Case) -> str:
    """Run an operation on a dataset with the file, and return the outcome."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "ds"
        case.dataset(folder, _COPIES.get(name, 1))
        rows = _some_rows(case.data if case.sound is None else case.sound)
        if rows is None and name in _WITH_ROWS:
            return "ok"  # there is nothing that could be merged into it
        return _outcome(io, name, folder, _schema(folder / "0.parquet").empty_table() if rows is None else rows)


def _outcome(io: Any, name: str, folder: Path, rows: pa.Table) -> str:
    from fsspeckit.common.errors import FsspeckitError

    before, files = _count(folder), _bytes(folder)
    try:
        grown = OPERATIONS[name](io, str(folder), rows, _key(rows.schema))
    except FsspeckitError as error:
        unchanged = _bytes(folder) == files
        return f"typed {type(error).__name__}: {error}" if unchanged else f"changed {error}"
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        if type(error) is ValueError and "zorder_columns names" in str(error):
            return "typed a column has another name"
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"untyped {type(error).__name__}: {error} at {last.filename}:{last.lineno}"
    after = _count(folder)
    if before is not None and after != before + grown:
        return f"lost {before} rows became {after}, which should be {before + grown}"
    return "ok"


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _count(folder: Path) -> int | None:
    """Return the number of rows that pyarrow decodes, or None."""
    try:
        return sum(pq.ParquetFile(path).read().num_rows for path in folder.rglob("*.parquet"))
    except Exception:  # noqa: BLE001 - a file that nobody can read has no rows to lose
        return None


def _some_rows(data: bytes) -> pa.Table | None:
    try:
        rows = pq.ParquetFile(pa.BufferReader(data)).read().slice(0, _SAMPLE)
        rows.validate(full=True)
    except Exception:  # noqa: BLE001 - see above
        return None
    return rows


def _schema(file: Path) -> pa.Schema:
    try:
        return pq.read_schema(file)
    except Exception:  # noqa: BLE001 - see above
        return pa.schema([])


def _key(schema: pa.Schema) -> str:
    wanted = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, lambda type_: not pa.types.is_nested(type_))
    names = [field.name for is_it in wanted for field in schema if is_it(field.type)]
    return next(iter([*names, *schema.names]), "id")


def in_child(work: Callable[[int], None]) -> tuple[list[str], str]:
    """Run a function in a forked process with limits. Return the lines that it writes, and its end."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.alarm(_SECONDS)
        work(write_end)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answers:
        lines = answers.read().decode(errors="replace").splitlines()
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return lines, "" if status == 0 else f"signal exit status {status}"
    number = os.WTERMSIG(status)
    return lines, "hang" if number == signal.SIGALRM else f"signal {signal.Signals(number).name}"


def outcomes(engine: str, case: Case, operations: Sequence[str], io: Any = None) -> Iterator[tuple[str, str]]:
    """Yield the outcome of each operation on a file; with an ``io``, run in this process."""
    if io is not None:
        yield from ((name, try_out(io, name, case)) for name in operations)
        return

    def work(sink: int) -> None:
        own = make_io(engine)
        for name in operations:
            line = try_out(own, name, case).replace("\n", " ")[:2000]
            os.write(sink, f"{line}\n".encode(errors="replace"))

    lines, end = in_child(work)
    yield from zip(operations, lines, strict=False)
    if end:
        yield operations[min(len(lines), len(operations) - 1)], end


def sound_files(folder: Path) -> dict[str, bytes]:
    """Return files of six kinds: writers, layouts, nested columns, indexes and metadata."""
    import duckdb
    import polars as pl

    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

    ids, texts = list(range(40)), [f"text {i % 7}" for i in range(40)]
    flat = pa.table({"id": ids, "text": texts, "value": [i / 3 for i in ids], "day": pa.array(ids, pa.date32())})
    nested = flat.append_column("tags", pa.array([[t, None] if i % 3 else None for i, t in enumerate(texts)]))
    nested = nested.append_column("point", pa.array([{"x": i, "y": None} if i % 4 else None for i in ids]))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(flat, folder / "flat", row_group_size=15)
    pq.write_table(nested, folder / "nested", compression="zstd", row_group_size=25)
    indexed = {"write_page_index": True, "bloom_filter_options": {"id": {"ndv": 40}}, "write_page_checksum": True}
    pq.write_table(flat, folder / "indexed", data_page_version="2.0", use_dictionary=False, **indexed)
    duckdb.sql(f"COPY (SELECT * FROM flat) TO '{folder}/duckdb' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    pl.from_arrow(nested).write_parquet(folder / "polars", row_group_size=16)
    PyarrowDatasetIO().write_dataset(flat, folder / "own")
    PyarrowDatasetIO().optimize_parquet_dataset(folder / "own", zorder_columns=["id", "text"], curve="zorder")
    (own,) = (folder / "own").glob("*.parquet")
    names = ("flat", "nested", "indexed", "duckdb", "polars")
    return {name: (folder / name).read_bytes() for name in names} | {"own": own.read_bytes()}


def damaged(sound: bytes, rng: random.Random) -> bytes:
    """Return the file with flipped bits in its footer, or with a part of the footer removed."""
    length = int.from_bytes(sound[-8:-4], "little") + 8
    data, kind = bytearray(sound), rng.random()
    if kind < 0.8:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data[len(data) - rng.randint(1, length)] ^= 1 << rng.randrange(8)
    elif kind < 0.9:
        del data[len(data) - rng.randint(1, length) :]
    else:
        start = len(data) - rng.randint(9, length)
        del data[start : start + rng.randint(1, 8)]
    return bytes(data)


def _damaged_cases(count: int, seed: int) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as base:
        files = sound_files(Path(base) / "sound")
    rng, names = random.Random(seed), list(files)
    for number in range(count):
        name = names[number % len(names)]
        yield Case(f"{name} {number}", damaged(files[name], rng), files[name])


def _cases(asked: argparse.Namespace) -> Iterator[Case]:
    if asked.damage:
        yield from _damaged_cases(asked.damage, asked.seed)
    files = [file for path in asked.paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    for file in files:
        if file.is_file() and file.suffix in (".parquet", ".encrypted", ""):
            yield Case(file.name, file.read_bytes())


def main() -> int:
    """Run on files, and print the bad outcomes and the number of each outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files, or folders of files")
    parser.add_argument("--damage", type=int, default=0, help="how many files to damage here, of six kinds")
    parser.add_argument("--seed", type=int, default=1, help="repeats the same damage")
    parser.add_argument("--engine", action="append", choices=["pyarrow", "duckdb", "spark"])
    parser.add_argument("--operation", action="append", choices=list(OPERATIONS))
    parser.add_argument("--verbose", action="store_true", help="print every outcome")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    bad, cases, counted = 0, 0, Counter[str]()
    for engine in asked.engine or ["pyarrow"]:
        io = make_io(engine) if engine == "spark" else None  # its executors are other processes anyway
        make_io(engine)
        for case in _cases(asked):
            cases += 1
            for name, outcome in outcomes(engine, case, asked.operation or list(OPERATIONS), io):
                kind = outcome.partition(" ")[0]
                counted[f"{engine} {name} {kind}"] += 1
                bad += kind not in GOOD
                if asked.verbose or kind not in GOOD:
                    print(engine, name, case.name, outcome[:600], flush=True)
    for line, count in sorted(counted.items()):
        print(f"{count:6} {line}")
    print(f"{cases} files, {sum(counted.values())} outcomes, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

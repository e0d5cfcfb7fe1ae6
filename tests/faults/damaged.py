"""Every operation over files that may be damaged, each in a process of its own, so that its death can be told.

As a program it runs all operations over the files of a folder, such as a checkout of apache/parquet-testing or
apache/arrow-testing, and prints what came of it:

    python tests/faults/damaged.py --engine pyarrow --engine duckdb path/to/parquet-testing/data

An outcome is ``ok`` (the rows are those that pyarrow reads, less and plus what the operation counts), ``typed`` (an
error of fsspeckit that names a file, and nothing changed), or one of the bad ones: ``lost``, ``untyped``, ``changed``,
``signal``, ``hang``.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GOOD = ("ok", "typed")
_SECONDS = 120
_MEMORY = 12 << 30
_SAMPLE = 3
_COPIES = {"compact": 3, "optimize": 2, "deduplicate": 2}

Operation = Callable[[Any, str, pa.Table, str], int | None]
"""Runs on a folder with some rows and a key column; returns by how many rows the dataset must have grown."""


def _merged(strategy: str) -> Operation:
    def run(io: Any, folder: str, rows: pa.Table, key: str) -> int:
        options = {"null_keys": "match", "on_duplicate_source": "last"}
        result = io.merge(rows, folder, strategy=strategy, key_columns=[key], **options)
        assert min(result.inserted, result.updated, result.deleted) >= 0, result
        return int(result.inserted - result.deleted)

    return run


def _deduplicated(io: Any, folder: str, rows: pa.Table, key: str) -> int:
    return -int(io.deduplicate_parquet_dataset(folder, key_columns=[key], null_keys="match")["deduplicated_rows"])


def _nothing(call: Callable[[Any, str, str], Any]) -> Operation:
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
    "compact": _nothing(lambda io, folder, key: io.compact_parquet_dataset(folder, target_rows_per_file=10**9)),
    "optimize": _nothing(lambda io, folder, key: io.optimize_parquet_dataset(folder, zorder_columns=[key])),
    "deduplicate": _deduplicated,
    "plan": _nothing(lambda io, folder, key: io.compact_parquet_dataset(folder, target_rows_per_file=9, dry_run=True)),
}
_WITH_ROWS = ("append", "upsert", "update", "full_merge")


def make_io(engine: str) -> Any:
    """A DatasetIO of an engine."""
    if engine == "pyarrow":
        from fsspeckit.datasets.pyarrow import PyarrowDatasetIO as Io
    elif engine == "duckdb":
        from fsspeckit.datasets.duckdb import DuckDBDatasetIO as Io
    else:
        from fsspeckit.datasets.spark import SparkDatasetIO as Io
    return Io()


def try_out(io: Any, name: str, file: Path, like: pa.Table | None = None) -> str:
    """Run an operation on a dataset of copies of a file, and say what came of it."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "ds"
        folder.mkdir()
        for number in range(_COPIES.get(name, 1)):
            shutil.copy(file, folder / f"{number}.parquet")
        rows = _some_rows(file) if like is None else like
        if rows is None and name in _WITH_ROWS:
            return "ok"  # there is nothing that could be merged into it
        return _outcome(io, name, folder, _schema(file).empty_table() if rows is None else rows)


def _outcome(io: Any, name: str, folder: Path, rows: pa.Table) -> str:
    from fsspeckit.common.errors import FsspeckitError

    before, files = _count(folder), _bytes(folder)
    try:
        grown = OPERATIONS[name](io, str(folder), rows, _key(rows.schema))
    except FsspeckitError as error:
        unchanged = _bytes(folder) == files
        return f"typed {type(error).__name__}: {error}" if unchanged else f"changed {error}"
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"untyped {type(error).__name__}: {error} at {last.filename}:{last.lineno}"
    after = _count(folder)
    if before is not None and grown is not None and after != before + grown:
        return f"lost {before} rows became {after}, which should be {before + grown}"
    return "ok"


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _count(folder: Path) -> int | None:
    """Rows that pyarrow decodes, if it can."""
    try:
        return sum(pq.ParquetFile(path).read().num_rows for path in folder.rglob("*.parquet"))
    except Exception:  # noqa: BLE001 - a file that nobody can read has no rows to lose
        return None


def _some_rows(file: Path) -> pa.Table | None:
    try:
        rows = pq.ParquetFile(file).read().slice(0, _SAMPLE)
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


def in_child(work: Callable[[], str]) -> str:
    """Run something in a forked process with limits; its death is an outcome too."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.alarm(_SECONDS)
        os.write(write_end, work().encode(errors="replace")[:60_000])
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answers:
        answer = answers.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "hang" if number == signal.SIGALRM else f"signal {signal.Signals(number).name}"
    return answer or f"signal exit status {status}"


def outcomes(engine: str, files: Sequence[Path], operations: Sequence[str]) -> Iterator[tuple[Path, str, str]]:
    """What comes of each operation on each file; on Spark in this process, whose executors are others anyway."""
    io = make_io(engine)
    for file in files:
        for name in operations:
            if engine == "spark":
                yield file, name, try_out(io, name, file)
            else:
                yield file, name, in_child(lambda file=file, name=name: try_out(make_io(engine), name, file))


def main() -> int:
    """Run over folders and print what is bad, and how often each outcome was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument("--engine", action="append", choices=["pyarrow", "duckdb", "spark"])
    parser.add_argument("--operation", action="append", choices=list(OPERATIONS))
    parser.add_argument("--verbose", action="store_true", help="print every outcome")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    files = [file for path in asked.paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    files = [file for file in files if file.is_file() and file.suffix in (".parquet", ".encrypted", "")]
    bad, counted = 0, Counter[str]()
    for engine in asked.engine or ["pyarrow"]:
        for file, name, outcome in outcomes(engine, files, asked.operation or list(OPERATIONS)):
            kind = outcome.partition(" ")[0]
            counted[f"{engine} {name} {kind}"] += 1
            bad += kind not in GOOD
            if asked.verbose or kind not in GOOD:
                print(engine, name, file.name, outcome[:400], flush=True)
    for line, count in sorted(counted.items()):
        print(f"{count:6} {line}")
    print(f"{len(files)} files, {sum(counted.values())} outcomes, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

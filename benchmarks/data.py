"""Generate the targets and sources of the benchmarks from seeds. They are built once per data folder and never changed.

Keys of existing rows are multiples of three, so that a new key can be in the middle of the key range of a file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

KEY_STEP = 3
COLUMNS = ("id", "customer", "ts", "status", "amount", "note")
_STATES = ("new", "open", "paid", "packed", "shipped", "delivered", "returned", "closed")
_START = np.datetime64("2024-01-01", "us")


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a target."""

    files: int
    rows_per_file: int

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file

    def scaled(self, scale: float) -> Size:
        """Return a smaller size of the same shape: fewer files with fewer rows."""
        if scale == 1:
            return self
        factor = scale**0.5
        return Size(max(6, round(self.files * factor)), max(20, round(self.rows_per_file * factor)))


def rows(ids: pa.Array, seed: int) -> pa.Table:
    """Return six columns with these keys; the other values depend on the seed."""
    random, count = np.random.default_rng(seed), len(ids)
    states = pa.array(random.integers(0, len(_STATES), count).astype(np.int32))
    seconds = np.arange(count, dtype=np.int64) * 1_000_000 + random.integers(0, 1_000_000, count)
    values = (
        ids,
        pa.array(random.integers(0, 1_000_000, count)),
        pa.array(_START + np.timedelta64(seed, "D") + seconds.astype("timedelta64[us]")),
        pa.DictionaryArray.from_arrays(states, pa.array(_STATES)).cast(pa.string()),
        pa.array(random.random(count) * 1000),
        _texts(random.integers(97, 123, (count, 40), dtype=np.uint8)),
    )
    return pa.table(list(values), names=list(COLUMNS))


def uuids(start: int, count: int) -> pa.Array:
    """Return pseudo-random text keys that depend only on the row numbers."""
    numbers = np.arange(start, start + count, dtype=np.uint64)
    halves = np.stack([_mix(numbers * np.uint64(2)), _mix(numbers * np.uint64(2) + np.uint64(1))], axis=1)
    digits = np.frombuffer(halves.tobytes().hex().encode(), dtype=np.uint8).reshape(count, 32)
    text = np.full((count, 36), ord("-"), dtype=np.uint8)
    done = 0
    for at, width in ((0, 8), (9, 4), (14, 4), (19, 4), (24, 12)):
        text[:, at : at + width] = digits[:, done : done + width]
        done += width
    return _texts(text)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finaliser of splitmix64, a bijection, so that different rows have different keys."""
    with np.errstate(over="ignore"):
        numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def _texts(letters: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = letters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters.tobytes()))


def sorted_ids(start: int, count: int) -> pa.Array:
    return pa.array(np.arange(start, start + count, dtype=np.int64) * KEY_STEP)


def build_target(folder: Path, size: Size, keys: Callable[[int, int], pa.Array]) -> None:
    """Write the files of a target with pyarrow's default writer options, as most datasets are written."""

    def write(partial: Path) -> None:
        for index in range(size.files):
            table = rows(keys(index * size.rows_per_file, size.rows_per_file), index)
            pq.write_table(table, partial / f"part-{index:05d}.parquet")

    once(folder, write)


def build_small_files(folder: Path, files: int, rows_per_file: int) -> None:
    """Write many files of a few rows, as a stream of small appends does."""

    def write(partial: Path) -> None:
        table = rows(sorted_ids(0, files * rows_per_file), 0)
        for index in range(files):
            pq.write_table(table.slice(index * rows_per_file, rows_per_file), partial / f"part-{index:05d}.parquet")

    once(folder, write)


def build_delta(folder: Path, target: Path) -> None:
    """Write the same Parquet files as a Delta table: hard links and a log."""

    def write(partial: Path) -> None:
        from deltalake import convert_to_deltalake

        copy_target(target, partial)
        convert_to_deltalake(str(partial))

    once(folder, write)


def save_source(path: Path, make: Callable[[], pa.Table]) -> None:
    def write(partial: Path) -> None:
        table = make()
        with pa.OSFile(str(partial / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    once(path, write)


def build_parquet_source(folder: Path, source: Path, files: int) -> None:
    """Write the rows of a source as Parquet files, for contenders that read files."""

    def write(partial: Path) -> None:
        table = load_source(source)
        step = -(-table.num_rows // files)
        for index in range(files):
            pq.write_table(table.slice(index * step, step), partial / f"part-{index:05d}.parquet")

    once(folder, write)


def load_source(path: Path) -> pa.Table:
    """Load the source into memory, so that its reading is not timed."""
    with pa.OSFile(str(path / "rows.arrow")) as file:
        return pa.ipc.open_file(file).read_all().combine_chunks()


def once(folder: Path, write: Callable[[Path], None]) -> None:
    """Build in a temporary folder and rename it, so that an interrupted build is not used."""
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    partial.rename(folder)


def copy_target(origin: Path, copy: Path) -> None:
    """Copy a target for a contender. Data files are hard links, because no contender writes into an existing file."""
    for path in sorted(origin.rglob("*")):
        place = copy / path.relative_to(origin)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".parquet":
                os.link(path, place)
            else:
                shutil.copyfile(path, place)


def fingerprint(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return names, sizes and times of the files, to detect a contender that writes through a hard link."""
    found = ((path, path.stat()) for path in sorted(folder.rglob("*.parquet")))
    return tuple((path.name, stat.st_size, stat.st_mtime_ns) for path, stat in found)

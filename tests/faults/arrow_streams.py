"""Write and merge damaged Arrow IPC data from standard input, each in its own process, and print the bad outcomes.

    python tests/faults/arrow_streams.py 200 1 path/to/arrow-testing/data

The arguments are how many streams to damage, a seed, and folders of other streams.
"""

from __future__ import annotations

import io
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.damaged import in_child
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import read_ipc


def sound_streams() -> list[bytes]:
    """Return a stream and a file of all layouts of buffers."""
    numbers = range(20)
    texts = [None if i % 5 == 0 else f"text {i}" for i in numbers]
    table = pa.table(
        {
            "id": numbers,
            "text": texts,
            "view": pa.array(texts, pa.string_view()),
            "code": pa.array(texts).dictionary_encode(),
            "list": [[i] * (i % 3) for i in numbers],
            "struct": [{"x": text, "y": [text]} for text in texts],
            "flag": [i % 2 == 0 for i in numbers],
        }
    )
    streams = []
    for make in (pa.ipc.new_stream, pa.ipc.new_file):
        sink = io.BytesIO()
        with make(sink, table.schema) as writer:
            writer.write_table(table, 7)
        streams.append(sink.getvalue())
    return streams


def cases(count: int, seed: int, folders: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield names and data: with flipped bits, cut off, or of other folders."""
    rng, sound = random.Random(seed), sound_streams()
    for number in range(count):
        data = bytearray(sound[number % 2])
        for _ in range(rng.choice((1, 1, 2, 4))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield f"damaged {number}", bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)
    for folder in folders:
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and ("ipc" in path.name or path.suffix in (".stream", ".arrow_file")):
                yield path.name, path.read_bytes()


def outcome(data: bytes) -> str:
    """Write the rows to a new dataset and merge them, and say how it ended."""
    dataset = PyarrowDatasetIO()
    with tempfile.TemporaryDirectory() as folder:
        try:
            table = read_ipc(io.BufferedReader(io.BytesIO(data)), "standard input")
            dataset.write_dataset(table, f"{folder}/ds")
            options = {"null_keys": "match", "on_duplicate_source": "last"}
            dataset.merge(table, f"{folder}/ds", strategy="upsert", key_columns=table.schema.names[:1], **options)
        except FsspeckitError:
            return "typed"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return f"untyped {type(error).__name__}: {error}"
    return "ok"


def main() -> int:
    """Run on damaged streams. Print the bad outcomes, and the number of each."""
    counted = {"ok": 0, "typed": 0, "bad": 0}
    for name, data in cases(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]):
        lines, end = in_child(lambda sink, data=data: _write(sink, outcome(data)))
        result = end or "".join(lines)
        counted[result if result in counted else "bad"] += 1
        if result not in counted:
            print(name, result[:300], flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counted.items()))
    return 1 if counted["bad"] else 0


def _write(sink: int, line: str) -> None:
    os.write(sink, line.replace("\n", " ").encode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main())

"""Odd and damaged csv and json files through their readers, in child processes, so that a crash of one is seen.

As a program it reads known and random files, and prints what came of it:

    python tests/faults/text_files.py --count 20000 --seed 1

An outcome is ``ok`` (the rows are those that Python's own csv or json module reads), ``typed`` (an error of fsspeckit
that names the file), or one of the bad ones: ``changed``, ``untyped``, ``signal``, ``hang``.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import io
import json
import math
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.damaged import GOOD, in_child
from faults.odd_texts import Case, known_cases, random_case

_BATCH = 100
_SPACE = " \t\r\n"


def try_out(case: Case) -> str:
    """Read a file, and say what came of it."""
    from fsspeckit.common.errors import FsspeckitError
    from fsspeckit.core.ext import read_csv, read_json

    given: dict[str, Any] = {"types": case.types}
    if case.as_schema:
        given = {"schema": pa.schema(list(case.types.items()))}
    with tempfile.TemporaryDirectory() as base:
        path = Path(base) / f"odd.{case.format}"
        path.write_bytes(case.data)
        read = read_csv if case.format == "csv" else read_json
        try:
            table = read(path, use_threads=case.use_threads, **given)
            table.validate(full=True)
        except FsspeckitError as error:
            return f"typed {error}" if path.name in str(error) else f"untyped no file in {error}"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"untyped {type(error).__name__}: {str(error)[:300]} at {last.filename}:{last.lineno}"
        if case.types:
            return "ok"
        try:
            if case.format == "json":
                return _compared(table.to_pylist(), _json_rows(case.data.decode("utf-8-sig")), _same_json)
            texts = read_csv(path, types=dict.fromkeys(table.column_names, pa.string()))
            rows = _csv_rows(case.data.decode("utf-8-sig"), table.column_names)
            exact = _compared(texts.to_pylist(), rows, _same_text)
            return _compared(table.to_pylist(), rows, _same_cell) if exact == "ok" else exact
        except (ValueError, csv.Error) as error:
            return f"changed: Python does not read it: {error}"


def _compared(found: list[Any], expected: list[Any], same: Any) -> str:
    if len(found) != len(expected) and any(expected):
        return f"changed: {len(found)} rows instead of {len(expected)}"
    for row, (ours, theirs) in enumerate(zip(found, expected, strict=False), 1):
        for name in ours.keys() | theirs.keys():
            if not same(ours.get(name), theirs.get(name)):
                return f"changed row {row}, {name!r}: {ours.get(name)!r:.200} instead of {theirs.get(name)!r:.200}"
    return "ok"


def _csv_rows(text: str, names: Sequence[str]) -> list[dict[str, str]]:
    csv.field_size_limit(2**31)
    if not text.strip():
        return []
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    if header != list(names):
        raise ValueError(f"the header is {header}")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _same_text(ours: str | None, theirs: str) -> bool:
    return (ours or "") == theirs


def _same_cell(ours: Any, theirs: str) -> bool:
    """Whether a value is the one that a cell says, and so that the cell could be written again."""
    if ours is None or isinstance(ours, str):
        return _same_text(ours, theirs)
    if isinstance(ours, bool):
        return theirs == str(ours).lower()
    if isinstance(ours, (int, dt.date)) and not isinstance(ours, dt.datetime):
        return theirs == str(ours)
    if isinstance(ours, float):
        return Decimal(theirs) == Decimal(repr(ours))
    if isinstance(ours, Decimal):
        return theirs == format(ours, "f")
    return dt.datetime.fromisoformat(theirs.replace("Z", "+00:00")) == ours


def _json_rows(text: str) -> list[Any]:
    limit, decoder = sys.getrecursionlimit(), json.JSONDecoder(parse_float=Decimal, parse_int=Decimal)
    sys.setrecursionlimit(max(limit, 5000))
    try:
        if text.lstrip(_SPACE).startswith("["):
            return list(decoder.decode(text.strip(_SPACE)))
        rows = []
        while text := text.lstrip(_SPACE):
            row, end = decoder.raw_decode(text)
            rows.append(row)
            text = text[end:]
        return rows
    finally:
        sys.setrecursionlimit(limit)


def _same_json(ours: Any, theirs: Any) -> bool:
    """Whether a value of Arrow is the one of the file; keys that an object lacks are null."""
    if theirs is None or ours is None:
        return ours is theirs
    if isinstance(theirs, dict):
        names = ours.keys() | theirs.keys() if isinstance(ours, dict) else ()
        return isinstance(ours, dict) and all(_same_json(ours.get(name), theirs.get(name)) for name in names)
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(_same_json, ours, theirs))
    if isinstance(theirs, float):
        return isinstance(ours, float) and (ours == theirs or (math.isnan(ours) and math.isnan(theirs)))
    if isinstance(theirs, Decimal):
        is_printed = isinstance(ours, float) and Decimal(repr(ours)) == theirs
        return type(ours) in (int, float, Decimal) and (is_printed or Decimal(ours) == theirs)
    return type(ours) is type(theirs) and bool(ours == theirs)


def outcomes(cases: Sequence[Case]) -> Iterator[tuple[Case, str]]:
    """What comes of each file; after one that ends the process, the rest is read in another."""
    start = 0
    while start < len(cases):

        def work(sink: int, rest: Sequence[Case] = cases[start:]) -> None:
            for case in rest:
                os.write(sink, (try_out(case).replace("\n", " ")[:600] + "\n").encode(errors="replace"))

        lines, end = in_child(work)
        yield from zip(cases[start:], lines, strict=False)
        start += len(lines)
        if end:
            yield cases[min(start, len(cases) - 1)], end
            start += 1


def main() -> int:
    """Read files and print what is bad, and how often each outcome was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many random files to read")
    parser.add_argument("--seed", type=int, default=1, help="repeats the same files")
    parser.add_argument("--verbose", action="store_true", help="print every outcome")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    import fsspeckit.core.ext  # noqa: F401 - loaded once, before processes are forked

    rng, counted, bad = random.Random(asked.seed), Counter[str](), 0
    cases = [*known_cases(), *(random_case(rng) for _ in range(asked.count))]
    for start in range(0, len(cases), _BATCH):
        for case, outcome in outcomes(cases[start : start + _BATCH]):
            kind = outcome.partition(" ")[0].rstrip(":")
            counted[f"{case.format} {kind}"] += 1
            bad += kind not in GOOD
            if asked.verbose or kind not in GOOD:
                print(outcome[:400], case.data[:300], case.types, case.as_schema, flush=True)
    print(dict(counted))
    print(f"{len(cases)} files, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

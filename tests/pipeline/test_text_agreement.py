"""Random csv and json files with awkward values: a pipeline makes the dataset, or the error, of the PyArrow engine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import FsspeckitError, SourceFileError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, StepFailedError

pytestmark = pytest.mark.more

IO = PyarrowDatasetIO()
CASES = 24
KINDS = [
    ["1", "-7", "", "20"],
    ["1", "2.5", "0.1", "9007199254740993"],
    ["1.50", "0.25", "-3.10"],
    ["7.0", "1e-05", "123456789012345678.5"],
    ["true", "false", ""],
    ["2024-01-31", "1900-02-28"],
    ["2024-01-31 10:00:00.123456789", "2024-01-31 10:00:00.000000001"],
    ["2024-01-31T10:00:00Z"],
    ["01", "1d", "1f", " 5", "NA", "NULL", "nan", "0x1f"],
    ['"c""d"', "a\\b", "\\", '"x\ny"', '""', "ü", "😀", "'q'", "a#b", '"a,b"', "_corrupt_record"],
]
BAD = ['"open', "1,2,3"]
VALUES: list[list[Any]] = [
    [1, -7, None, 2**53 + 1],
    [0.1, 2.5, 1, 1e300, 12345678901234567.5],
    ["01", "2024-01-31", "", "ü", "😀", 'c"d', "a\\b", None],
    [True, False, None],
    [[1, 2], [], None, [None]],
    [{"a": 1, "b": "x"}, {"a": None}, {}, {"c": [1.5]}],
    ["1.5", "2.25", "3"],
]
TYPES = [pa.int64(), pa.int16(), pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.decimal128(9, 2)]
TYPES += [pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.bool_(), pa.large_string(), pa.list_(pa.int32())]


def csv_texts(rng: random.Random) -> list[str]:
    """One to three files; sometimes a cell is not csv at all, or the files differ in their columns."""
    kinds = [rng.choice(KINDS) if rng.random() < 0.8 else [cell for kind in KINDS for cell in kind] for _ in range(2)]
    texts, number = [], 0
    for _ in range(rng.randint(1, 3)):
        names = ["id", "a", "_corrupt_record"][: rng.choice([2, 3, 3])]
        lines = [",".join(names)]
        for _ in range(rng.randint(0, 4)):
            number += 1
            cells = [rng.choice(kind) if rng.random() < 0.97 else rng.choice(BAD) for kind in kinds]
            lines.append(",".join([str(number), *cells][: len(names)]))
        texts.append(rng.choice(["\n", "\r\n"]).join([*lines, *rng.choice([[], [""]])]))
    return texts


def json_texts(rng: random.Random) -> list[str]:
    """One to three files: lines, objects one after the other, or an array; sometimes something follows."""
    kinds = [rng.choice(VALUES) if rng.random() < 0.9 else [v for kind in VALUES for v in kind] for _ in range(2)]
    texts, number = [], 0
    for _ in range(rng.randint(1, 3)):
        rows = []
        for _ in range(rng.randint(0, 4)):
            number += 1
            row = {"id": number, "a": rng.choice(kinds[0]), "_corrupt_record": rng.choice(kinds[1])}
            rows.append({name: value for name, value in row.items() if name == "id" or rng.random() < 0.9})
        dumped = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
        text = f"[{','.join(dumped)}]" if rng.random() < 0.2 else rng.choice(["\n", " ", "", "\n\n"]).join(dumped)
        texts.append(text + rng.choice(["", "", "", "", "", "\n", " garbage"]))
    return texts


def make(rng: random.Random, name: str, format_: str) -> None:
    """The files of a case, and in some cases a dataset, twice."""
    Path("in", name).mkdir(parents=True)
    for number, text in enumerate(csv_texts(rng) if format_ == "csv" else json_texts(rng)):
        Path("in", name, f"{number}.{format_}").write_bytes(text.encode())
    if rng.random() < 0.3:
        fields = [("id", pa.int64()), ("a", rng.choice(TYPES)), ("_corrupt_record", rng.choice(TYPES))]
        for lake in ("pyarrow", "spark"):
            IO.write_dataset(pa.schema(fields).empty_table(), f"{lake}/{name}")


def on_pyarrow(name: str, format_: str) -> pa.Table | Exception:
    try:
        options: Any = {"key_columns": "id", "schema_mode": "evolve"}
        IO.merge(f"in/{name}/*.{format_}", f"pyarrow/{name}", strategy="upsert", **options)
    except (FsspeckitError, ValueError, KeyError) as error:
        return error
    return rows("pyarrow", name)


def rows(lake: str, name: str) -> pa.Table:
    return IO.read_parquet(f"{lake}/{name}").sort_by("id") if Path(lake, name).exists() else None


def pipeline(cases: dict[str, str]) -> Pipeline:
    step = {"do": "merge", "keys": ["id"], "schema_mode": "evolve"}
    return Pipeline.of(
        {
            "name": "p",
            "sources": {f"raw_{name}": {"format": f, "path": f"in/{name}/*.{f}"} for name, f in cases.items()},
            "datasets": {name: {"path": f"spark/{name}"} for name in cases},
            "steps": [{"name": f"load_{name}", "from": f"raw_{name}", "into": name, **step} for name in cases],
        }
    )


@pytest.mark.parametrize("is_small", [True, False], ids=["driver", "executors"])
def test_a_pipeline_agrees_with_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any, is_small: bool
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    monkeypatch.chdir(tmp_path)
    if not is_small:
        monkeypatch.setattr("fsspeckit.datasets.spark.file_source.SMALL_BYTES", 0)
    rng = random.Random(seed)
    count = CASES if is_small else CASES // 3
    cases = {f"{number}{f}": f for number in range(count) for f in ("csv", "json")}
    for name, format_ in cases.items():
        make(rng, name, format_)
    expected = {name: on_pyarrow(name, format_) for name, format_ in cases.items()}
    good = {name: cases[name] for name, found in expected.items() if not isinstance(found, Exception)}
    for name, found in expected.items():
        if isinstance(found, Exception):
            with pytest.raises(StepFailedError) as caught:
                pipeline({name: cases[name]}).run(spark)
            assert type(caught.value.__cause__) is type(found), name
            if isinstance(found, SourceFileError) and len(list(Path("in", name).iterdir())) == 1:
                # Of several bad columns of a row, either may be reported first.
                place = str(found).partition(", column")[0]
                assert str(caught.value.__cause__).startswith(place), name
    assert good
    pipeline(good).run(spark)
    for name in good:
        found = rows("spark", name)
        assert found == expected[name], (name, found, expected[name])
        assert found is None or found.schema.equals(expected[name].schema, check_metadata=True), name

"""JSON of its own kinds: lines, arrays, objects over several lines, exact numbers, emptiness."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.ext import read_json

ROWS = [{"id": 1, "tags": ["a", None], "who": {"name": "Ü", "age": None}}, {"id": 2, "tags": [], "who": None}]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(json.dumps(row) for row in ROWS),
        "\r\n\n".join(json.dumps(row) for row in ROWS) + "\n\n",
        "\n".join(json.dumps(row, indent=2) for row in ROWS),
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        f"\ufeff  {json.dumps(ROWS)}  \n",
        f"{' ' * 5000}{json.dumps(ROWS)}",
    ],
    ids=["lines", "blank lines", "pretty objects", "array", "pretty array", "byte order mark", "leading space"],
)
def test_every_way_to_write_the_same_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    assert read_json(path).to_pylist() == ROWS


def test_lines_and_arrays_mix_in_one_folder_and_nested_types_join(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1], "s": {"x": 1}}\n')
    (tmp_path / "b.json").write_text('[{"a": [0.5], "s": {"y": "z"}}]')
    (tmp_path / "c.ndjson.gz").write_bytes(gzip.compress(b'{"a": null}'))
    assert read_json(tmp_path).to_pylist() == [
        {"a": [1.0], "s": {"x": 1, "y": None}},
        {"a": [0.5], "s": {"x": None, "y": "z"}},
        {"a": None, "s": None},
    ]


@pytest.mark.parametrize("text", ["", " \n", "[]", "[ \n ]"], ids=repr)
def test_nothing_in_a_file_is_no_rows(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert read_json(tmp_path).num_rows == 0
    schema = pa.schema([("id", pa.int8())])
    assert read_json(tmp_path, schema=schema).schema == schema
    (tmp_path / "b.json").write_text('{"id": 1}')
    assert read_json(tmp_path).to_pylist() == [{"id": 1}]


@pytest.mark.scenario("UP-61")
@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        '[{"a": 1} {"a": 2}]',
        '[{"a": 1}',
        '[{"a": 1}]x',
        '[{"a": 1},',
        '[{"a": }]',
        '{"a": 1',
        "7",
        '{"a": 1}\n{"a": "x"}',
        "nonsense",
    ],
)
def test_what_is_not_json_of_objects_is_invalid_and_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(pa.ArrowInvalid, match=r"read_json of .*a\.json"):
        read_json(path)


def test_text_that_is_not_utf8_is_invalid(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(pa.ArrowInvalid, match=r"a\.json"):
        read_json(path)


@pytest.mark.parametrize("text", ['{"a": 2, "b": "1.10"}', '[{"a": 2, "b": "1.10"}]'])
def test_a_schema_gives_exact_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    schema = pa.schema([("b", pa.decimal128(30, 2)), ("a", pa.uint8())])
    assert read_json(tmp_path, schema=schema).to_pylist() == [{"b": Decimal("1.10"), "a": 2}]


def test_integers_keep_all_digits_in_lines_and_arrays(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f'[{{"a": {2**63 - 1}}}]')
    (tmp_path / "b.json").write_text(f'{{"a": {2**63 - 1}}}')
    assert read_json(tmp_path).column("a").to_pylist() == [2**63 - 1] * 2


def test_types_that_do_not_join_name_the_column(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "b.json").write_text('{"a": "x"}')
    with pytest.raises(SchemaMismatchError, match="'a'"):
        read_json(tmp_path)
    with pytest.raises(SchemaMismatchError, match="'a'"):
        read_json(tmp_path, columns=["a"])


def test_many_blocks_and_a_row_larger_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    filler = "x" * 1000
    with path.open("w") as sink:
        for number in range(40_000):
            sink.write(json.dumps({"id": number, "text": filler}) + "\n")
    for use_threads in (True, False):
        assert read_json(path, columns=["id"], use_threads=use_threads).column("id").to_pylist() == list(range(40_000))
    with path.open("a") as sink:
        sink.write(json.dumps({"id": -1, "text": "y" * (40 * 2**20)}))
    assert read_json(path).column("id")[-1].as_py() == -1


def test_objects_over_several_lines_at_the_end_of_a_block(tmp_path: Path) -> None:
    rows = 400_000
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "text": "x" * 30}, indent=1) * rows)
    assert read_json(tmp_path, columns=["id"]).num_rows == rows

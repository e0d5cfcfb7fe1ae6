"""Files that are described and read one by one give the rows of the reader that has them all."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import FsspeckitError, SourceFileError
from fsspeckit.core.ext import read_csv, read_json
from fsspeckit.core.ext.file_set import FileSet, TextReader
from fsspeckit.core.ext.inputs import find_files
from fsspeckit.core.formats import ENDINGS

CELLS = st.sampled_from(
    [
        *["", '""', "1", "-7", "01", "2.5", "7.0", "1.50", "0.25", "1.5", "9007199254740993", "true", "True", "NA"],
        *["2024-01-31", "2024-01-31 10:00:00", "2024-01-31T10:00:00.123Z", "2024-01-31 10:00:00.123456789"],
        *['"c""d"', "a\\b", '"x\ny"', "1d", " 5", "ü", "1e-05", "0.1234567890123456789"],
    ]
)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, 1, 2**53 + 1, -0.5, 1e300, True, "", "01", "2024-01-31", [1], [2.5], [None], {"a": 1}, {"a": 2.5, "b": "x"}]
)


def file_set(path: Path, format_: Any, types: dict[str, pa.DataType] | None = None) -> FileSet:
    """The files at a path; everything that goes to another process is pickled on the way."""
    files = find_files(path, ENDINGS[format_], "test", None, None)
    reader = TextReader.of(files, format_, types or {})
    found = [pickle.loads(pickle.dumps(reader)).describe(pickle.loads(pickle.dumps(file))) for file in files]
    made: FileSet = pickle.loads(pickle.dumps(reader.join(files, pickle.loads(pickle.dumps(found)))))
    return made


def outcome(read: Any) -> tuple[Any, ...]:
    try:
        table = read()
    except FsspeckitError as error:
        return type(error), str(error)
    return table.schema, table.to_pylist()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELLS, max_size=4), min_size=1, max_size=3), st.sampled_from([None, pa.int64(), pa.string()]))
def test_csv(tmp_path_factory: pytest.TempPathFactory, columns: list[list[str]], type_: pa.DataType | None) -> None:
    folder = tmp_path_factory.mktemp("files")
    for number, cells in enumerate(columns):
        text = "n,a\n" + "".join(f"{row},{cell}\n" for row, cell in enumerate(cells))
        (folder / f"{number}.csv").write_text(text if cells or number else "")
    types = {} if type_ is None else {"a": type_}
    assert outcome(lambda: file_set(folder, "csv", types).read_all()) == outcome(lambda: read_csv(folder, types=types))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=3), st.sampled_from([None, pa.int64(), pa.string()]))
def test_json(tmp_path_factory: pytest.TempPathFactory, columns: list[list[Any]], type_: pa.DataType | None) -> None:
    folder = tmp_path_factory.mktemp("files")
    for number, values in enumerate(columns):
        rows = [{"n": row, **({"a": value} if value != 1 or row else {})} for row, value in enumerate(values)]
        (folder / f"{number}.json").write_text(" ".join(map(json.dumps, rows)))
    types = {} if type_ is None else {"a": type_}
    one, all_ = (
        outcome(lambda read=read: read())
        for read in (  # type: ignore[misc]
            lambda: file_set(folder, "json", types).read_all(),
            lambda: read_json(folder, types=types),
        )
    )
    assert one == all_


def test_a_file_that_has_changed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    found = file_set(tmp_path, "csv")
    (tmp_path / "a.csv").write_text("id\n001\n")
    with pytest.raises(SourceFileError, match="has changed meanwhile"):
        found.read_all()

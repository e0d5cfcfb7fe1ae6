"""CSV of its own kinds: several files read like one, compression, quoting, emptiness."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.ext import read_csv


def _files(folder: Path, *texts: str) -> Path:
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_bytes(text.encode())
    return folder


@pytest.mark.parametrize(
    "bodies",
    [
        ["1\n", "2.5\n"],
        ["01\n", "x\n"],
        ["1\n", "x\n", "2024-01-01\n"],
        ["true\n", "7\n"],
        ["\n", "5\n"],
        ["2024-01-01\n", "2024-01-02\n"],
    ],
    ids=str,
)
def test_files_read_like_the_one_file_they_would_make(tmp_path: Path, bodies: list[str]) -> None:
    texts = ["a,n\n" + "".join(f"{line},1\n" for line in body.splitlines()) for body in bodies]
    whole = "a,n\n" + "".join(text.removeprefix("a,n\n") for text in texts)
    expected = pacsv.read_csv(pa.BufferReader(whole.encode()))
    assert read_csv(_files(tmp_path, *texts)).equals(expected)


def test_integers_that_no_float_holds_are_not_rounded(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match="'a'"):
        read_csv(_files(tmp_path, f"a\n{2**53 + 1}\n", "a\n0.5\n"))


def test_quoted_newlines_delimiters_and_byte_order_marks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid;text\n1;"two\nlines; one value"\n')
    assert read_csv(path, delimiter=";").to_pylist() == [{"id": 1, "text": "two\nlines; one value"}]


def test_quoted_newlines_at_the_end_of_a_block(tmp_path: Path) -> None:
    rows = 100_000
    table = read_csv(_files(tmp_path, "id,text\n" + f'1,"{"x" * 8}{chr(10) * 200}"\n' * rows))
    assert table.num_rows == rows


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_also_in_folders(tmp_path: Path, ending: str, pack: type) -> None:
    (tmp_path / f"a.csv{ending}").write_bytes(pack(b"id\n1\n"))
    assert read_csv(tmp_path).to_pylist() == [{"id": 1}]


def test_empty_files_and_files_of_a_header_add_no_rows(tmp_path: Path) -> None:
    folder = _files(tmp_path, "", "id,name\n", "id,name\n1,x\n", "  \n")
    table = read_csv(folder)
    assert table.to_pylist() == [{"id": 1, "name": "x"}]
    assert table.schema.types == [pa.int64(), pa.string()]
    empty = read_csv(folder / "0.csv", schema=pa.schema([("id", pa.int8())]))
    assert empty.num_rows == 0
    assert empty.schema.types == [pa.int8()]


def test_a_row_larger_than_a_block_is_read(tmp_path: Path) -> None:
    long = "x" * (40 * 2**20)
    table = read_csv(_files(tmp_path, f"id,text\n1,a\n2,{long}\n3,b\n"))
    assert table.column("id").to_pylist() == [1, 2, 3]
    assert len(table.column("text")[1].as_py()) == len(long)


def test_a_schema_keeps_text_that_looks_like_numbers(tmp_path: Path) -> None:
    schema = pa.schema([("code", pa.large_string()), ("price", pa.decimal128(10, 2)), ("day", pa.date32())])
    table = read_csv(_files(tmp_path, "code,price,day\n007,1.10,2024-02-29\n"), schema=schema)
    assert [str(value) for value in table.to_pylist()[0].values()] == ["007", "1.10", "2024-02-29"]


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match="twice"):
        read_csv(_files(tmp_path, "a,a\n1,2\n"))

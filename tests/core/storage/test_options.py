"""Wrong options and unreachable servers raise typed errors with the option or the URL, and without secrets."""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit import StorageError, StorageOptionError
from fsspeckit.cli.app import main
from fsspeckit.core.ext import read_csv
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

SECRET = "hunter2-very-secret"
ROWS = pa.table({"id": [1]})
WAYS: dict[str, Callable[[str, dict[str, Any]], object]] = {
    "merge": lambda path, options: fsspeckit.merge(
        ROWS, path, key_columns="id", engine="pyarrow", storage_options=options
    ),
    "read": lambda path, options: PyarrowDatasetIO(storage_options=options).read_parquet(path),
    "filesystem": lambda path, options: PyarrowDatasetIO(fsspec.filesystem("s3", **options)).write_dataset(ROWS, path),
    "source": lambda path, options: read_csv(f"{path}/a.csv", storage_options=options),
}


@pytest.fixture
def closed_port() -> int:
    """A local port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """A server that rejects every login."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"530 no {SECRET}\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kee": SECRET}, "the option 'kee' is unknown; correct its name in storage_options"),
    ({"client_kwargs": {"endpont": SECRET}}, "the option 'endpont' is unknown"),
    ({"config_kwargs": {"signatur": SECRET}}, "the option 'signatur' is unknown"),
    ({"client_kwargs": SECRET}, "rejects its options client_kwargs, key, secret (AttributeError)"),
    ({"client_kwargs": {"endpoint_url": 5}}, "rejects its options client_kwargs, endpoint_url, key, secret"),
    ({"key": 5, "secret": [SECRET]}, "rejects its options client_kwargs, endpoint_url, key, secret"),
]


@pytest.mark.parametrize("way", WAYS)
def test_options_that_s3_rejects(s3_server: Any, s3_bucket: str, way: str) -> None:
    for wrong, message in WRONG if way == "read" else WRONG[:1]:
        with pytest.raises(StorageOptionError) as caught:
            WAYS[way](f"s3://{s3_bucket}/lake", s3_server.storage_options | {"secret": SECRET} | wrong)
        assert message in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_ftp_server_that_rejects_the_login(refusing_port: int) -> None:
    options = {"username": "user", "password": SECRET}
    with pytest.raises(StorageError, match=r"cannot connect to ftp://127\.0\.0\.1:\d+/lake: 530 no \*\*\*; check"):
        PyarrowDatasetIO(storage_options=options).read_parquet(f"ftp://127.0.0.1:{refusing_port}/lake")


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], closed_port: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("id\n1\n")
    words = ["--engine", "pyarrow", "--storage-option", f"kee={SECRET}"]
    assert main(["write", "a.csv", "s3://bucket/lake", *words]) == 2
    message = capsys.readouterr().err
    assert message.splitlines()[0].endswith("the option 'kee' is unknown")
    assert message.splitlines()[1:] == ["to do: correct its name in --storage-option"]
    assert main(["write", "a.csv", "s3://bucket/lake", *words, "--debug"]) == 2
    assert SECRET not in capsys.readouterr().err
    assert main(["inspect", f"ftp://user:{SECRET}@127.0.0.1:{closed_port}/lake"]) == 1
    problem, remedy = capsys.readouterr().err.splitlines()
    assert problem == f"error: cannot connect to ftp://127.0.0.1:{closed_port}/lake: Connection refused"
    assert remedy == "to do: check the URL, and that its server can be reached"

"""Servers of object stores, started on loopback: moto and versitygw for S3, and Azurite for Azure.

`make servers` installs them into the environment; `VERSITYGW` and `AZURITE` name other programs.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest

from stores.proxy import Proxy, kind_of

INSTALLED = Path(sys.prefix) / "servers"
# The account of the emulator, which its documentation publishes.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class Store:
    """A server, what a filesystem must be told to reach it, and the kind of each request that it received."""

    name: str
    protocol: str
    endpoint: str
    storage_options: dict[str, Any]
    requests: list[str] = field(default_factory=list)

    def filesystem(self) -> Any:
        """A new client, with no cache shared with any other."""
        return fsspec.filesystem(self.protocol, skip_instance_cache=True, **self.storage_options)

    def bucket(self) -> str:
        """The name of a new, empty bucket or container."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.filesystem().mkdir(name)
        return name

    def through(self, proxy: Proxy) -> Store:
        """The same server behind a proxy that records the requests."""
        return at(self.name, proxy.endpoint, proxy.requests)


def at(name: str, endpoint: str, requests: list[str]) -> Store:
    """A server at an address."""
    if name == "azurite":
        text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
        options = {"connection_string": f"{text}BlobEndpoint={endpoint}/{ACCOUNT};"}
        return Store(name, "az", endpoint, options, requests)
    options = {"key": "test", "secret": "testtest", "client_kwargs": {"endpoint_url": endpoint}}
    return Store(name, "s3", endpoint, options, requests)


def _program(variable: str, pattern: str) -> str:
    found = os.environ.get(variable) or next(iter(sorted(map(str, INSTALLED.glob(pattern)))), None)
    if found is None:
        pytest.skip(f"{variable.lower()} is not installed: run `make servers`, which needs Go and npm")
    return found


@contextmanager
def running(name: str, *, versions: bool = False) -> Iterator[Store]:
    """Start a server that records its requests; those of other programs, behind a proxy."""
    if name == "moto":
        with _moto() as store:
            yield store
        return
    if name == "azurite":
        pytest.importorskip("adlfs")
    folder = Path(tempfile.mkdtemp(prefix="fsspeckit-store-"))
    try:
        with _started(name, folder, versions=versions) as endpoint, Proxy(endpoint).running() as proxy:
            yield at(name, endpoint, []).through(proxy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _moto() -> Iterator[Store]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = at("moto", f"http://{host}:{port}", [])
    inner: Any = server._server
    application = inner.app

    def record(environment: dict[str, Any], respond: Any) -> Any:
        is_copy = "HTTP_X_AMZ_COPY_SOURCE" in environment
        store.requests.append(kind_of(environment["REQUEST_METHOD"], environment["QUERY_STRING"], is_copy=is_copy))
        return application(environment, respond)

    inner.app = record
    yield store
    server.stop()


@contextmanager
def _started(name: str, folder: Path, *, versions: bool) -> Iterator[str]:
    port, environment = _free_port(), dict(os.environ)
    for kept in ("data", "versions"):
        (folder / kept).mkdir()
    if name == "azurite":
        program = _program("AZURITE", "azurite-*/node_modules/.bin/azurite-blob")
        command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "data")]
        command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    else:
        program = _program("VERSITYGW", "versitygw-*/versitygw")
        environment |= {"ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "testtest"}
        command = [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix"]
        command += ["--versioning-dir", str(folder / "versions")] if versions else []
        command.append(str(folder / "data"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_for(port, process, folder / "log", command)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path, command: Sequence[str]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{command[0]} does not answer: {log.read_text()[-2000:]}")

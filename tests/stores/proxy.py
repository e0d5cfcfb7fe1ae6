"""A proxy in front of a server that holds, drops, repeats or answers requests, on loopback."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


def kind_of(method: str, query: str, *, is_copy: bool) -> str:
    """Return the method of a request, or what S3 does for it."""
    if method == "GET" and "list-type" in query:
        return "LIST"
    if method == "POST" and query.startswith("delete"):
        return "DELETE"
    return "COPY" if is_copy else method


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came, and with which a rule can reach the server."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    upstream: str

    @property
    def kind(self) -> str:
        """The method, or what S3 does for it."""
        return kind_of(self.method, urlsplit(self.target).query, is_copy=self.is_copy)

    @property
    def is_copy(self) -> bool:
        return "x-amz-copy-source" in {name.lower() for name in self.headers}

    @property
    def is_conditional(self) -> bool:
        return "if-none-match" in {name.lower() for name in self.headers}

    def forward(self) -> Answer:
        """Send it to the server."""
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            connection.putrequest(self.method, self.target, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(self.body or None)
            found = connection.getresponse()
            return Answer(found.status, dict(found.getheaders()), found.read())
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def error(status: int, code: str) -> Answer:
    """An answer of S3 that refuses a request."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return Answer(status, {"Content-Type": "application/xml"}, body)


Rule = Callable[[Request], Answer | None]
"""Returns the answer, or None to close the connection without one."""


class Proxy:
    """Listens on a free port. ``rule`` decides about each request; it is called by many threads."""

    def __init__(self, endpoint: str) -> None:
        self.rule: Rule = Request.forward
        self.requests: list[str] = []
        proxy, upstream = self, urlsplit(endpoint).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    self.command, self.path, dict(self.headers.items()), self.rfile.read(length), upstream
                )
                proxy.requests.append(request.kind)
                answer = proxy.rule(request)
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response_only(answer.status)
                named = {name.lower(): value for name, value in answer.headers.items()}
                for name, value in answer.headers.items():
                    if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                        self.send_header(name, value)
                size = named.get("content-length") if self.command == "HEAD" else None
                self.send_header("Content-Length", size or str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return None

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A client that goes away is no error."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

"""OpenLineage events, in a file and at a server on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fsspeckit.cli.app import main
from fsspeckit.pipeline import LineageListener, Pipeline, StepFailedError

FILE = """
name = "orders"
sources.raw = { format = "csv", path = "in/mon.csv" }
datasets.out.path = "lake/out"
[[steps]]
name = "kept"
do = "sql"
from = "raw"
query = "SELECT * FROM raw WHERE id > 1"
[[steps]]
name = "load"
do = "write"
from = "kept"
into = "out"
checks = { rows = { max = 2 } }
"""


def states(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in events]


def test_events_of_a_run_and_its_steps_in_a_file(lake: Path, spark: Any) -> None:
    Path("p.toml").write_text(FILE)
    assert main(["run", "p.toml", "--lineage", "events.jsonl", "-q"]) == 0
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    assert states(events) == [
        *(("orders", "START"), ("orders.load", "START"), ("orders.load", "COMPLETE"), ("orders", "COMPLETE"))
    ]
    step = events[2]
    assert step["run"]["facets"]["parent"]["run"]["runId"] == events[0]["run"]["runId"] == events[3]["run"]["runId"]
    assert [(each["namespace"], each["name"]) for each in step["inputs"]] == [("file", str(lake / "in/mon.csv"))]
    (out,) = step["outputs"]
    assert (out["namespace"], out["name"]) == ("file", str(lake / "lake/out"))
    assert out["outputFacets"]["outputStatistics"]["rowCount"] == 2
    with pytest.raises(StepFailedError):
        Pipeline.load("p.toml").run(spark, listeners=[LineageListener("events.jsonl")])
    failed = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()][4:]
    assert [state for _, state in states(failed)] == ["START", "START", "FAIL", "FAIL"]
    assert "4 rows are more than 2" in failed[2]["run"]["facets"]["errorMessage"]["message"]


def test_events_at_a_server(lake: Path, spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    received: list[dict[str, Any]] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append({"path": self.path, **json.loads(body)})
            self.send_response(201)
            self.end_headers()

        def log_message(self, *args: Any) -> None: ...

    Path("p.toml").write_text(FILE)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listener = LineageListener(f"http://127.0.0.1:{server.server_port}", "tests")
        Pipeline.load("p.toml").run(spark, listeners=[listener])
        server.shutdown()
    assert [state for _, state in states(received)] == ["START", "START", "COMPLETE", "COMPLETE"]
    assert {(event["path"], event["job"]["namespace"]) for event in received} == {("/api/v1/lineage", "tests")}


def test_a_run_does_not_depend_on_the_server(
    lake: Path, spark: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("p.toml").write_text(FILE)
    listener = LineageListener("no/such/folder/events.jsonl")
    assert Pipeline.load("p.toml").run(spark, listeners=[listener]).status == "done"
    assert caplog.text.count("an OpenLineage event was not sent") == 4

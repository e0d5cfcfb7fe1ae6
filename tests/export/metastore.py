"""A Hive metastore as a service of its own: the one whose jars PySpark has, with a Derby database in a folder."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from inside import ensure_java

_JARS = Path(pyspark.__file__).parent / "jars"
_SERVICE = "org.apache.hadoop.hive.metastore.HiveMetaStore"


@contextmanager
def running_metastore(folder: Path) -> Iterator[str]:
    """Start a metastore on a free loopback port; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/db;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{folder}/warehouse",
        "hive.async.log.enabled": "false",
    }
    java = [f"{ensure_java()}/bin/java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dderby.system.home={folder}"]
    given = [text for name, value in settings.items() for text in ("--hiveconf", f"{name}={value}")]
    with open(folder / "log", "wb") as log:
        command = [*java, "-cp", f"{_JARS}/*", _SERVICE, "-p", str(port), *given]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            _await_port(port, process, folder / "log")
            yield f"thrift://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"the metastore did not start: {log.read_text()[-2000:]}")

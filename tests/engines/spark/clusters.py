"""Clusters of real processes on this machine, whose executors have every package but fsspeckit."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow
import pyspark

from inside import ensure_java

HERE = Path(__file__).parent
SPARK = Path(pyspark.__file__).parent
QUICK = "-XX:TieredStopAtLevel=1"


def environment(**more: str) -> dict[str, str]:
    """An environment in which nothing but the interpreter says where packages are."""
    ensure_java()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME", "MASTER")}
    return kept | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"} | more


def own_home(folder: Path) -> str:
    """Spark's files under a folder of our own: what runs inside ``local-cluster`` keeps its logs in Spark's folder."""
    folder.mkdir()
    for found in SPARK.iterdir():
        if found.name != "work":
            (folder / found.name).symlink_to(found)
    return str(folder)


def python_without(folder: Path, missing: str) -> Path:
    """An interpreter with the packages of this one, less one; editable installs are not followed either."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for found in Path(pyarrow.__file__).parent.parent.iterdir():
        if not found.name.lower().startswith(missing) and found.suffix != ".pth":
            (site / found.name).symlink_to(found)
    return folder / "bin" / "python"


def foreign_python(folder: Path) -> Path:
    """An interpreter for executors that lack fsspeckit, with the hook for faults."""
    python = python_without(folder, "fsspeckit")
    site = faults_of(python).parent
    shutil.copy(HERE / "fault_hook.py", site / "sitecustomize.py")
    faults_of(python).mkdir()
    return python


def faults_of(python: Path) -> Path:
    """The folder in which faults are ordered."""
    (site,) = python.parent.parent.glob("lib/python*/site-packages")
    return site / "faults"


def run_driver(
    script: str, *arguments: object, timeout: float = 600, main: str = "main", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that finds fsspeckit by its path only."""
    code = f"import sys; sys.path[:0] = {[str(HERE), *sys.path]!r}; import {script}"
    command = [sys.executable, "-W", "error", "-c", f"{code}; {script}.{main}(*sys.argv[1:])", *map(str, arguments)]
    return subprocess.run(command, env=environment(**env), capture_output=True, text=True, timeout=timeout, check=False)


@contextmanager
def connect_port() -> Iterator[None]:
    """Wait for the one port that a local server of Spark Connect uses: two servers cannot run at once."""
    with (Path(tempfile.gettempdir()) / "fsspeckit-test-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def standalone(folder: Path, python: Path) -> Iterator[str]:
    """A master and two workers with a core each; gives the address of the master."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    env = environment(PYSPARK_PYTHON=str(python), SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=QUICK)
    env["SPARK_WORKER_DIR"] = str(folder)
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", "--webui-port", "0", "--cores", "1", "--memory", "1g", address]
    with ExitStack() as stack:
        for number, arguments in enumerate((master, worker, worker)):
            log = stack.enter_context(open(folder / f"{number}.log", "wb"))
            process = subprocess.Popen(
                [str(SPARK / "bin" / "spark-class"), *arguments], env=env, stdout=log, stderr=log, cwd=folder
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            if number == 0:
                _await_port(port, process)
        yield address


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the master did not start")

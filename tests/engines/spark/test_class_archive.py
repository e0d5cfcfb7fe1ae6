"""The class data archive: written once in the background, used afterwards, and never in the way of a session."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsspeckit.datasets.spark import class_archive
from fsspeckit.datasets.spark.class_archive import archive_options
from inside import ensure_java

pytestmark = pytest.mark.more

COMPLETE = (0xF00BABA8).to_bytes(4, "little") + b"..."


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """Folders that look like Java and Spark, and a cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "java/lib/server").mkdir(parents=True)
    (tmp_path / "java/lib/server/classes.jsa").write_bytes(b"")
    (tmp_path / "spark/jars").mkdir(parents=True)
    return str(tmp_path / "java"), str(tmp_path / "spark"), "4.0.1"


def new_file(options: str) -> Path:
    name, _, path = options.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def test_one_session_writes_it_and_later_ones_use_it(homes: tuple[str, str, str]) -> None:
    fresh = new_file(archive_options(*homes))
    assert archive_options(*homes) == "", "another session that starts now does not write it too"
    fresh.write_bytes(b"\0\0\0\0 not yet complete")
    assert archive_options(*homes) == ""
    fresh.write_bytes(COMPLETE)
    used = archive_options(*homes)
    name, _, path = used.partition("=")
    assert (name, Path(path).read_bytes(), fresh.exists()) == ("-XX:SharedArchiveFile", COMPLETE, False)
    assert archive_options(*homes) == used


def test_after_a_day_it_is_tried_again_and_old_files_go(homes: tuple[str, str, str]) -> None:
    fresh = new_file(archive_options(*homes))
    old = fresh.with_name("spark-1.0-0.jsa")
    for path in (fresh, old, *fresh.parent.glob("*.claim")):
        path.write_bytes(b"")
        os.utime(path, (1, 1))
    assert new_file(archive_options(*homes)) == fresh
    assert not old.exists()
    assert not fresh.exists()


def test_without_a_safe_place_there_is_none(
    homes: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache/fsspeckit/spark").mkdir(parents=True)
    (tmp_path / "cache/fsspeckit/spark").chmod(0o777)  # others can write
    assert archive_options(*homes) == ""
    for cache in (tmp_path / "my cache", tmp_path / "java/lib/server/classes.jsa"):  # a path with a space, no folder
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        assert archive_options(*homes) == ""


@pytest.mark.spark
def test_java_writes_and_accepts_the_archive(tmp_path: Path) -> None:
    if not (Path(ensure_java()) / "lib/server/classes.jsa").is_file():
        pytest.skip("this Java has no class data archive of its own, which an archive of Spark extends")
    code = (
        "from fsspeckit.datasets.spark.session import get_session as start\n"
        "spark = start()\n"
        "print(spark.range(3).count(), spark.conf.get('spark.driver.extraJavaOptions').split()[-1])\n"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}

    def session() -> list[str]:
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    count, writes = session()
    assert (count, writes.partition("=")[0]) == ("3", "-XX:ArchiveClassesAtExit")
    fresh, deadline = Path(writes.partition("=")[2]), time.monotonic() + 300
    while not class_archive._is_complete(fresh) and time.monotonic() < deadline:
        time.sleep(0.2)  # Java writes it after the end of Python
    count, uses = session()
    assert (count, uses.partition("=")[0]) == ("3", "-XX:SharedArchiveFile")
    java = [str(Path(ensure_java()) / "bin/java"), f"-XX:SharedArchiveFile={uses.partition('=')[2]}", "-version"]
    assert subprocess.run(java, capture_output=True, check=True).returncode == 0

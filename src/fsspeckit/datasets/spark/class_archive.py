"""A class data archive of Java: Spark's classes in one file, which a local session maps instead of loading jars.

A command with a small merge takes 0.6 of the time with it. The first session records the classes, which takes half as
long again, and writes the archive when its Java process ends; later sessions use it. It is in the cache folder of the
user, named after Java, Spark and its jars. Java compares it with the jars and ignores an archive that does not fit.
Without a folder that only this user can write to, there is no archive.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from fsspeckit.common.cache import cache_folder

_MAGIC = (0xF00BABA8).to_bytes(4, "little")
"""First bytes of a complete dynamic archive. Java writes the header last."""
_CLAIM_SECONDS = 24 * 3600
_UNUSED_SECONDS = 30 * 24 * 3600
_PLAIN = re.compile(r"[\w./@+-]+")


def archive_options(java_home: str, spark_home: str, version: str) -> str:
    """Return the option of Java that uses the archive, or the one that writes it at the end; empty if neither can be.

    Args:
        java_home: The folder of Java.
        spark_home: The folder of Spark.
        version: The version of Spark.
    """
    folder = cache_folder() / "spark"
    base = Path(java_home) / "lib" / "server" / "classes.jsa"
    if not base.is_file() or not _PLAIN.fullmatch(str(folder)):
        return ""  # another Java, which may not know the options, or a path that Spark would split
    archive = folder / f"{_name(base, Path(spark_home), version)}.jsa"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            return ""
        _adopt(archive)
        if _is_complete(archive):
            return f"-XX:SharedArchiveFile={archive}"
        if _claim(archive.with_suffix(".claim")):
            _remove_unused(folder)
            return f"-XX:ArchiveClassesAtExit={archive.with_suffix(f'.{os.getpid()}.new')}"
    return ""


def _name(base: Path, spark_home: Path, version: str) -> str:
    """Return a name that another Java, another Spark or other jars do not have."""
    jars = spark_home / "jars"
    stamps = [(str(path), path.stat().st_mtime_ns) for path in (base, jars) if path.exists()]
    return f"spark-{version}-{hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]}"


def _is_own(path: Path) -> bool:
    """Return whether only this user can write to a path; an archive is code."""
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _is_complete(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == _MAGIC and _is_own(path)
    return False


def _adopt(archive: Path) -> None:
    """Give an archive that another session has written its name. Of several, the last one stays."""
    for fresh in archive.parent.glob(f"{archive.stem}.*.new"):
        if _is_complete(fresh):
            fresh.replace(archive)


def _claim(path: Path) -> bool:
    """Return whether this process writes the archive: one of those that start at the same time, and one a day."""
    with suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime < _CLAIM_SECONDS:
            return False
        path.unlink()
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    return True


def _remove_unused(folder: Path) -> None:
    """Remove archives of other versions that were not opened for long, and parts that a crash left."""
    for path in folder.iterdir():
        status = path.stat()
        is_old = time.time() - max(status.st_atime, status.st_mtime) > _UNUSED_SECONDS
        if is_old or (path.suffix == ".new" and time.time() - status.st_mtime > _CLAIM_SECONDS):
            path.unlink()

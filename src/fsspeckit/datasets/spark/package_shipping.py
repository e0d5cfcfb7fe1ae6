"""Run tasks on executors that do not have this package: its source text is sent with the job.

This module is pickled by value, so it must not import anything of fsspeckit, and nothing but the standard library at
its top. An executor that has the same sources installed uses those; any other imports the sent sources from memory.
No file is written there, and the session does not change.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = __name__.partition(".")[0]


@dataclass(frozen=True)
class Package:
    """The source text of a package by module name; the key of an ``__init__`` is the package name and a dot."""

    sources: Mapping[str, str]
    digest: str

    @classmethod
    def of(cls, module: ModuleType) -> Package:
        """Read the sources in the folder that a module was loaded from."""
        folder = Path(str(module.__file__)).parent
        sources = {}
        for file in sorted(folder.rglob("*.py")):
            parts = [module.__name__, *file.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1]) + "." if parts[-1] == "__init__" else ".".join(parts)
            sources[name] = file.read_text("utf-8")
        return cls(sources, hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest())

    def install(self) -> None:
        """Make the package importable in this process, unless the same sources are already installed."""
        if installed_digest() == self.digest:
            return
        for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if not hasattr(finder, "carried")]
        sys.meta_path.insert(0, _Finder(self))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Imports from source text."""

    def __init__(self, package: Package) -> None:
        self.carried = package
        self._sources = package.sources

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._sources or f"{fullname}." in self._sources:
            return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname))
        return None

    def is_package(self, fullname: str) -> bool:
        return f"{fullname}." in self._sources

    def get_source(self, fullname: str) -> str:
        return self._sources[f"{fullname}." if self.is_package(fullname) else fullname]

    def get_filename(self, fullname: str) -> str:
        return f"/sent-by-the-driver/{fullname.replace('.', '/')}.py"


def installed_digest() -> str | None:
    """Return the digest of the sources that an import of this package uses; None if it is not installed."""
    for finder in sys.meta_path:
        if hasattr(finder, "carried"):
            return str(finder.carried.digest)
    try:
        return Package.of(importlib.import_module(NAME)).digest
    except ModuleNotFoundError as error:
        if error.name == NAME:
            return None
        raise


@dataclass(frozen=True)
class ShippedWork:
    """The pickled function of a Spark task, with the package that it needs."""

    package: Package
    body: bytes

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Install the package and run the function."""
        self.package.install()
        yield from pickle.loads(self.body)(batches)  # noqa: S301 - made by the driver of this job


@dataclass(frozen=True)
class ExecutorProbe:
    """Reports the environment of an executor. Errors are part of the answer, so that the driver can raise them."""

    digest: str
    package: Package | None
    storage: bytes
    probe: str | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the answer as one row."""
        import pyarrow as pa

        for _ in batches:
            pass
        answer = pickle.dumps(self._answer())
        offsets = pa.py_buffer(struct.pack("=ii", 0, len(answer)))
        # Not pa.array, which imports pandas first.
        column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(answer)])
        yield pa.RecordBatch.from_arrays([column], ["answer"])

    def _answer(self) -> dict[str, Any]:
        import platform

        import pyarrow as pa

        answer: dict[str, Any] = {"host": platform.node(), "python": sys.version_info[:2], "pyarrow": pa.__version__}
        try:
            if self.package is not None:
                self.package.install()
            answer["digest"] = installed_digest()
            if answer["digest"] == self.digest:
                pickle.loads(self.storage)  # noqa: S301 - made by the driver of this job
        except Exception as error:  # noqa: BLE001 - the driver raises it
            answer["failed"] = f"{type(error).__name__}: {error}"
            answer["lacks"] = getattr(error, "name", None) if isinstance(error, ImportError) else None
        if self.probe is not None:
            answer["sees"] = os.path.exists(self.probe)
        return answer

"""Work that executors can do without having this package: it travels with the job, as source text.

This module is pickled by value, so it must not import anything of fsspeckit, and nothing but the standard library at
its top. An executor that has the very same sources installed uses those; any other imports from what it was sent, in
memory: nothing is written there, and nothing of the session changes.
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
    """The source text of a package by module name; a package's own ``__init__`` stands under its name and a dot."""

    sources: Mapping[str, str]
    digest: str

    @classmethod
    def of(cls, module: ModuleType) -> Package:
        """What stands in the folder that a module was loaded from."""
        folder = Path(str(module.__file__)).parent
        sources = {}
        for file in sorted(folder.rglob("*.py")):
            parts = [module.__name__, *file.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1]) + "." if parts[-1] == "__init__" else ".".join(parts)
            sources[name] = file.read_text("utf-8")
        return cls(sources, hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest())

    def install(self) -> None:
        """Make the package importable in this process, unless the very same is already."""
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
    """Which sources of this package an import gives here, None where there are none."""
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
    """The work of a Spark task, with the package that it needs."""

    package: Package
    body: bytes

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Do it."""
        self.package.install()
        yield from pickle.loads(self.body)(batches)  # noqa: S301 - made by the driver of this job


@dataclass(frozen=True)
class ExecutorProbe:
    """What one Spark task finds where it runs; it always answers, so that the driver can say what is wrong."""

    digest: str
    package: Package | None
    storage: bytes
    probe: str | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Answer with one row."""
        import pyarrow as pa

        for _ in batches:
            pass
        answer = pickle.dumps(self._answer())
        ends = pa.py_buffer(struct.pack("=ii", 0, len(answer)))
        # Not pa.array, which imports pandas first.
        column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(answer)])
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
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver has to say it
            answer["failed"] = f"{type(error).__name__}: {error}"
            answer["lacks"] = getattr(error, "name", None) if isinstance(error, ImportError) else None
        if self.probe is not None:
            answer["sees"] = os.path.exists(self.probe)
        return answer

"""Files and folders on local disks and on every fsspec filesystem. The only package that accesses a filesystem.

:func:`resolve` turns a path, a URL or an fsspec filesystem into a :class:`Storage` and a path. fsspec is imported only
for paths that are not local, because the import delays every new Python process of Spark.

Must not: depend on Parquet or datasets.
Read first: base.py, which defines the interface of a storage.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from fsspeckit.core.storage.base import FOLDER, Entry, Handle, Storage, Tree, join, parent
from fsspeckit.core.storage.local import LocalStorage, local_path
from fsspeckit.core.storage.urls import protocol_of, to_fsspec

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = [
    "FOLDER",
    "INT96",
    "Entry",
    "Handle",
    "LocalStorage",
    "Storage",
    "Tree",
    "extra_of",
    "for_each",
    "join",
    "parent",
    "resolve",
]

_T = TypeVar("_T")
_R = TypeVar("_R")
INT96 = "int96"
"""An option of every storage: how INT96 timestamps of its files are read."""
_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs"} | dict.fromkeys(("abfs", "abfss", "az", "adl"), "azure")
_PACKAGES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}


def resolve(
    path: str | os.PathLike[str],
    filesystem: AbstractFileSystem | Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Storage, str]:
    """Turn a path or URL into a storage and an absolute path inside it.

    Args:
        path: A local path, or a URL such as ``s3://bucket/events``, with the scheme of fsspec or of Spark.
        filesystem: An fsspec filesystem (or a :class:`Storage`) that ``path`` belongs to.
        storage_options: Options for the filesystem of a URL. Only ``int96`` is allowed together with ``filesystem``.

    Returns:
        The storage and the path in it, without protocol and trailing slash.

    Examples:
        >>> storage, root = resolve("memory://lake/events")
        >>> root
        '/lake/events'
    """
    text = to_fsspec(os.fspath(path))
    if not text:
        raise ValueError("The path is empty. Pass the folder of the dataset.")
    if text in ("file://", "local://"):
        raise ValueError(f"The URL {text} has no path. Pass the folder of the dataset.")
    _check_options(storage_options)
    if INT96 in (storage_options or {}):
        storage, root = resolve(path, filesystem, {k: v for k, v in (storage_options or {}).items() if k != INT96})
        storage = copy(storage)
        storage.int96_local = _is_local((storage_options or {})[INT96])
        return storage, root
    if filesystem is not None and storage_options:
        raise ValueError(
            "storage_options configure the filesystem of a URL. Pass storage_options or filesystem, not both."
        )
    if isinstance(filesystem, Storage) and filesystem.is_local:
        return filesystem, local_path(text)
    if filesystem is None and "://" not in text and "::" not in text:
        return LocalStorage(), local_path(text)
    filesystems = _filesystems()
    if isinstance(filesystem, Storage):
        return filesystem, filesystems.path_of(text)
    if filesystem is None:
        filesystem, text = filesystems.open_url(text, storage_options or {}, _PACKAGES.get(extra_of(text) or ""))
    resolved: tuple[Storage, str] = filesystems.adapt(filesystem, text)
    return resolved


def _is_local(value: Any) -> bool:
    if value not in ("utc", "local"):
        raise ValueError(f"int96={value!r} is unknown. Use 'utc' or 'local'.")
    return bool(value == "local")


def _check_options(options: Any) -> None:
    """Raise if the options are not a mapping with string keys. Values may be secret, so messages name only types."""
    if options is not None and not isinstance(options, Mapping):
        kind = type(options).__name__
        raise ValueError(f'storage_options is of type {kind}. Pass a dictionary such as {{"anon": True}}.')
    types = sorted({type(name).__name__ for name in options or () if not isinstance(name, str)})
    if types:
        raise ValueError(f"storage_options has keys of type {', '.join(types)}. Use strings as keys.")


@cache
def _filesystems() -> Any:
    """Import the module that needs fsspec, without fsspec's warning about environment variables of fsspeckit."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Ignoring environment variable FSSPECKIT_")
        from fsspeckit.core.storage import filesystems
    return filesystems


def extra_of(path: str) -> str | None:
    """Return the extra of this package that the store of a URL needs, or None."""
    return _EXTRAS.get(protocol_of(to_fsspec(path)))


def for_each(storage: Storage, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Call a function for every item, in parallel on remote storages. Return after all calls have ended."""
    arguments = list(items)
    if storage.workers == 1 or len(arguments) < 2:
        return [function(item) for item in arguments]
    with ThreadPoolExecutor(min(storage.workers, len(arguments))) as pool:
        return list(pool.map(function, arguments))

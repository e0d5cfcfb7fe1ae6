"""Where files live: the one door to every filesystem, and the only code that opens it.

:func:`resolve` turns what a caller names (a path, a URL, an fsspec filesystem) into a :class:`Storage` and a path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import fsspec
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.core.storage_base import FOLDER, Entry, Handle, Storage, Tree, join, parent
from fsspeckit.core.storage_fsspec import FsspecStorage
from fsspeckit.core.storage_local import LocalStorage
from fsspeckit.core.urls import to_fsspec

__all__ = [
    "FOLDER",
    "Entry",
    "FsspecStorage",
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
_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs"} | dict.fromkeys(("abfs", "abfss", "az", "adl"), "azure")


def resolve(
    path: str | os.PathLike[str],
    filesystem: AbstractFileSystem | Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Storage, str]:
    """Turn a path or URL into a storage and an absolute path inside it.

    Args:
        path: A local path, or a URL such as ``s3://bucket/events``, in fsspec's spelling or in Spark's.
        filesystem: An fsspec filesystem (or a :class:`Storage`) that ``path`` belongs to.
        storage_options: Options for the filesystem of a URL; refused where ``filesystem`` is given.

    Returns:
        The storage and the path in it, without protocol and trailing slash.

    Example:
        >>> storage, root = resolve("memory://lake/events")
        >>> root
        '/lake/events'
    """
    text = to_fsspec(os.fspath(path))
    if not text:
        raise ValueError("the path is empty. Name the folder of the dataset.")
    if filesystem is not None and storage_options:
        raise ValueError("storage_options configure the filesystem of a URL. Give either them or filesystem, not both.")
    if isinstance(filesystem, Storage):
        return filesystem, _local(text) if filesystem.is_local else _remote(text)
    if filesystem is None:
        if "://" not in text and "::" not in text:
            return LocalStorage(), _local(text)
        filesystem, text = _of_url(text, storage_options or {})
    return _adapt(filesystem, text)


def extra_of(path: str) -> str | None:
    """The extra that the store of a URL needs."""
    return _EXTRAS.get(_protocol(to_fsspec(path)))


def _protocol(url: str) -> str:
    return url.partition("://")[0].rpartition("::")[2] if "://" in url else ""


def _of_url(url: str, options: Mapping[str, Any]) -> tuple[AbstractFileSystem, str]:
    protocol = _protocol(url)
    try:
        filesystem, path = url_to_fs(url, **options)
    except ImportError as error:
        extra = extra_of(url)
        remedy = f"pip install 'fsspeckit[{extra}]'" if extra else "install the package that it names"
        raise ImportError(f"{protocol}:// cannot be used here ({str(error).rstrip('.')}); {remedy}") from error
    except ValueError as error:
        if protocol in fsspec.available_protocols():
            raise
        raise ValueError(
            f"no filesystem is known for {protocol}://; use a local path, or a URL such as s3://bucket/folder"
        ) from error
    return filesystem, str(path)


def _adapt(filesystem: AbstractFileSystem, path: str) -> tuple[Storage, str]:
    if not isinstance(filesystem, AbstractFileSystem):
        raise TypeError(
            f"filesystem must be an fsspec filesystem, not {type(filesystem).__name__}. "
            "Build one with fsspec.filesystem()."
        )
    if isinstance(filesystem, LocalFileSystem):
        return LocalStorage(), _local(path)
    if isinstance(filesystem, DirFileSystem) and isinstance(filesystem.fs, LocalFileSystem):
        # Underneath is a local disk, and only LocalStorage can sync, lock and rename there.
        return LocalStorage(), _local(str(filesystem._join(path)))
    protocol = path.partition("://")[0] if "://" in path else None
    own = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else tuple(filesystem.protocol)
    if protocol is not None and protocol not in own:
        raise ValueError(f"the path is a {protocol} URL, and filesystem is for {own[0]}. Leave out one of them.")
    return FsspecStorage(filesystem), str(filesystem._strip_protocol(path)).rstrip("/")


def _local(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path.removeprefix("file://").removeprefix("local://")))


def _remote(path: str) -> str:
    protocol, separator, _ = path.partition("://")
    stripped = fsspec.get_filesystem_class(protocol)._strip_protocol(path) if separator else path
    return str(stripped).rstrip("/")


def for_each(storage: Storage, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """Call for every item, side by side where a call is a round trip; returns when all calls have ended."""
    work = list(items)
    if storage.workers == 1 or len(work) < 2:
        return [function(item) for item in work]
    with ThreadPoolExecutor(min(storage.workers, len(work))) as pool:
        return list(pool.map(function, work))

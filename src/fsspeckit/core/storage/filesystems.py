"""What a caller names, where it is no local path: URLs and fsspec filesystems, turned into storages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.common.errors import StorageError, StorageOptionError
from fsspeckit.common.install import install_command
from fsspeckit.common.text import scrub
from fsspeckit.core.storage.base import Storage
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.core.storage.local import LocalStorage, local_path
from fsspeckit.core.storage.options import hidden, option_pairs, refusal, report_options
from fsspeckit.core.storage.urls import has_login, protocol_of


def open_url(url: str, options: Mapping[str, Any], package: str | None) -> tuple[AbstractFileSystem, str]:
    """The filesystem of a URL, and the path in it; ``package`` has the filesystem, where it is not part of fsspec."""
    protocol, place, pairs = protocol_of(url), scrub(url), option_pairs(options)
    if package is not None and has_login(url):
        raise StorageOptionError(f"{place}: {protocol}:// takes no password in a URL; pass it in storage_options")
    try:
        with report_options("connect to", place, ()):
            filesystem, path = url_to_fs(url, **options)
    except ImportError as error:
        remedy = install_command(package) if package else "install the package that it names"
        raise ImportError(f"{protocol}:// cannot be used here ({str(error).rstrip('.')}); {remedy}") from error
    except StorageError as error:
        raise StorageError(f"{hidden(str(error), pairs)}; check the URL, and that its server can be reached") from error
    except (TypeError, ValueError, AttributeError) as error:
        if protocol not in fsspec.available_protocols():
            if package is not None:
                raise ImportError(f"{protocol}:// needs {package}; {install_command(package)}") from error
            raise ValueError(
                f"no filesystem is known for {protocol}://; use a local path, or a URL such as s3://bucket/folder"
            ) from error
        raise refusal(error, f"cannot open {place}", pairs) from None
    return filesystem, str(path)


def adapt(filesystem: AbstractFileSystem, path: str) -> tuple[Storage, str]:
    """A filesystem and a path that belongs to it, as a storage and a path in that."""
    if not isinstance(filesystem, AbstractFileSystem):
        raise TypeError(
            f"filesystem must be an fsspec filesystem, not {type(filesystem).__name__}. "
            "Build one with fsspec.filesystem()."
        )
    if isinstance(filesystem, LocalFileSystem):
        return LocalStorage(), local_path(path)
    if isinstance(filesystem, DirFileSystem) and isinstance(filesystem.fs, LocalFileSystem):
        # Underneath is a local disk, and only LocalStorage can sync, lock and rename there.
        return LocalStorage(), local_path(str(filesystem._join(path)))
    protocol = path.partition("://")[0] if "://" in path else None
    own = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else tuple(filesystem.protocol)
    if protocol is not None and protocol not in own:
        raise ValueError(f"the path is a {protocol} URL, and filesystem is for {own[0]}. Leave out one of them.")
    return FsspecStorage(filesystem), str(filesystem._strip_protocol(path)).rstrip("/")


def path_of(path: str) -> str:
    """A URL or path as the path inside its filesystem."""
    protocol, separator, _ = path.partition("://")
    stripped = fsspec.get_filesystem_class(protocol)._strip_protocol(path) if separator else path
    return str(stripped).rstrip("/")

"""Turn URLs and fsspec filesystems into storages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.common.errors import StorageError, StorageOptionError
from fsspeckit.common.install import install_command
from fsspeckit.common.text import scrub
from fsspeckit.core.storage.base import Storage
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.core.storage.local import LocalStorage, local_path
from fsspeckit.core.storage.options import option_error, option_pairs, report_options, without_secrets
from fsspeckit.core.storage.urls import has_login, protocol_of


def open_url(url: str, options: Mapping[str, Any], package: str | None) -> tuple[AbstractFileSystem, str]:
    """Return the filesystem of a URL and the path in it. ``package`` has the filesystem if fsspec does not."""
    protocol, shown, pairs = protocol_of(url), scrub(url), option_pairs(options)
    if package is not None and has_login(url):
        raise StorageOptionError(f"{shown}: {protocol}:// takes no password in a URL. Pass it in storage_options.")
    try:
        with report_options("connect to", shown, ()):
            filesystem, path = url_to_fs(url, **options)
    except ImportError as error:
        remedy = install_command(package) if package else "install the package that it names"
        raise ImportError(f"{protocol}:// cannot be used here ({str(error).rstrip('.')}); {remedy}") from error
    except StorageError as error:
        reason = without_secrets(str(error), pairs)
        raise StorageError(f"{reason}; check the URL, and that its server can be reached") from error
    except (TypeError, ValueError, AttributeError) as error:
        if protocol not in fsspec.available_protocols():
            if package is not None:
                raise ImportError(f"{protocol}:// needs {package}; {install_command(package)}") from error
            raise ValueError(
                f"The URL scheme {protocol}:// is unknown. Use a local path, or a URL such as s3://bucket/folder."
            ) from error
        raise option_error(error, f"cannot open {shown}", pairs) from None
    return filesystem, str(path)


def adapt(filesystem: AbstractFileSystem, path: str) -> tuple[Storage, str]:
    """Return the storage of a filesystem, and a path of the filesystem as a path in the storage."""
    if not isinstance(filesystem, AbstractFileSystem):
        raise TypeError(
            f"filesystem must be an fsspec filesystem, not {type(filesystem).__name__}. "
            "Create one with fsspec.filesystem()."
        )
    # Wrappers are removed, so that a dataset has one path and one journal, however it is opened. Only LocalStorage can
    # sync, lock and rename the files of a local disk.
    if isinstance(filesystem, LocalFileSystem) or _is_local_arrow(filesystem):
        return LocalStorage(), local_path(path)
    protocol = path.partition("://")[0] if "://" in path else None
    own = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else tuple(filesystem.protocol)
    if protocol is not None and protocol not in own:
        raise ValueError(f"The path is a {protocol} URL, but filesystem is for {own[0]}. Leave out one of them.")
    if isinstance(filesystem, DirFileSystem):
        inner = _without_dots(str(filesystem._strip_protocol(path))).lstrip("/")
        return adapt(filesystem.fs, str(filesystem._join(inner)))
    return FsspecStorage(filesystem), _without_dots(str(filesystem._strip_protocol(path)))


def _is_local_arrow(filesystem: AbstractFileSystem) -> bool:
    return isinstance(filesystem, ArrowFSWrapper) and filesystem.fs.type_name == "local"


def _without_dots(path: str) -> str:
    """Return a path without `.` and without trailing slashes. Raise for `..`, which storages treat differently."""
    parts = path.rstrip("/").split("/")
    if ".." in parts:
        raise ValueError(f"The path {scrub(path)} contains '..'. Pass the path without it.")
    return "/".join(part for part in parts if part != ".")


def path_of(path: str) -> str:
    """Return a URL or path as the path inside its filesystem."""
    protocol, separator, _ = path.partition("://")
    stripped = fsspec.get_filesystem_class(protocol)._strip_protocol(path) if separator else path
    return _without_dots(str(stripped))

"""Probe whether a storage refuses to create a file that exists. Without that, two writers of one slot both win.

Local disks always do. For other storages it depends on the server and on the library: some servers that speak the
protocol of S3 ignore `If-None-Match`, and old versions of s3fs do not send it. The probe creates a file twice, in a
staging folder of its own: after a crash, recovery removes it like that of any dead writer. The result is kept as the
name of an empty file in the folder of the records, which is listed anyway. It is valid for one library and version, one
server and one path, so a copy of the dataset is probed again. It only saves requests, and is not checked: whoever can
write it can also delete the data. The probe also shows whether files may be deleted.
"""

from __future__ import annotations

import hashlib
import logging

from fsspeckit.common.errors import StorageError, StoragePermissionError
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.record import new_id
from fsspeckit.core.storage import Storage, join

_ATTEMPTS = 3
"""A recovery of another process may delete the probed file between the two calls."""
_logger = logging.getLogger(__name__)


def ensure_exclusive_create(storage: Storage, log: Log, state: LogState) -> None:
    """Probe the storage of a journal, unless ``state`` lists the result of an earlier probe.

    Raises:
        StorageError: The storage replaces a file that exists.
    """
    if storage.is_local or (mark := _mark(storage, log)) in state.probed:
        return
    probe_exclusive_create(storage, log)
    storage.make_dirs(log.folder)
    storage.write_bytes(join(log.folder, mark), b"")


def probe_exclusive_create(storage: Storage, log: Log) -> None:
    """Probe the storage of a journal, which need not exist. Nothing is left behind.

    Raises:
        StorageError: The storage replaces a file that exists.
    """
    if any(_refuses_to_replace(storage, log) for _ in range(_ATTEMPTS)):
        return
    raise StorageError(
        f"{storage.url(log.sidecar)}: the server, or the library {storage.client}, replaces a file that must only be "
        "created if it does not exist, so two writers could both commit. Nothing was changed, and reading works. Use "
        "a server with conditional writes (If-None-Match), and for S3 s3fs 2024.12 or later."
    )


def _refuses_to_replace(storage: Storage, log: Log) -> bool:
    """Create a file twice, under a new name: a versioned bucket may refuse to create a deleted key."""
    folder = log.staging_path(new_id())
    with storage.lock(log.staging_lock_path):
        handle = storage.claim_staging(folder)
    try:
        for _ in range(2):
            storage.create_exclusive(join(folder, "probe"), b"")
    except FileExistsError:
        return True
    finally:
        _remove(storage, folder)
        handle.release()
    return False


def _remove(storage: Storage, folder: str) -> None:
    """Remove the folder. Raise if that is not allowed: then no commit could remove the files that it replaces."""
    try:
        storage.remove_tree(folder)
    except PermissionError as error:
        raise StoragePermissionError(
            f"{storage.url(folder)}: the credentials may create objects, but not delete them, so other readers would "
            "see replaced rows too. Nothing was changed. Allow them to delete (`s3:DeleteObject`), then run again."
        ) from error
    except OSError as error:
        _logger.info("%s could not be removed, a recovery tries again: %s", folder, error)


def _mark(storage: Storage, log: Log) -> str:
    digest = hashlib.sha256(f"{storage.client}\n{storage.url(log.folder)}".encode("utf-8", "surrogateescape"))
    return f"probed-{digest.hexdigest()[:32]}"

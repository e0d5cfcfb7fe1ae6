"""The copy of a blob: adlfs does not wait for its end.

A copy of Azure may still be pending when the request returns. A source that is deleted then makes it fail.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import sync

from fsspeckit.common.errors import StorageError

_WAIT_SECONDS = 0.5


class AzureRequests:
    """Single requests through the client of an adlfs filesystem."""

    def __init__(self, filesystem: AbstractFileSystem) -> None:
        self._fs = filesystem

    def copy(self, source: str, target: str) -> None:
        """Copy a blob and wait until the copy has ended."""
        sync(self._fs.loop, self._copy, source, target)

    async def _copy(self, source: str, target: str) -> None:
        async with self._blob(source) as old, self._blob(target) as new:
            try:
                state = (await new.start_copy_from_url(old.url)).get("copy_status")
            except Exception as error:
                if getattr(error, "status_code", None) == HTTPStatus.NOT_FOUND:
                    raise FileNotFoundError(source) from error
                raise
            while state == "pending":
                await asyncio.sleep(_WAIT_SECONDS)
                state = (await new.get_blob_properties()).copy.status
            if state not in (None, "success"):
                raise StorageError(f"cannot copy {source} to {target}: the store reports {state}. Run it again.")

    def _blob(self, path: str) -> Any:
        container, name, _ = self._fs.split_path(path)
        return self._fs.service_client.get_blob_client(container=container, blob=name)

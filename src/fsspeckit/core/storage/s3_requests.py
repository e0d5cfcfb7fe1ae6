"""Requests to S3 that s3fs does not offer one by one: s3fs adds a HEAD or a LIST to most of its calls.

Object stores charge and wait for each request. So a listing has a thousand names per request and large trees are
listed in parallel, a small file is one GET, a copy is one request, and a thousand files are deleted by one request,
whose response is checked key by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import sync
from fsspec.caching import ReadAheadCache

from fsspeckit.common.errors import StorageError, StoragePermissionError

WHOLE_FILE = 4 * 1024 * 1024
"""Files up to this size are read whole: at 80 MB/s per connection, the bytes take as long as one more round trip."""
_MAX_COPY = 5 * 1024**3
_DELETED_KEYS = 1000
_LIST_WORKERS = 16
_MAX_LEVELS = 3
_ATTEMPTS = 3

Info = Mapping[str, Any]
_sent: ContextVar[list[int] | None] = ContextVar("_sent", default=None)


class S3Requests:
    """Single requests through the client of an s3fs filesystem."""

    def __init__(self, filesystem: AbstractFileSystem) -> None:
        self._fs = filesystem

    def endpoint(self) -> str:
        """Return the URL of the server."""
        return str(self._fs.s3.meta.endpoint_url)

    def stat(self, path: str) -> Info | None:
        """Return a file, or None. One HEAD; a prefix is not a file."""
        bucket, key = self._split(path)
        if not key:
            return None
        try:
            found = self._fs.call_s3("head_object", Bucket=bucket, Key=key)
        except FileNotFoundError:
            return None
        except OSError:
            self._page(bucket, key, MaxKeys=1)  # the answer to a HEAD has no text: this one says what is wrong
            raise
        return _info(path, found["ContentLength"], found)

    def read(self, path: str, size: int | None = None, stamp: str = "") -> bytes:
        """Return a file, or its first ``size`` bytes. One GET."""
        return self._get(path, None if size is None else f"bytes=0-{size - 1}", stamp)[0]

    def read_tail(self, path: str, size: int) -> tuple[bytes, Info]:
        """Return the last bytes of a file, and the file. One GET."""
        data, found = self._get(path, f"bytes=-{size}")
        total = str(found.get("ContentRange", "")).rpartition("/")[2]
        return data, _info(path, int(total) if total.isdigit() else len(data), found)

    def open(self, path: str, size: int, stamp: str) -> RangeReader:
        """Open a file of known size; nothing is requested before the first read."""

        def fetch(start: int, end: int) -> bytes:
            return self._get(path, f"bytes={start}-{end - 1}", stamp)[0]

        return RangeReader(fetch, size, self._fs.default_block_size)

    def _get(self, path: str, byte_range: str | None, stamp: str = "") -> tuple[bytes, Mapping[str, Any]]:
        """Request bytes, and again if the connection is lost while they arrive."""
        bucket, key = self._split(path)
        limits = {} if byte_range is None else {"Range": byte_range}
        for attempt in range(_ATTEMPTS):
            found = self._fs.call_s3("get_object", Bucket=bucket, Key=key, **limits)
            if stamp.startswith('"') and found.get("ETag", stamp) != stamp:
                found["Body"].close()
                raise FileNotFoundError(f"{path} was replaced since it was listed. List the dataset again.")
            try:
                return bytes(sync(self._fs.loop, found["Body"].read)), found
            except Exception:  # each client library has its own errors for a lost connection
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:
                found["Body"].close()
        raise AssertionError("unreachable")

    def copy(self, source: str, target: str, size: int) -> int | None:
        """Copy a file with one request, or return None if it is too large for that.

        Return how many times the request was sent, or 0 if that is not known: the client repeats it if the connection
        fails, and the server may still be working on the first one.
        """
        if size > _MAX_COPY:
            return None
        return int(sync(self._fs.loop, self._copy, self._split(source), self._split(target)))

    async def _copy(self, source: tuple[str, str], target: tuple[str, str]) -> int:
        await self._fs.set_session()
        client = await self._fs.get_s3(target[0])
        client.meta.events.register("before-send.s3.CopyObject", _count_request, unique_id="fsspeckit-copies")
        count = [0]
        _sent.set(count)
        is_counted = _repeats_nothing(client)
        named = {"Bucket": source[0], "Key": source[1]}
        await self._fs._call_s3("copy_object", Bucket=target[0], Key=target[1], CopySource=named)
        return count[0] if is_counted else 0

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, a thousand per request. Raise if the store reports that a file was not deleted."""
        keys: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = self._split(path)
            keys.setdefault(bucket, []).append(key)
        parts = [
            (bucket, names[start : start + _DELETED_KEYS])
            for bucket, names in keys.items()
            for start in range(0, len(names), _DELETED_KEYS)
        ]
        _in_parallel(lambda part: self._delete(*part), parts)

    def _delete(self, bucket: str, keys: Sequence[str]) -> None:
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = self._fs.call_s3("delete_objects", Bucket=bucket, Delete=wanted)
        failed = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if failed:
            first = failed[0]
            kind = StoragePermissionError if first.get("Code") == "AccessDenied" else StorageError
            reason = first.get("Message") or first.get("Code")
            raise kind(f"{len(failed)} of {len(keys)} files were not deleted, such as {first.get('Key')}: {reason}")

    def list_page(self, folder: str) -> list[Info] | None:
        """Return all files below a folder if one LIST returns them, else None."""
        bucket, key = self._split(folder)
        page = self._page(bucket, _prefix(key))
        return None if page.get("IsTruncated") else _files(bucket, page)

    def list_all(self, folder: str) -> list[Info]:
        """Return all files below a folder. After the first thousand, ranges of folders are listed in parallel."""
        bucket, key = self._split(folder)
        prefix = _prefix(key)
        page = self._page(bucket, prefix)
        files = _files(bucket, page)
        if not page.get("IsTruncated"):
            return files
        last = page["Contents"][-1]["Key"]
        bounds = _bounds([name for name in self._folders(bucket, prefix) if name > last])
        ranges = list(zip([last, *bounds], [*bounds, None], strict=True))
        for part in _in_parallel(lambda limits: self._range(bucket, prefix, *limits), ranges):
            files += part
        return files

    def _range(self, bucket: str, prefix: str, after: str, until: str | None) -> list[Info]:
        """List the keys after one key and up to another."""
        files: list[Info] = []
        token: dict[str, str] = {"StartAfter": after}
        while True:
            page = self._page(bucket, prefix, **token)
            found = page.get("Contents", ())
            kept = [entry for entry in found if until is None or entry["Key"] <= until]
            files += _files(bucket, {"Contents": kept})
            if len(kept) < len(found) or not page.get("IsTruncated"):
                return files
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _folders(self, bucket: str, prefix: str) -> list[str]:
        """Return the prefixes of folders, of the first level that has one for each worker."""
        level: list[str] = [prefix]
        for _ in range(_MAX_LEVELS):
            below = [name for names in _in_parallel(lambda one: self._subfolders(bucket, one), level) for name in names]
            if not below:
                break
            level = below
            if len(level) >= _LIST_WORKERS:
                break
        return [] if level == [prefix] else sorted(level)

    def _subfolders(self, bucket: str, prefix: str) -> list[str]:
        names: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = self._page(bucket, prefix, Delimiter="/", **token)
            found = [common["Prefix"] for common in page.get("CommonPrefixes", ())]
            names += found
            if not page.get("IsTruncated") or len(found) <= len(page.get("Contents", ())):
                return names  # mostly files: to list them for their folders would cost as much as to list them flat
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _page(self, bucket: str, prefix: str, **options: Any) -> Mapping[str, Any]:
        page: Mapping[str, Any] = self._fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **options)
        return page

    def _split(self, path: str) -> tuple[str, str]:
        bucket, key, _ = self._fs.split_path(path)
        return bucket, key


def _count_request(**_: Any) -> None:
    """Count a request of the current copy, for an event of botocore before each request that is sent."""
    count = _sent.get()
    if count is not None:
        count[0] += 1


def _repeats_nothing(client: Any) -> bool:
    """Return whether all repeated requests are counted.

    aiohttp repeats a request of its own accord, without an event, if a connection that it has kept open ends without an
    answer. The client above does the same and counts it, so this is switched off.
    """
    sessions = getattr(getattr(getattr(client, "_endpoint", None), "http_session", None), "_sessions", None)
    if not isinstance(sessions, dict):
        return False
    for session in sessions.values():
        if not hasattr(session, "_retry_connection"):
            return False
        session._retry_connection = False
    return True


class RangeReader:
    """A file for random access, read in large ranges."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, block_size: int) -> None:
        self._cache = ReadAheadCache(block_size, fetch, size)
        self._size, self._at = size, 0
        self.closed = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes."""
        end = self._size if count is None or count < 0 else min(self._at + count, self._size)
        data = bytes(self._cache._fetch(self._at, end)) if end > self._at else b""
        self._at += len(data)
        return data

    def close(self) -> None:
        """Release the read bytes."""
        self.closed = True


def _in_parallel(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_LIST_WORKERS, len(items))) as pool:
        return list(pool.map(function, items))


def _bounds(folders: Sequence[str]) -> list[str]:
    """Return the starts of ranges with about the same number of folders."""
    step = -(-len(folders) // _LIST_WORKERS) or 1
    return list(folders[::step])


def _prefix(key: str) -> str:
    return f"{key.rstrip('/')}/" if key else ""


def _files(bucket: str, page: Mapping[str, Any]) -> list[Info]:
    return [_info(f"{bucket}/{entry['Key']}", entry["Size"], entry) for entry in page.get("Contents", ())]


def _info(path: str, size: int, found: Mapping[str, Any]) -> Info:
    return {"name": path, "type": "file", "size": size} | {
        name: found[name] for name in ("ETag", "LastModified") if name in found
    }

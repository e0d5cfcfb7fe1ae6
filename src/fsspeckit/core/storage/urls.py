"""Convert URLs between the schemes of fsspec and those of Spark, with an explicit table.

Schemes that are the same in both (``hdfs``, ``gs``, ``abfss``), or that only one of them supports, are not changed.
"""

from __future__ import annotations

import re

from fsspeckit.common.text import LOGIN

_TO_FSSPEC = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasb": "abfs", "wasbs": "abfss"}
_TO_SPARK = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "az": "abfss", "local": "file"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Hadoop prints URLs without a host with one slash: file:/data.
_ONE_SLASH = re.compile(r"^(file|hdfs|viewfs|dbfs):/(?!/)")


def to_fsspec(url: str) -> str:
    """Return a URL or local path with the scheme of fsspec.

    Examples:
        >>> to_fsspec("s3a://bucket/events"), to_fsspec("file:/data/events"), to_fsspec("data/a:b")
        ('s3://bucket/events', 'file:///data/events', 'data/a:b')
    """
    return "::".join(_replace_scheme(_ONE_SLASH.sub(r"\1:///", part, count=1), _TO_FSSPEC) for part in url.split("::"))


def to_spark(url: str) -> str:
    """Return a URL with the scheme of Spark.

    Examples:
        >>> to_spark("s3://bucket/events"), to_spark("abfss://box@account.dfs.core.windows.net/events")
        ('s3a://bucket/events', 'abfss://box@account.dfs.core.windows.net/events')
    """
    return _replace_scheme(_ONE_SLASH.sub(r"\1:///", url, count=1), _TO_SPARK)


def protocol_of(url: str) -> str:
    """Return the first protocol of a URL or URL chain that is followed by ``://``, or an empty string for a path."""
    return url.partition("://")[0].rpartition("::")[2] if "://" in url else ""


def has_login(url: str) -> bool:
    """Return whether a URL, or one of a chain, contains a user and a password."""
    logins = (re.match(LOGIN, part.partition("://")[2]) for part in url.split("::"))
    return any(login is not None and ":" in login[0] for login in logins)


def _replace_scheme(url: str, table: dict[str, str]) -> str:
    match = _SCHEME.match(url)
    if match is None:
        return url
    scheme = match[1].lower()
    return f"{table.get(scheme, scheme)}://{url[match.end() :]}"

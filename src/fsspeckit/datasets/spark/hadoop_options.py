"""Options of fsspec filesystems from the Hadoop settings of a Spark session: credentials and endpoints.

Spark opens object stores with Hadoop's connectors, and fsspeckit with fsspec. The settings of the one become the
options of the other, so a path needs no second set of credentials. Options of the caller are kept. Credentials are
never mixed: if the caller passes one of them, no setting for credentials is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.core.storage.urls import protocol_of, to_fsspec
from fsspeckit.datasets.spark.versions import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGINS = {
    "s3": {"key", "secret", "token", "anon", "profile", "session", "username", "password"},
    "gs": {"token"},
    "abfs": {
        *("account_key", "credential", "sas_token", "connection_string"),
        *("client_id", "client_secret", "tenant_id", "anon"),
    },
}
"""Options with which a caller passes credentials."""
_TENANT = re.compile(r"https://[^/]+/([^/]+)/oauth2/")
_CENTRAL = "s3.amazonaws.com"
_AZURE = ".dfs.core.windows.net"


@dataclass(frozen=True, slots=True)
class _Option:
    """An option with the names of its nested mappings, its value, and the setting that it comes from."""

    names: tuple[str, ...]
    value: Any
    setting: str
    is_login: bool = False


_Settings = Callable[[str], str | None]


def session_options(
    spark: SparkSession, url: str, given: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """Return the options of a URL, with those from the settings of a session, and the names of these settings."""
    added = [option for option in _options(_settings(spark), url, given or {}) if option.value]
    merged = dict(given or {})
    for option in added:
        inner = merged
        for name in option.names[:-1]:
            inner[name] = dict(inner.get(name) or {})
            inner = inner[name]
        inner[option.names[-1]] = option.value
    return (merged if added else given), tuple(sorted({option.setting for option in added}))


def is_object_store(path: Any) -> bool:
    """Return whether a path is the URL of a store with settings in Hadoop."""
    return isinstance(path, (str, os.PathLike)) and _kind(os.fspath(path)) is not None


def _kind(url: Any) -> str | None:
    if not isinstance(url, str) or "::" in url:
        return None
    protocol = protocol_of(to_fsspec(url))
    return {"s3": "s3", "gs": "gs"}.get(protocol) or ("abfs" if protocol in ("abfs", "abfss", "az") else None)


def _options(settings: _Settings, url: str, given: Mapping[str, Any]) -> Iterator[_Option]:
    """Yield the options for a URL that the caller did not pass."""
    kind = _kind(url)
    if kind is None:
        return
    has_login = bool(_LOGINS[kind] & given.keys())
    place = to_fsspec(url).partition("://")[2].partition("/")[0]
    for option in {"s3": _s3, "gs": _gs, "abfs": _azure}[kind](settings, place, given):
        if not _is_given(given, option.names) and not (option.is_login and has_login):
            yield option


def _is_given(given: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    if names[-1] in given:  # s3fs takes an endpoint on its own too
        return True
    for name in names:
        if not isinstance(given, Mapping) or name not in given:
            return False
        given = given[name]
    return True


def _s3(settings: _Settings, bucket: str, _: Mapping[str, Any]) -> Iterator[_Option]:
    def find(name: str) -> tuple[str, str]:
        return _first(settings, (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"))

    logins = {"key": find("access.key"), "secret": find("secret.key"), "token": find("session.token")}
    if logins["key"][1] and logins["secret"][1]:
        for option, (setting, value) in logins.items():
            yield _Option((option,), value, setting, is_login=True)
    else:
        setting, providers = find("aws.credentials.provider")
        first = providers.partition(",")[0].strip()
        yield _Option(("anon",), first.endswith("AnonymousAWSCredentialsProvider"), setting, is_login=True)
    setting, endpoint = find("endpoint")
    scheme = "http" if find("connection.ssl.enabled")[1] == "false" else "https"
    if endpoint and endpoint != _CENTRAL:
        full = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        yield _Option(("client_kwargs", "endpoint_url"), full, setting)
    setting, region = find("endpoint.region")
    yield _Option(("client_kwargs", "region_name"), region, setting)
    setting, is_path = find("path.style.access")
    if is_path == "true":
        yield _Option(("config_kwargs", "s3", "addressing_style"), "path", setting)


def _gs(settings: _Settings, _bucket: str, _: Mapping[str, Any]) -> Iterator[_Option]:
    def find(name: str) -> tuple[str, str]:
        return _first(settings, (f"fs.gs.{name}", f"google.cloud.{name}"))

    for option, name in (("project", "project.id"), ("endpoint_url", "storage.root.url")):
        setting, value = find(name)
        yield _Option((option,), value, setting)
    setting, file = find("auth.service.account.json.keyfile")
    kind = find("auth.type")
    if kind[1] == "UNAUTHENTICATED":
        yield _Option(("token",), "anon", kind[0], is_login=True)
    else:
        yield _Option(("token",), file, setting, is_login=True)


def _azure(settings: _Settings, place: str, given: Mapping[str, Any]) -> Iterator[_Option]:
    host = place.partition("@")[2] or (f"{given['account_name']}{_AZURE}" if given.get("account_name") else "")

    def find(name: str) -> tuple[str, str]:
        return _first(settings, tuple(f"fs.azure.{name}{end}" for end in (f".{host}", "")))

    kind = find("account.auth.type")[1]
    found = dict[str, tuple[str, str]]()
    if kind == "OAuth":
        names = {"client_id": "id", "client_secret": "secret", "tenant_id": "endpoint"}
        found = {option: find(f"account.oauth2.client.{name}") for option, name in names.items()}
        tenant = _TENANT.match(found["tenant_id"][1])
        found["tenant_id"] = (found["tenant_id"][0], tenant[1] if tenant else "")
        found = found if all(value for _, value in found.values()) else {}
    elif kind in ("", "SharedKey", "SAS"):
        found = {"sas_token": find("sas.fixed.token")} if kind == "SAS" else {"account_key": find("account.key")}
    for option, (setting, value) in found.items():
        yield _Option((option,), value, setting, is_login=True)
    if host and any(value for _, value in found.values()):
        yield _Option(("account_name",), host.partition(".")[0], next(iter(found.values()))[0])


def _first(settings: _Settings, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the name and value of the first of the settings that has one, or empty texts."""
    values = ((name, (settings(name) or "").strip()) for name in names)
    return next((pair for pair in values if pair[1]), ("", ""))


def _settings(spark: SparkSession) -> _Settings:
    """Return a function that returns a setting of Hadoop; a session of Spark Connect tells only those of Spark."""
    if is_remote(spark):
        return lambda name: spark.conf.get(name, None) or spark.conf.get(f"spark.hadoop.{name}", None)
    untyped: Any = spark
    configuration = untyped._jsparkSession.sessionState().newHadoopConf()
    get: _Settings = configuration.get
    return get

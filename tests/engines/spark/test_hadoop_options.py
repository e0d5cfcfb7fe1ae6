"""Hadoop settings of a session become options of fsspec: credentials and endpoints are configured once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.hadoop_options import session_options

pytestmark = pytest.mark.more
SECRET = "do-not-tell-4713"
AZURE = "abfss://box@acme.dfs.core.windows.net/events"
HOST = "acme.dfs.core.windows.net"


@pytest.fixture
def session(spark, monkeypatch):
    """A session with settings of its own, and no credentials in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    return spark.newSession()


def configured(session, **settings):
    for name, value in settings.items():
        session.conf.set(f"fs.{name.replace('__', '.')}", value)
    return session


def test_a_dataset_on_s3_with_the_settings_of_s3a_only(session, s3_server, s3_bucket):
    """The endpoint of all buckets leads nowhere; that of this bucket has no scheme, as Hadoop allows."""
    address = s3_server.endpoint.removeprefix("http://")
    configured(session, s3a__access__key="user", s3a__secret__key=SECRET, s3a__endpoint="http://127.0.0.1:9")
    configured(session, s3a__connection__ssl__enabled="false", s3a__path__style__access="true")
    session.conf.set(f"fs.s3a.bucket.{s3_bucket}.endpoint", address)
    io, path = SparkDatasetIO(session), f"s3a://{s3_bucket}/ds"
    io.write_dataset(session.range(50).toDF("id"), path)
    io.write_dataset(pa.table({"id": [49, 50]}), f"s3a://{s3_bucket}/updates")
    plan = io.merge(f"s3a://{s3_bucket}/updates", path, strategy="upsert", key_columns="id", dry_run=True)
    names = ("access.key", f"bucket.{s3_bucket}.endpoint", "path.style.access", "secret.key")
    assert plan.settings == tuple(f"fs.s3a.{name}" for name in names)
    assert "fs.s3a.access.key" in str(plan)
    assert type(plan).from_dict(plan.to_dict()).settings == plan.settings
    result = io.merge(f"s3a://{s3_bucket}/updates", path, strategy="upsert", key_columns="id")
    assert (result.inserted, io.read(path).count()) == (1, 51)
    assert not any(SECRET in text for text in (str(plan), repr(plan), str(plan.to_dict()), repr(io), str(result)))


def test_options_of_the_caller_win_and_credentials_are_not_mixed(session, s3_server, s3_bucket):
    configured(session, s3a__access__key="hadoop", s3a__secret__key="hadoop", s3a__session__token="hadoop")
    configured(session, s3a__endpoint="http://127.0.0.1:9", s3a__endpoint__region="eu-west-1")
    options, settings = session_options(session, f"s3://{s3_bucket}/ds", s3_server.storage_options)
    assert options == {
        "key": "test",
        "secret": s3_server.storage_options["secret"],
        "client_kwargs": {"endpoint_url": s3_server.endpoint, "region_name": "eu-west-1"},
    }
    assert settings == ("fs.s3a.endpoint.region",)
    assert "region_name" not in s3_server.storage_options["client_kwargs"], "the caller's options are not changed"
    alone = {"endpoint_url": s3_server.endpoint, "anon": True}
    assert session_options(session, "s3://b/ds", alone)[0] == alone | {"client_kwargs": {"region_name": "eu-west-1"}}
    filesystem = s3_server.filesystem()
    io = SparkDatasetIO(session, filesystem=filesystem)
    io.write_dataset(pa.table({"id": [1]}), f"s3://{s3_bucket}/own")
    plan = io.merge(pa.table({"id": [1]}), f"s3://{s3_bucket}/own", strategy="upsert", key_columns="id", dry_run=True)
    assert plan.settings == ()


OAUTH = "fs.azure.account.oauth2.client"
STORES: list[tuple[str, dict[str, str], dict[str, Any] | None]] = [
    ("s3a://b/x", {}, None),
    ("/local/x", {"fs.s3a.endpoint": "http://e"}, None),
    ("s3a://b/x", {"fs.s3a.access.key": "alone", "fs.s3a.endpoint": "s3.amazonaws.com"}, None),
    ("s3a://b/x", {"fs.s3a.aws.credentials.provider": "org.x.AnonymousAWSCredentialsProvider"}, {"anon": True}),
    ("s3a://b/x", {"fs.s3a.endpoint": "e:9"}, {"client_kwargs": {"endpoint_url": "https://e:9"}}),
    (AZURE, {f"fs.azure.account.key.{HOST}": "k"}, {"account_name": "acme", "account_key": "k"}),
    (AZURE, {"fs.azure.account.key.other.dfs.core.windows.net": "k"}, None),
    (
        AZURE,
        {f"fs.azure.account.auth.type.{HOST}": "SAS", f"fs.azure.sas.fixed.token.{HOST}": "t"},
        {"account_name": "acme", "sas_token": "t"},
    ),
    (
        AZURE,
        {"fs.azure.account.auth.type": "OAuth", f"{OAUTH}.id": "i", f"{OAUTH}.secret": "s"}
        | {f"{OAUTH}.endpoint": "https://login.microsoftonline.com/t/oauth2/token"},
        {"account_name": "acme", "client_id": "i", "client_secret": "s", "tenant_id": "t"},
    ),
    (
        "gs://b/x",
        {"fs.gs.project.id": "p", "google.cloud.auth.service.account.json.keyfile": "/k.json"},
        {"project": "p", "token": "/k.json"},
    ),
    ("gs://b/x", {"fs.gs.auth.type": "UNAUTHENTICATED"}, {"token": "anon"}),
]


def test_settings_of_each_store(spark, session):
    for url, settings, expected in STORES:
        own = spark.newSession()
        for name, value in settings.items():
            own.conf.set(name, value)
        options, used = session_options(own, url, None)
        assert options == expected, settings
        assert set(used) <= settings.keys()
        assert bool(used) == (expected is not None)

"""Loggers, hidden secrets, errors logged once, and clean-up that goes on."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from fsspeckit.common.errors import CommitConflictError, SchemaMismatchError
from fsspeckit.common.logging import log_unexpected, redact, release_all
from fsspeckit.common.text import scrub


def test_no_value_of_storage_options_that_may_be_secret_is_shown() -> None:
    options = {"key": "AKIA", "secret": "hush", "port": 4711, "anon": True, "token": None}
    options["config_kwargs"] = {"headers": ["hush"], "nested": {"password": "hush"}}
    shown = redact(options)
    assert shown.keys() == options.keys()
    for hidden in ("hush", "AKIA", "4711"):
        assert hidden not in str(shown)
    assert shown["anon"] is True
    assert shown["token"] is None
    assert options["secret"] == "hush"
    assert redact(None) == {}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("read https://host/x.parquet?sig=abc&x=1 failed", "read https://host/x.parquet failed"),
        ("s3://key:a@b@bucket/x@y", "s3://bucket/x@y"),
        ('Invalid bucket name "user:pw@bucket": no', 'Invalid bucket name "***@bucket": no'),
        ("host/x?a=1&sig=abc&b=2", "host/x?a=1&sig=***&b=2"),
        ("AccountName=me;AccountKey=abc==;End=x", "AccountName=me;AccountKey=***;End=x"),
        ("day=1/key=5/a.parquet", "day=1/key=5/a.parquet"),
        ("/data/user@home/x.parquet", "/data/user@home/x.parquet"),
        ("at abfss://box@a.dfs.core.windows.net/ds?sig=x", "at abfss://box@a.dfs.core.windows.net/ds"),
    ],
)
def test_secrets_of_urls_are_dropped(text: str, clean: str) -> None:
    assert scrub(text) == clean


@pytest.mark.scenario("UP-64")
def test_an_unexpected_error_is_logged_once_with_operation_and_path_and_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @log_unexpected("merge", "s3://key:hush@lake/events")
    def work() -> None:
        with log_unexpected("rewrite", "lake/events/x.parquet"):
            raise RuntimeError("disk on fire at s3://key:hush@lake")

    with pytest.raises(RuntimeError, match="disk on fire"), log_unexpected("job", "lake"):
        work()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "Traceback" in record.getMessage()
    for part in ("rewrite", "lake/events/x.parquet", "disk on fire"):
        assert part in record.getMessage()
    assert "hush" not in caplog.text


@pytest.mark.scenario("UP-64")
@pytest.mark.parametrize(
    ("error", "logged"),
    [
        *((OSError("gone"), 1), (pa.ArrowNotImplementedError("no kernel"), 1)),
        *((FileNotFoundError("x"), 0), (SchemaMismatchError("read of lake: s"), 0), (CommitConflictError("c"), 0)),
    ],
    ids=repr,
)
def test_errors_that_nobody_asked_for_are_logged(
    error: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(type(error)) as caught, log_unexpected("read", "lake"):
        raise error
    assert caught.value is error
    assert len(caplog.records) == logged


@pytest.mark.scenario("UP-65")
def test_clean_up_tries_every_resource_and_logs_each_failure(caplog: pytest.LogCaptureFixture) -> None:
    released: list[str] = []

    def broken() -> None:
        raise OSError("busy")

    resources = [("spool", broken), ("scanner", lambda: released.append("scanner")), ("file", broken)]
    resources.append(("lock", lambda: released.append("lock")))
    assert release_all(resources, "merge") == 2
    assert released == ["scanner", "lock"]
    messages = [record.getMessage() for record in caplog.records]
    assert ["spool" in messages[0], "file" in messages[1]] == [True, True]
    assert all("merge" in message and "busy" in message for message in messages)

"""Loggers, hidden secrets, errors logged once, and clean-up that goes on."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from fsspeckit.common.errors import CommitConflictError, SchemaMismatchError
from fsspeckit.common.logging import get_logger, log_unexpected, redact, release_all
from fsspeckit.common.text import scrub


def test_loggers_stand_below_one_root_that_is_silent_by_default() -> None:
    assert get_logger("fsspeckit").name == "fsspeckit"
    assert get_logger("fsspeckitty").name == "fsspeckit.fsspeckitty"
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("fsspeckit").handlers)


def test_no_value_of_storage_options_that_may_be_secret_is_shown() -> None:
    options = {
        "key": "AKIA",
        "secret": "hush",
        "port": 4711,
        "anon": True,
        "token": None,
        "config_kwargs": {"headers": ["hush"], "nested": {"password": "hush"}},
    }
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
        ("a?b*.parquet", "a?b*.parquet"),
        ("s3://key:a@b@bucket/x@y", "s3://bucket/x@y"),
        ("s3://key:a/b+c@bucket/x", "s3://bucket/x"),
        ("http://host:80/a@b.parquet", "http://host:80/a@b.parquet"),
        ('Invalid bucket name "user:pw@bucket": no', 'Invalid bucket name "***@bucket": no'),
        ("cannot stat user:pw@bucket/x", "cannot stat ***@bucket/x"),
        ("host/x?a=1&sig=abc&b=2", "host/x?a=1&sig=***&b=2"),
        ("AccountName=me;AccountKey=abc==;End=x", "AccountName=me;AccountKey=***;End=x"),
        ("day=1/key=5/a.parquet", "day=1/key=5/a.parquet"),
        ("at 10:30@noon", "at ***@noon"),
        ("/data/user@home/x.parquet", "/data/user@home/x.parquet"),
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
@pytest.mark.parametrize("error", [OSError("gone"), MemoryError(), pa.ArrowNotImplementedError("no kernel")], ids=repr)
def test_errors_that_nobody_asked_for_are_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(type(error)), log_unexpected("read", "lake"):
        raise error
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "error", [FileNotFoundError("x"), SchemaMismatchError("read of lake: s"), CommitConflictError("c")], ids=repr
)
def test_expected_errors_are_raised_and_not_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(type(error)) as caught, log_unexpected("read", "lake"):
        raise error
    assert caught.value is error
    assert not caplog.records


@pytest.mark.scenario("UP-65")
def test_clean_up_tries_every_resource_and_logs_each_failure(caplog: pytest.LogCaptureFixture) -> None:
    released = []

    def broken() -> None:
        raise OSError("busy")

    def fine(name: str) -> None:
        released.append(name)

    resources = [
        ("spool", broken),
        ("scanner", lambda: fine("scanner")),
        ("file", broken),
        ("lock", lambda: fine("lock")),
    ]
    assert release_all(resources, "merge") == 2
    assert released == ["scanner", "lock"]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "spool" in messages[0]
    assert "file" in messages[1]
    assert all("merge" in message and "busy" in message for message in messages)


def test_the_container_of_an_azure_url_is_not_a_login():
    assert (
        scrub("at abfss://box@account.dfs.core.windows.net/ds?sig=x")
        == "at abfss://box@account.dfs.core.windows.net/ds"
    )
    assert scrub("abfss://user:pw@host/ds") == "abfss://host/ds"

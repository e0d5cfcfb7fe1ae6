"""Settings of the wrong type: an error names the setting and the types, never a value, which may be a secret."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.cli.app import main
from fsspeckit.core import ext
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError

SECRET = "hunter2"
ROWS = pa.table({"id": [1]})
STEP = {"name": "tidy", "do": "compact", "dataset": "out"}


@pytest.fixture(autouse=True)
def folder(place: Path) -> None:
    Path("in.csv").write_text("id\n1\n")


def said(error: BaseException) -> str:
    """The message and what a traceback shows of every exception behind it, without lines of source."""
    shown = traceback.TracebackException.from_exception(error, lookup_lines=False)
    texts = [str(error)]
    while shown is not None:
        texts += shown.format_exception_only()
        shown = shown.__cause__ or shown.__context__  # type: ignore[assignment]
    return "\n".join(texts)


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "pyarrow": lambda options, url: PyarrowDatasetIO(storage_options=options).write_dataset(ROWS, url),
    "duckdb": lambda options, url: DuckDBDatasetIO(storage_options=options).write_dataset(ROWS, url),
    "read_csv": lambda options, url: ext.read_csv(f"{url}/in.csv", storage_options=options),
}


@pytest.mark.parametrize("call", CALLS)
def test_options_that_are_wrong_are_not_shown(call: str) -> None:
    for url in ("lake", "memory://lake", "s3://lake/x"):
        for options in (SECRET, [SECRET], [("secret", SECRET)], {5: SECRET}):
            with pytest.raises(ValueError, match="storage_options") as caught:
                CALLS[call](options, url)
            assert SECRET not in said(caught.value)
    for refused in ({"key": 5, "secret": [SECRET]}, {"client_kwargs": SECRET}):
        with pytest.raises(Exception) as failed:  # noqa: PT011 - a filesystem may raise what it likes
            CALLS[call](refused, "s3://lake/x")
        assert SECRET not in said(failed.value)


@pytest.mark.parametrize(
    "text",
    [
        f'storage_options = "{SECRET}"',
        f'storage_options = ["{SECRET}"]',
        f'engine = ["{SECRET}"]',
        f'storage_options = {{ key = "{SECRET}"',
    ],
)
def test_the_configuration_file_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    Path("fsspeckit.toml").write_text(text)
    monkeypatch.delenv("FSSPECKIT_ENGINE")
    assert main(["write", "in.csv", "lake", "--debug"]) == 2
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-2].startswith("error: fsspeckit.toml: ") or "not TOML" in shown.err
    assert SECRET not in shown.out + shown.err


@pytest.mark.parametrize("option", ["--storage-option", "--spark-conf", "--var"])
def test_an_option_without_a_name_is_not_shown(capsys: pytest.CaptureFixture[str], option: str) -> None:
    command = ["write", "in.csv", "lake"] if option == "--storage-option" else ["run", "p.toml"]
    Path("p.toml").write_text(f'name = "p"\ndatasets.out.path = "x"\nsteps = [{json.dumps(STEP).replace(": ", " = ")}]')
    assert main([*command, option, "a=b", option, SECRET]) == 2
    shown = capsys.readouterr()
    assert f"{option} number 2 has no value" in shown.err
    assert SECRET not in shown.out + shown.err


def test_a_pipeline_file_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    raw = {"name": "p", "datasets": {"out": {"path": "lake"}}, "steps": [STEP]}
    wrong: list[dict[str, Any]] = [
        {"datasets": SECRET},
        {"datasets": {"out": SECRET}},
        {"datasets": {"out": {"path": [SECRET]}}},
        {"datasets": {"out": {"path": "x", "storage_options": SECRET}}},
        {"datasets": {"out": {"path": "x", "storage_options": [SECRET]}}},
        {"sources": {"raw": {"format": "csv", "path": "x", "options": {"password": [SECRET]}}}},
        {"sources": {"raw": {"format": "csv", "path": "x", "options": SECRET}}},
        {"spark": {"conf": {"spark.password": [SECRET]}}},
        {"spark": {"conf": SECRET}},
        {"spark": SECRET},
        {"variables": {"password": [SECRET]}},
        {"variables": SECRET},
        {"steps": [STEP | {"target_mb": SECRET}]},
        {"steps": SECRET},
        {"idempotency_key": [SECRET]},
    ]
    for change in wrong:
        with pytest.raises(PipelineFileError) as caught:
            Pipeline.of(raw | change)
        assert SECRET not in said(caught.value), change
        assert next(iter(change)) in str(caught.value)


def test_a_pipeline_does_not_show_its_settings() -> None:
    out = {"path": "lake", "storage_options": {"secret": SECRET}}
    raw = {"format": "csv", "path": "x", "storage_options": {"password": SECRET}}
    spark = {"conf": {"spark.hadoop.fs.s3a.secret.key": SECRET}}
    given = {"name": "p", "sources": {"raw": raw}, "spark": spark, "datasets": {"out": out}, "steps": [STEP]}
    pipeline = Pipeline.of(given | {"variables": {"password": SECRET}})
    assert SECRET not in repr(pipeline) + str(pipeline.file)
    assert SECRET not in repr(PyarrowDatasetIO(storage_options={"secret": SECRET}))


LOGINS = [
    f"s3://user:{SECRET}@bucket/x",
    f"s3a://user:{SECRET}/+@bucket/x",
    f"simplecache::s3://user:{SECRET}@bucket/x",
    f"abfss://user:{SECRET}@account/x",
    f"http://user:{SECRET}@127.0.0.1:9/x?sig={SECRET}",
    f"ftp://user:{SECRET}@127.0.0.1:9/x",
]
URL_CALLS: dict[str, Callable[[str], Any]] = {
    "write": lambda url: PyarrowDatasetIO().write_dataset(ROWS, url),
    "read": lambda url: DuckDBDatasetIO().read_parquet(url),
    "read_csv": lambda url: ext.read_csv(f"{url}/in.csv"),
    "source": lambda url: PyarrowDatasetIO().merge(url, "lake", strategy="upsert", key_columns="id"),
    "recover": lambda url: PyarrowDatasetIO().recover(url),
}


@pytest.mark.parametrize("call", URL_CALLS)
def test_a_password_in_a_url_is_not_shown(call: str, caplog: pytest.LogCaptureFixture) -> None:
    for url in LOGINS:
        with caplog.at_level("DEBUG", "fsspeckit"), pytest.raises(Exception) as caught:  # noqa: PT011 - of any class
            URL_CALLS[call](url)
        assert SECRET not in said(caught.value) + caplog.text, url


@pytest.mark.parametrize("words", ["write in.csv", "compact", "inspect", "recover", "doctor"])
def test_a_password_in_a_url_is_not_printed(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    for url in LOGINS:
        assert main([*words.split(), url, "--debug", "--verbose"]) in (1, 2)
        shown = capfd.readouterr()
        assert SECRET not in shown.out + shown.err, url

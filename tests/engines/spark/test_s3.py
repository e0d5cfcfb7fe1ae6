"""An object store behind executors: they write there with the caller's options, and nobody tells the secret."""

from __future__ import annotations

import logging
import os
import signal
import uuid
from contextlib import suppress

import pyarrow as pa
import pyarrow.dataset as pds
import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, engine
from inside import FsspecStorage, PublishFiles

pytestmark = pytest.mark.more

SECRET = "do-not-tell-4711"
TOKEN = "nor-this-token-4712"


@pytest.fixture
def options(s3_server):
    """The server takes any login; without one, s3fs would look in the environment and find none."""
    return s3_server.storage_options | {"secret": SECRET, "token": TOKEN}


@pytest.fixture
def on_s3(spark, options, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return SparkDatasetIO(spark, storage_options=options)


def rows(ids, v: str, spark=None):
    table = pa.table({"id": ids, "day": [f"d{i % 3}" for i in ids], "v": [f"{v}{i}" for i in ids]})
    return table if spark is None else spark.createDataFrame(table.to_pandas())


def files(server, path: str) -> list[str]:
    fs = server.filesystem()
    return sorted(fs.find(path))


def foreign(server, path: str) -> pa.Table:
    fs = server.filesystem()
    names = [name for name in fs.find(path) if name.endswith(".parquet")]
    return pds.dataset(names, filesystem=fs, partition_base_dir=path, partitioning="hive").to_table().sort_by("id")


def damage(server, name: str) -> None:
    fs = server.filesystem()
    content = bytearray(fs.cat_file(name))
    content[40:80] = bytes(40)
    fs.pipe_file(name, bytes(content))


def test_no_secret_is_told(on_s3, spark, s3_server, s3_bucket, caplog, capfd):
    caplog.set_level(logging.DEBUG, logger="fsspeckit")
    path, said = f"s3a://{s3_bucket}/ds", []

    def fails(*arguments, **options) -> None:
        with pytest.raises((FsspeckitError, OSError)) as caught:
            on_s3.write_parquet_dataset(*arguments, **options)
        said.extend([str(caught.value), repr(caught.value)])

    on_s3.write_dataset(rows(range(10), "a"), path)
    upsert = {"strategy": "upsert", "key_columns": "id"}
    fails(spark.range(1).selectExpr("id", "'d0' as day", "cast(raise_error('no') as string) as v"), path, **upsert)
    fails(rows([1, 1], "b"), path, **upsert)
    damage(s3_server, next(name for name in files(s3_server, f"{s3_bucket}/ds") if name.endswith(".parquet")))
    fails(rows([1], "c"), path, **upsert)
    fails(rows([1], "a"), "s3a://no-such-bucket-here/ds")
    on_s3.read(path).explain(True)
    said += [repr(on_s3), repr(on_s3.engine), str(dict(spark.conf.getAll)), caplog.text, *capfd.readouterr()]
    assert len(said) == 14
    assert not any(word in text for word in (SECRET, TOKEN) for text in said)


def test_executors_publish_and_one_is_killed(spark, s3_server, s3_bucket, tmp_path, monkeypatch):
    """Twice a worker dies after some copies of its batch: Spark repeats the batch, which copies them again."""
    monkeypatch.setattr(engine, "DISTRIBUTED_FILES", 20)
    monkeypatch.setattr(engine, "_BATCH_FILES", 5)
    monkeypatch.setattr(engine, "_LARGEST_BATCH", 5)
    copies = tmp_path / "copies"
    copies.mkdir()

    class Dying(FsspecStorage):
        """Notes each copy, and kills its process after the third one and after the tenth one."""

        def __reduce__(self):
            return Dying, (self._fs,)

        def publish(self, staged, path, size=None):
            done = super().publish(staged, path, size)
            (copies / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
            for limit in (3, 10):
                if len(list(copies.iterdir())) >= limit:
                    with suppress(FileExistsError):
                        (tmp_path / f"killed-{limit}").touch(exist_ok=False)
                        os.kill(os.getpid(), signal.SIGKILL)
            return done

    on_s3, root = SparkDatasetIO(spark, filesystem=s3_server.filesystem()), f"{s3_bucket}/ds"
    on_s3.write_dataset(rows(range(30), "a", spark), root, max_rows_per_file=1)
    before = {name for name in files(s3_server, root) if name.endswith(".parquet")}
    distribute = on_s3.engine.distribute

    def with_deaths(storage, function, items):
        dies = isinstance(function, PublishFiles)
        return distribute(storage, PublishFiles(Dying(storage._fs)) if dies else function, items)

    monkeypatch.setattr(on_s3.engine, "distribute", with_deaths)
    result = on_s3.update(root, set={"v": "upper(v)"}, where="true")
    after = {name for name in files(s3_server, root) if name.endswith(".parquet")}
    assert (len(before), len(after), before & after, result.updated) == (30, 30, set(), 30)
    assert sorted(path.name for path in tmp_path.glob("killed-*")) == ["killed-10", "killed-3"]
    assert len(list(copies.iterdir())) > 30, "two batches were repeated"
    assert str(os.getpid()) not in {path.name.partition("-")[0] for path in copies.iterdir()}
    assert set(foreign(s3_server, root)["v"].to_pylist()) == {f"A{i}" for i in range(30)}
    assert not PyarrowDatasetIO(filesystem=s3_server.filesystem()).recover(root)

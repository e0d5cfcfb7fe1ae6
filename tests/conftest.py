"""What every test may ask for: a sweep's size, a printed seed, an empty memory filesystem, an S3 server on loopback."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, settings

from installed import known_warnings, missing_feature
from marks import marks_of
from stores.servers import Store, running
from sweeps import Sweep, sweep_size

# A shared machine makes single examples slow without making them wrong: no deadline, no health check on speed.
_PATIENT: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("sweep", max_examples=sweep_size().hypothesis, database=None, **_PATIENT)
settings.load_profile("sweep")

# Java processes of tests live for seconds, too short for its second compiler to be worth its while.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# Executors of Spark and programs that tests start import modules of the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

# A proxy configured for the machine must not catch the loopback server.
os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1", "localhost"]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the marks of `marks.py`, and put the longest tests first: at the end, one process would wait for another."""
    ignored = known_warnings()
    for item in items:
        for mark in marks_of(item):
            item.add_marker(mark)
        if missing := missing_feature(item):
            item.add_marker(pytest.mark.skip(missing))
        for warning in ignored:
            item.add_marker(pytest.mark.filterwarnings(warning))
    items.sort(key=lambda item: item.path.name != "test_benchmarks.py")


@pytest.fixture(scope="session")
def sweep() -> Sweep:
    """The size of sweeps, from `SWEEP`."""
    return sweep_size()


@pytest.fixture
def rng() -> random.Random:
    """A random generator whose seed is printed with a failure; `SWEEP_SEED` repeats it."""
    seed = int(os.environ.get("SWEEP_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SWEEP_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def memory_fs() -> Iterator[Any]:
    """The `memory://` filesystem, empty before and after: its store is global to the process."""
    fs = fsspec.filesystem("memory", skip_instance_cache=True)
    _empty_memory(fs)
    yield fs
    _empty_memory(fs)


def _empty_memory(fs: Any) -> None:
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Store]:
    """An S3 server on a free loopback port, of each test process. `S3_SERVER=versitygw` chooses another one."""
    with running(os.environ.get("S3_SERVER", "moto")) as store:
        yield store


@pytest.fixture
def s3_bucket(s3_server: Store) -> str:
    """The name of a new, empty bucket."""
    return s3_server.bucket()

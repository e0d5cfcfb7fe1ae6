"""The Spark session: the caller's, the active one, or a local one.

A session that was not started here is never stopped or reconfigured.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.install import install_command
from fsspeckit.common.text import scrub
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.storage.urls import to_spark
from fsspeckit.datasets.spark.class_archive import archive_options
from fsspeckit.datasets.spark.errors import reason
from fsspeckit.datasets.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
_logger = logging.getLogger(__name__)
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"


class SparkStartError(FsspeckitError, RuntimeError):
    """Spark did not start: a setting is wrong, or its master cannot be reached."""


class SparkNotFoundError(FsspeckitError, ImportError):
    """PySpark, or pandas that it works with, is not installed."""


def get_session(
    spark: SparkSession | None = None, master: str | None = None, conf: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return the given session, else the active one, else one from the environment, else a local one.

    ``master`` and ``conf`` apply to a session that is started here; an existing session is not changed.
    """
    if spark is not None:
        return spark
    missing = [name for name in ("pyspark", "pandas") if find_spec(name) is None]
    if missing:
        raise SparkNotFoundError(
            f"the Spark engine needs {' and '.join(missing)}; install it with `{install_command(*missing)}`, "
            'or choose engine="pyarrow"'
        )
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        if master is not None or conf:
            _logger.warning("a Spark session is active: the master and settings that were asked for are not applied")
        return active
    if is_configured() or (master is not None and not master.startswith("local")):
        if not {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"} & os.environ.keys():
            ensure_java()
        builder = SparkSession.builder if master is None else SparkSession.builder.master(master)
        with _redirected(1, to=2):
            return _started(_configured(builder, conf or {}))
    return _local_session(master, conf or {})


def active_session() -> SparkSession | None:
    """Return the active session of this thread; do not import PySpark if it is not imported."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def refresh(spark: SparkSession, place: Place) -> None:
    """Refresh Spark's cached file listing of a changed dataset.

    If Spark has no Hadoop connector for the address, it has nothing cached.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    named = "://" in place.path and not place.storage.is_local
    address = place.path if named else place.storage.url(place.root)
    try:
        spark.catalog.refreshByPath(to_spark(address))
    except (Py4JError, PySparkException) as error:
        reason = str(error).partition("JVM stacktrace")[0]
        _logger.debug("Spark has nothing to refresh at %s: %s", place.path, scrub(reason))


def is_configured() -> bool:
    """Return whether spark-submit, Spark Connect or a configuration file sets the master."""
    if any(name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER")):
        return True
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    settings = Path(folder) / "spark-defaults.conf"
    return settings.is_file() and any(
        line.split()[:1] == ["spark.master"] for line in settings.read_text().splitlines()
    )


def _configured(builder: Any, conf: Mapping[str, Any]) -> Any:
    for name, value in conf.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else value)
    return builder


def _local_session(master: str | None, conf: Mapping[str, Any]) -> SparkSession:
    from pyspark import __version__
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.sql import SparkSession

    _logger.info("starting a local Spark session")
    options = f"{_JAVA_OPTIONS} {archive_options(ensure_java(), _find_spark_home(), __version__)}".rstrip()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # The second number is the maximum of task failures; with local[N], Spark does not retry tasks.
    builder = SparkSession.builder.master(master or f"local[{cores},4]").appName("fsspeckit")
    builder = _configured(builder, {"spark.driver.extraJavaOptions": options, **_LOCAL, **conf})
    handle, name = tempfile.mkstemp(prefix="fsspeckit-spark-", suffix=".log")
    with os.fdopen(handle) as log, _redirected(1, 2, to=log.fileno()):
        session = _started(builder, Path(name))
    _logger.debug("the log of the local Spark session is %s", name)
    atexit.register(Path(name).unlink, missing_ok=True)
    return session


def _started(builder: Any, log: Path | None = None) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        session: SparkSession = builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        logged = _logged_error(log) if log is not None and "JAVA_GATEWAY_EXITED" in str(error) else ""
        failed = SparkStartError(
            f"Spark did not start: {logged or reason(str(error))}; correct its master and its settings"
        )
        failed.add_note(f"what Spark said is in {log}" if log is not None else "Spark said more on standard error")
        raise failed from error
    return session


def _logged_error(log: Path) -> str:
    """Return the first line of a log that contains an error, and the line after it."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if not line.startswith("\t")]
    first = next((number for number, line in enumerate(lines) if re.search("Error|Exception", line)), len(lines))
    return scrub(" ".join(lines[first : first + 2]))


@contextmanager
def _redirected(*streams: int, to: int) -> Iterator[None]:
    """Redirect streams while a Java process starts; the process inherits the redirected streams."""
    copies = {stream: os.dup(stream) for stream in streams}
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in copies:
        os.dup2(to, stream)
    try:
        yield
    finally:
        for stream, copy in copies.items():
            os.dup2(copy, stream)
            os.close(copy)

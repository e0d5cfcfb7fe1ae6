"""What a pipeline file may not say unless its reader trusts it like code.

Expressions of Spark SQL can call Java methods and run scripts, and settings of Spark can load jars. This is a second
line of defence: a file can read and write any data that its reader can, so it must come from a source you trust.

Text is searched, not parsed, so that no difference between two parsers can be used. Where it is certain what is a
string literal, literals are left out; everywhere else a forbidden word counts wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from fsspeckit.pipeline.load import Problem
from fsspeckit.pipeline.model import Cast, Filter, PipelineFile, Select

SETTINGS = (
    *("spark.app.name", "spark.cores.max", "spark.default.parallelism", "spark.log.level", "spark.network.timeout"),
    *("spark.driver.cores", "spark.driver.maxResultSize", "spark.driver.memory", "spark.driver.memoryOverhead"),
    *("spark.executor.cores", "spark.executor.heartbeatInterval", "spark.executor.instances", "spark.executor.memory"),
    *("spark.executor.memoryOverhead", "spark.memory.fraction", "spark.memory.storageFraction", "spark.speculation"),
    *("spark.task.cpus", "spark.task.maxFailures", "spark.ui.enabled", "spark.ui.port", "spark.dynamicAllocation.*"),
    *("spark.sql.adaptive.*", "spark.sql.ansi.enabled", "spark.sql.autoBroadcastJoinThreshold"),
    *("spark.sql.broadcastTimeout", "spark.sql.caseSensitive", "spark.sql.files.*"),
    "spark.sql.legacy.timeParserPolicy",
    *("spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.hadoop.fs.azure.account.key.*"),
    *("spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token"),
    *("spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.s3a.endpoint.region", "spark.hadoop.fs.s3a.path.style.access"),
    "spark.hadoop.fs.s3a.connection.ssl.enabled",
)
"""Settings that load no code; a name that speaks of a class is never one of them."""
SCHEMES = frozenset(
    ("file", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "wasb", "wasbs", "hdfs", "dbfs")
)
"""Kinds of URLs that are plain stores."""
_STORAGE_OPTIONS = frozenset(("protocol", "extra_conf"))
"""Options that choose another filesystem, or configure Hadoop."""
_MASTER = re.compile(r"local(-cluster)?(\[[^\]]*\])?|yarn")
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*):/")
_ALLOW = "remove it; or, if you trust this file like code, pass --trust (in Python trust=True)"
_COMMENT = re.compile(r"--|/\*")
# A name and a parenthesis with no other word in between; with comments in the text, the name alone counts.
_CALL = r"(?<![A-Z0-9_])(REFLECT|TRY_REFLECT|JAVA_METHOD|IDENTIFIER)(?![A-Z0-9_])"
_CALLED = re.compile(_CALL + r"[^A-Z0-9_(]*\(")
_NAMED = re.compile(_CALL)
_SCRIPT = re.compile(r"(?<![A-Z0-9_])USING(?![A-Z0-9_])")


def distrusted(file: PipelineFile) -> Iterator[Problem]:
    """Everything in a file that could run code, each with its key."""
    for key, what in _found(file):
        yield Problem(key, what, _ALLOW)


def _found(file: PipelineFile) -> Iterator[tuple[str, str]]:
    for name in file.spark.conf:
        if not is_harmless(name):
            yield f"spark.conf.{name}", "this setting of Spark can load code, or is not known to load none"
    if file.spark.master is not None and not _MASTER.fullmatch(file.spark.master):
        yield "spark.master", "a cluster at an address of the file's choice gets the data and runs the tasks"
    for key, path in _paths(file):
        if not is_plain_path(path):
            yield key, f"the path is not local and not of {', '.join(sorted(SCHEMES))}"
    for key, option in _options(file):
        if "." in option or option in _STORAGE_OPTIONS:
            yield key, "this option is a setting of Hadoop, or chooses another filesystem, which can load code"
    for key, text in _expressions(file):
        reason = runs_code(text)
        if reason is not None:
            yield key, reason


def is_harmless(setting: str) -> bool:
    """Whether a setting of Spark is known to load no code.

    Example:
        >>> is_harmless("spark.sql.shuffle.partitions"), is_harmless("spark.jars")
        (True, False)
    """
    return "class" not in setting.lower() and any(fnmatchcase(setting, pattern) for pattern in SETTINGS)


def is_plain_path(path: str) -> bool:
    """Whether a path is local or a URL of a plain store; chained URLs bring filesystems that run templates.

    Example:
        >>> is_plain_path("lake/orders"), is_plain_path("s3://lake/orders"), is_plain_path("reference::s3://lake/x")
        (True, True, False)
    """
    found = _SCHEME.match(path)
    return "::" not in path and (found is None or found[1].lower() in SCHEMES)


def runs_code(sql: str) -> str | None:
    """Why an expression of Spark SQL could run code; None where it could not.

    Example:
        >>> runs_code("upper(status) = 'REFLECT('") is None
        True
        >>> runs_code("reflect('java.lang.System', 'exit', 0)")
        'the function reflect calls any method of Java'
    """
    if "${" in sql:
        return "Spark fills in ${...} from its settings and the environment, so the text that runs is not this one"
    # Upper case, as Spark's lexer compares it: some letters are other letters only then.
    text = _without_literals(sql).upper()
    if _SCRIPT.search(text):
        return "USING runs a script (SELECT TRANSFORM ... USING)"
    found = (_NAMED if _COMMENT.search(text) else _CALLED).search(text)
    if found is None:
        return None
    if found[1] == "IDENTIFIER":
        return "IDENTIFIER(...) makes the name of a function from text"
    return f"the function {found[1].lower()} calls any method of Java"


def _without_literals(sql: str) -> str:
    """The text without string literals, where quotes can have one meaning only; else the text as it is."""
    outside = sql.split("'")[::2]
    unclear = "\\" in sql or any(re.search(r'[`"$]|--|/\*', part) for part in outside)
    return sql if unclear else "''".join(outside)


def _expressions(file: PipelineFile) -> Iterator[tuple[str, str]]:
    """Every text that Spark parses, with its key."""
    for name, source in file.sources.items():
        if source.columns is not None:
            yield f"sources.{name}.columns", source.columns
    for number, step in enumerate(file.steps):
        key = f"steps[{number}] ({step.name})"
        if isinstance(step, Select):
            yield from ((f"{key}.columns[{place}]", text) for place, text in enumerate(step.columns))
        elif isinstance(step, Filter):
            yield f"{key}.where", step.where
        elif isinstance(step, Cast):
            yield from ((f"{key}.columns.{name}", text) for name, text in step.columns.items())


def _paths(file: PipelineFile) -> Iterator[tuple[str, str]]:
    yield from ((f"datasets.{name}.path", dataset.path) for name, dataset in file.datasets.items())
    for name, source in file.sources.items():
        paths = [source.path] if isinstance(source.path, str) else source.path or []
        yield from ((f"sources.{name}.path", path) for path in paths)


def _options(file: PipelineFile) -> Iterator[tuple[str, str]]:
    """Options of readers and of filesystems; readers of Spark pass names with a dot on to Hadoop."""
    for name, source in file.sources.items():
        yield from ((f"sources.{name}.options.{option}", option) for option in source.options)
    for name, dataset in file.datasets.items():
        yield from ((f"datasets.{name}.storage_options.{option}", option) for option in dataset.storage_options)

"""Find everything in a pipeline file that can run code; it is an error unless the user trusts the file.

Spark SQL can call Java methods and run scripts, Spark settings and readers can load classes, and steps can call Python.
This is an additional check: a file can read and write any data that its user can, so it must come from a trusted
source.

When a file is loaded, text is searched, not parsed, so that a difference between two parsers cannot be exploited. When
it runs, the tree of Spark's own parser shows whether SQL reads anything that the file does not declare. If the ends of
string literals and of names in backquotes are certain, literals are ignored and names are whole words; otherwise a
forbidden word counts anywhere in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from fsspeckit.datasets.spark.versions import is_remote
from fsspeckit.pipeline.load import Problem
from fsspeckit.pipeline.model import Cast, Filter, PipelineFile, Python, Select, Sql
from fsspeckit.pipeline.parts import SparkSource
from fsspeckit.pipeline.sql_reads import reads_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = (
    *("spark.app.name", "spark.cores.max", "spark.default.parallelism", "spark.log.level", "spark.network.timeout"),
    *("spark.driver.cores", "spark.driver.maxResultSize", "spark.driver.memory", "spark.driver.memoryOverhead*"),
    *("spark.executor.cores", "spark.executor.heartbeatInterval", "spark.executor.instances", "spark.executor.memory"),
    *("spark.executor.memoryOverhead*", "spark.executor.pyspark.memory", "spark.memory.*"),
    *("spark.python.worker.memory", "spark.python.worker.reuse"),
    *("spark.kryoserializer.buffer", "spark.kryoserializer.buffer.max"),
    *("spark.rpc.askTimeout", "spark.rpc.message.maxSize", "spark.broadcast.blockSize", "spark.locality.wait*"),
    *("spark.reducer.maxSizeInFlight", "spark.scheduler.mode", "spark.speculation", "spark.speculation.*"),
    *("spark.shuffle.compress", "spark.shuffle.spill.compress", "spark.shuffle.file.buffer"),
    *("spark.shuffle.io.maxRetries", "spark.shuffle.io.retryWait", "spark.task.cpus", "spark.task.maxFailures"),
    *("spark.ui.enabled", "spark.ui.port", "spark.ui.showConsoleProgress", "spark.dynamicAllocation.*"),
    *("spark.sql.adaptive.*", "spark.sql.ansi.enabled", "spark.sql.autoBroadcastJoinThreshold"),
    *("spark.sql.broadcastTimeout", "spark.sql.caseSensitive", "spark.sql.debug.maxToStringFields"),
    *("spark.sql.execution.arrow.*", "spark.sql.files.*", "spark.sql.inMemoryColumnarStorage.*"),
    *("spark.sql.legacy.timeParserPolicy", "spark.sql.maxPlanStringLength", "spark.sql.parquet.*"),
    *("spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.sql.sources.partitionOverwriteMode"),
    *("spark.sql.timestampType", "spark.hadoop.fs.azure.account.key.*"),
    *("spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token"),
    *("spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.s3a.endpoint.region", "spark.hadoop.fs.s3a.path.style.access"),
    "spark.hadoop.fs.s3a.connection.ssl.enabled",
)
"""Settings that load no code; a name that refers to a class is never allowed."""
SCHEMES = frozenset(
    ("file", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "wasb", "wasbs", "hdfs", "dbfs")
)
"""URL schemes of plain stores."""
FORMATS = frozenset(("text", "orc", "binaryFile"))
"""Readers of Spark that load no class by name and connect to no address."""
READER_OPTIONS = frozenset(
    (
        *("encoding", "lineSep", "mergeSchema", "modifiedAfter", "modifiedBefore", "pathGlobFilter"),
        *("recursiveFileLookup", "wholetext"),
    )
)
"""Options of these readers that are no settings of Hadoop."""
_STORAGE_OPTIONS = frozenset(("protocol", "extra_conf"))
"""Options that select another filesystem or configure Hadoop."""
_MASTER = re.compile(r"local(-cluster)?(\[[^\]]*\])?|yarn")
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*):/")
_ALLOW = "remove it; or, if you trust this file like code, pass --trust (in Python trust=True)"
_QUOTED = re.compile(r"'[^']*'|`((?:[^`]|``)*)`")
_UNCLEAR = re.compile(r"['`\"$]|--|/\*")
_COMMENT = re.compile(r"--|/\*")
_CALLS = ("REFLECT", "TRY_REFLECT", "JAVA_METHOD", "IDENTIFIER")
_NAMED = re.compile(rf"(?<![A-Z0-9_])({'|'.join(_CALLS)})(?![A-Z0-9_])")
# A name and a parenthesis. In clear text an operator in between ends the name; else only another word does.
_CALLED_CLEARLY = re.compile(_NAMED.pattern + r"[^A-Z0-9_()=<>+*/%,|&^!~:;\[\]'-]*\(")
_CALLED = re.compile(_NAMED.pattern + r"[^A-Z0-9_(]*\(")
_SCRIPT = re.compile(r"(?<![A-Z0-9_])USING(?![A-Z0-9_])")
# In clear text, the columns of a join follow in parentheses; a script follows as a literal.
_SCRIPT_IN_QUERY = re.compile(_SCRIPT.pattern + r"(?![ \t\r\n]*\()")
# How a query inside of an expression starts. FROM is also a word of functions, such as extract(year FROM at).
_QUERY = re.compile(r"(?<![A-Z0-9_])(SELECT|TABLE|VALUES|WITH)(?![A-Z0-9_])|\|>|\([^A-Z0-9_()]*FROM(?![A-Z0-9_])")
_MAYBE_QUERY = re.compile(r"(?<![A-Z0-9_])(SELECT|TABLE|VALUES|WITH|FROM)(?![A-Z0-9_])|\|>")


def distrusted(file: PipelineFile) -> Iterator[Problem]:
    """Yield everything in a file that can run code, with its key."""
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
    catalogs = [name for name, dataset in file.datasets.items() if dataset.catalog is not None]
    yield from ((f"datasets.{name}.catalog", "it writes to a catalog with the user's credentials") for name in catalogs)
    yield from _readers(file)
    for number, step in enumerate(file.steps):
        if isinstance(step, Python):
            yield f"steps[{number}] ({step.name}).call", "it runs a function of Python"
    for key, kind, text, _ in (*_types(file), *_texts(file)):
        reason = runs_code(text, is_query=kind == "query")
        if reason is not None:
            yield key, reason


def _readers(file: PipelineFile) -> Iterator[tuple[str, str]]:
    for name, source in file.sources.items():
        if not isinstance(source, SparkSource):
            continue
        if source.format not in FORMATS:
            yield f"sources.{name}.format", f"{source.format!r} is a reader that can load code or connect elsewhere"
            continue
        for option in source.options:
            if option not in READER_OPTIONS:
                yield f"sources.{name}.options.{option}", "this option is not known to load no code"


def reads_undeclared(file: PipelineFile, session: Callable[[], SparkSession]) -> Iterator[Problem]:
    """Yield every text in Spark SQL that reads a table or file which the file does not declare.

    A session of Spark Connect has no parser that can be asked, so queries, also those in expressions, need trust there.
    """
    texts = list(_texts(file))
    if not texts:
        return
    spark = session()
    remote = is_remote(spark)
    for key, kind, text, names in texts:
        if remote and (kind == "query" or has_query(text)):
            yield Problem(key, "on Spark Connect it cannot be checked what a query reads", _ALLOW)
        elif not remote and (reason := reads_elsewhere(spark, text, kind, names)) is not None:
            yield Problem(key, reason, _ALLOW)


def is_harmless(setting: str) -> bool:
    """Return whether a Spark setting is known to load no code.

    Examples:
        >>> is_harmless("spark.sql.shuffle.partitions"), is_harmless("spark.jars")
        (True, False)
    """
    return "class" not in setting.lower() and any(fnmatchcase(setting, pattern) for pattern in SETTINGS)


def is_plain_path(path: str) -> bool:
    """Return whether a path is local or a URL of a plain store; chained URLs can select filesystems that run templates.

    Examples:
        >>> is_plain_path("lake/orders"), is_plain_path("s3://lake/orders"), is_plain_path("reference::s3://lake/x")
        (True, True, False)
    """
    found = _SCHEME.match(path)
    return "::" not in path and (found is None or found[1].lower() in SCHEMES)


def runs_code(sql: str, *, is_query: bool = False) -> str | None:
    """Return why a text in Spark SQL can run code; None if it cannot. In a query, USING can be part of a join.

    Examples:
        >>> runs_code("upper(status) = 'REFLECT('") is None
        True
        >>> runs_code("reflect('java.lang.System', 'exit', 0)")
        'the function reflect calls any method of Java'
    """
    if "${" in sql:
        return "Spark fills in ${...} from its settings and the environment, so the text that runs is not this one"
    # Upper case, like Spark's lexer: some non-ASCII letters become ASCII letters only in upper case.
    clear = _without_quoted(sql)
    text = (sql if clear is None else clear).upper()
    if (_SCRIPT_IN_QUERY if is_query and clear is not None else _SCRIPT).search(text):
        return "USING runs a script (SELECT TRANSFORM ... USING); put a column of this name in backquotes"
    if clear is not None:
        found = _CALLED_CLEARLY.search(text)
    else:
        found = (_NAMED if _COMMENT.search(text) else _CALLED).search(text)
    if found is None:
        return None
    if found[1] == "IDENTIFIER":
        return "IDENTIFIER(...) makes the name of a function from text"
    return f"the function {found[1].lower()} calls any method of Java"


def has_query(sql: str) -> bool:
    """Return whether an expression can have a query in it, which reads tables.

    Example:
        >>> has_query("extract(year FROM at) = 2026 AND note <> 'select'"), has_query("v > (SELECT max(v) FROM other)")
        (False, True)
    """
    clear = _without_quoted(sql)
    return (_MAYBE_QUERY.search(sql.upper()) if clear is None else _QUERY.search(clear.upper())) is not None


def _without_quoted(sql: str) -> str | None:
    """Remove string literals and names in backquotes from a text, except names of forbidden functions.

    None where it is not certain what is quoted. A quote is certain where nothing before it can hide it: no backslash
    is in the text, and no double quote, comment, dollar or unclosed quote is outside of quotes.
    """
    if "\\" in sql or _UNCLEAR.search(_QUOTED.sub(" ", sql)):
        return None
    return _QUOTED.sub(_without_quotes, sql)


def _without_quotes(found: re.Match[str]) -> str:
    if found[1] is None:
        return "''"
    return f" {found[1]} " if found[1].upper() in _CALLS else "``"


Kind = Literal["query", "expression"]
Text = tuple[str, Kind, str, Collection[str]]
"""The key of a text, its kind, the text, and the names that it may read."""


def _types(file: PipelineFile) -> Iterator[Text]:
    """Yield every type and schema that Spark parses."""
    for name, source in file.sources.items():
        if source.columns is not None:
            yield f"sources.{name}.columns", "expression", source.columns, ()
    for number, step in enumerate(file.steps):
        if isinstance(step, Cast):
            for name, text in step.columns.items():
                yield f"steps[{number}] ({step.name}).columns.{name}", "expression", text, ()


def _texts(file: PipelineFile) -> Iterator[Text]:
    """Yield every expression and query that Spark runs."""
    for number, step in enumerate(file.steps):
        key = f"steps[{number}] ({step.name})"
        if isinstance(step, Select):
            yield from ((f"{key}.columns[{place}]", "expression", text, ()) for place, text in enumerate(step.columns))
        elif isinstance(step, Filter):
            yield f"{key}.where", "expression", step.where, ()
        elif isinstance(step, Sql):
            yield f"{key}.query", "query", step.query, step.inputs
        for name, text in (getattr(step, "expect", None) or {}).items():
            yield f"{key}.expect.{name}", "expression", text, ()
        checks = getattr(step, "checks", None)
        for name, text in ((checks.sql if checks is not None else None) or {}).items():
            yield f"{key}.checks.sql.{name}", "query", text, ("this", *file.datasets)


def _paths(file: PipelineFile) -> Iterator[tuple[str, str]]:
    yield from ((f"datasets.{name}.path", dataset.path) for name, dataset in file.datasets.items())
    for name, source in file.sources.items():
        yield from ((f"sources.{name}.path", path) for path in source.paths)


def _options(file: PipelineFile) -> Iterator[tuple[str, str]]:
    """Options of filesystems."""
    for table, found in (("sources", file.sources), ("datasets", file.datasets)):
        for name, each in found.items():
            yield from ((f"{table}.{name}.storage_options.{option}", option) for option in each.storage_options)

"""Pipeline files that could run code: refused by default in every spelling, allowed with trust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError
from inside_programs import has_query, is_harmless, is_plain_path, runs_code

UUID = "('java.util.UUID', 'randomUUID')"
SCRIPT = "(select max(x) from (select transform(a) using 'echo run' as (x string) from values (1) t(a)))"
# Each of these runs code on Spark, as the test with a session shows.
ATTACKS = [
    f"reflect{UUID}",
    f"java_method{UUID}",
    f"try_reflect{UUID}",
    f"ReFlEcT {UUID}",
    f"reflect\n\t{UUID}",
    f"reflect\u00a0\u3000{UUID}",
    f"reflect/* a */{UUID}",
    f"reflect -- a\n{UUID}",
    f"reflect /* it's */ {UUID} /* it's */",
    f"`reflect`{UUID}",
    f"system.builtin.reflect{UUID}",
    f"system.`builtin`.`REFLECT` /**/ {UUID}",
    f"upper(reflect{UUID})",
    f"'x' in (select reflect{UUID})",
    f"identifier('ref' || 'lect'){UUID}",
    f"IDENTIFIER /**/ ('reflect'){UUID}",
    f"r'a\\' || reflect{UUID} || '\\\\b'",
    f"'it\\'s' || reflect{UUID} || 'it\\'s'",
    f'"it\'s" || reflect{UUID} || "it\'s"',
    f"`it's` || reflect{UUID} || `it's`",
    f"`it's` || `reflect`{UUID}",
    f"`it's` || system . `builtin`.`Java_Method`\n{UUID}",
    f"'=' || reflect{UUID}",
    f"concat('`', reflect{UUID}, '`')",
    "'${env:HOME}'",
    SCRIPT,
    SCRIPT.replace("using", "USING /**/"),
    SCRIPT.replace("select", "\u017felect").replace("using", "u\u017f\u0131ng"),
    SCRIPT.replace("select transform(a)", "map a"),
    "(select max(x) from (from values (1) t(a) reduce a using 'echo run' as (x string)))",
]
# Each of these reads a file. On Spark Connect no tree shows it.
QUERIES = [
    "id > (select count(*) from csv.`/etc/passwd`)",
    "exists (TABLE csv.`/etc/passwd`)",
    "id in (from csv.`/etc/passwd`)",
    "exists(\n\tFROM csv.`/etc/passwd`)",
    "exists (values (1) union from csv.`/etc/passwd`)",
    "exists (with a as (values (1)) from csv.`/etc/passwd`)",
    "exists (/* a */ from csv.`/etc/passwd`)",
    "id > (\u017felect count(*) from csv.`/etc/passwd`)",
    "'it\\'s' <> '' or exists (select 1 from csv.`/etc/passwd`)",
]
# These depend on settings of Spark, or on its version.
SUSPICIOUS = ["${spark:spark.app.name}" + UUID, f"$$it's$$ || reflect{UUID} || $$it's$$"]
HARMLESS = [
    "id",
    "amount >= 0 and status in ('new', 'paid')",
    "status <> 'using' and note <> 'reflect(x)'",
    "upper(trim(both 'x' from name))",
    "transform(items, item -> item + 1)",
    "extract(year from at)",
    "reflect > 1",
    "identifier = 5",
    "identifier in (1, 2)",
    "my_reflect(id)",
    "reflection(id)",
    "it.java_methods",
    "'it''s' = name",
    "date_sub(at, 1) between '2026-01-01' and '2026-02-01'",
    "`a column`",
    "`using` = 1",
    "`a using b` > 1 and `reflect(` = 1",
    "identifier = ('3')",
    "`identifier` = ('3')",
    "reflect = (4)",
    "reflect>=(4)",
    "reflect + (4) > 0",
    "(reflect) in ('x')",
    "coalesce(reflect, (4))",
]


def raw(**change: Any) -> dict[str, Any]:
    """A pipeline with one step of each kind that takes SQL."""
    steps = [
        {"name": "picked", "do": "select", "from": "raw", "columns": ["id", "status"]},
        {"name": "kept", "do": "filter", "from": "picked", "where": "id > 0"},
        {"name": "typed", "do": "cast", "from": "kept", "columns": {"id": "bigint"}},
        {"name": "load", "do": "write", "from": "typed", "into": "out"},
    ]
    source = {"format": "csv", "path": "in.csv", "columns": "id int, status string"}
    base: dict[str, Any] = {"name": "p", "sources": {"raw": source}, "datasets": {"out": {"path": "lake"}}}
    return base | {"steps": steps, "spark": {"conf": {"spark.sql.shuffle.partitions": 4}}} | change


def refused(found: dict[str, Any], **variables: str) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        Pipeline.of(found, variables)
    assert all("--trust" in problem.remedy for problem in caught.value.problems)
    assert Pipeline.of(found, variables, trust=True).steps
    return [problem.key for problem in caught.value.problems]


def test_code_in_an_expression_is_refused_and_other_expressions_are_not() -> None:
    assert [sql for sql in (*ATTACKS, *SUSPICIOUS) if runs_code(sql) is None] == []
    assert [sql for sql in HARMLESS if runs_code(sql) is not None or has_query(sql)] == []
    assert [sql for sql in QUERIES if not has_query(sql)] == [], "found without a parser"


gaps = st.text(st.sampled_from(" \t\n\r\u00a0\u2003\u3000`"), max_size=3) | st.sampled_from(
    ["/*(*/", "/* ' */", "--'\n"]
)
names = st.sampled_from(["reflect", "java_method", "try_reflect", "identifier"])
around = st.text(st.sampled_from("a1 ._'\"`\\$+-*/()\n"), max_size=12)


def is_quoted(text: str, place: int) -> bool:
    """Whether a place is inside of quotes, where nothing makes it doubtful which text is quoted."""
    quote, found = "", False
    for at, letter in enumerate(text):
        found = found or (at == place and bool(quote))
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'`":
            quote = letter
        elif letter in '"$' or text[at : at + 2] in ("--", "/*"):
            return False
    return found and not quote and "\\" not in text


@given(around, names, st.randoms(use_true_random=False), gaps, around)
def test_no_spelling_hides_a_call(before: str, name: str, random: Any, gap: str, after: str) -> None:
    """Whatever is around a call that is not certainly inside a literal, the call is seen."""
    spelled = "".join(random.choice((letter, letter.upper())) for letter in name)
    text = f"{before} {spelled}{gap}({after}"
    start = len(before) + 1
    parenthesis = start + len(spelled) + len(gap)
    assert runs_code(text) is not None or is_quoted(text, start) or is_quoted(text, parenthesis)


def test_spark_runs_what_is_refused(spark: Any) -> None:
    """The list is not made up: each expression gives a value on Spark."""
    frame = spark.range(1).selectExpr("id", "1 as `it's`")
    values = [f"cast({sql} as string) as v{number}" for number, sql in enumerate(ATTACKS)]
    assert all(frame.selectExpr(*values).first())


def test_every_key_that_reaches_spark_is_looked_at() -> None:
    call = f"reflect{UUID}"
    steps = raw()["steps"]
    for number, change, key in (
        (0, {"columns": ["id", call]}, "steps[0] (picked).columns[1]"),
        (1, {"where": call}, "steps[1] (kept).where"),
        (2, {"columns": {"id": call}}, "steps[2] (typed).columns.id"),
    ):
        changed = [step | change if place == number else step for place, step in enumerate(steps)]
        assert refused(raw(steps=changed)) == [key]
    source = raw()["sources"]["raw"]
    assert refused(raw(sources={"raw": source | {"columns": call}})) == ["sources.raw.columns"]
    options = {"fs.file.impl": "evil.Files"}
    found = source | {"storage_options": options}
    assert refused(raw(sources={"raw": found})) == ["sources.raw.storage_options.fs.file.impl"]
    assert refused(raw(sources={"raw": source | {"path": ["in.csv", "jar:/evil"]}})) == ["sources.raw.path"]
    assert refused(raw(datasets={"out": {"path": "reference::s3://evil/x"}})) == ["datasets.out.path"]
    out = {"path": "s3://lake/x", "storage_options": {"key": "a", "protocol": "reference"}}
    assert refused(raw(datasets={"out": out})) == ["datasets.out.storage_options.protocol"]
    assert refused(raw(spark={"master": "spark://evil:7077"})) == ["spark.master"]
    assert refused(raw(spark={"conf": {"spark.jars": "a.jar", "spark.plugins": "X"}})) == [
        "spark.conf.spark.jars",
        "spark.conf.spark.plugins",
    ]


def test_what_variables_bring_is_looked_at() -> None:
    steps = raw()["steps"]
    steps[1]["where"] = "${condition}"
    found = raw(steps=steps, variables={"condition": "true"})
    assert Pipeline.of(found).steps
    assert refused(found, condition=f"reflect{UUID}") == ["steps[1] (kept).where"]


HARMFUL_SETTINGS = """
spark.jars spark.jars.packages spark.jars.repositories spark.jars.ivy spark.jars.ivySettings
spark.driver.extraJavaOptions spark.driver.defaultJavaOptions spark.executor.extraJavaOptions
spark.driver.extraClassPath spark.executor.extraClassPath spark.driver.extraLibraryPath
spark.plugins spark.extraListeners spark.sql.extensions spark.sql.queryExecutionListeners
spark.submit.pyFiles spark.files spark.archives spark.executorEnv.PYTHONPATH
spark.pyspark.python spark.pyspark.driver.python spark.python.daemon.module spark.python.worker.module
spark.sql.catalog.evil spark.sql.hive.metastore.jars spark.sql.streaming.streamingQueryListeners
spark.hadoop.fs.s3a.aws.credentials.provider spark.hadoop.fs.file.impl spark.serializer
spark.driver.resource.gpu.discoveryScript spark.metrics.conf.*.sink.x.class spark.remote
spark.sql.adaptive.customCostEvaluatorClass spark.sql.sources.commitProtocolClass spark.shuffle.manager
spark.ui.filters spark.sql.parquet.output.committer.class spark.io.compression.codec
spark.sql.execution.pyspark.python spark.hadoop.fs.azure.account.keyprovider.x
spark.yarn.dist.files spark.kubernetes.container.image spark.master spark.submit.deployMode SPARK.JARS
"""
HARMLESS_SETTINGS = """
spark.sql.shuffle.partitions spark.sql.adaptive.enabled spark.driver.memory spark.driver.memoryOverheadFactor
spark.executor.memoryOverhead spark.memory.offHeap.size spark.sql.execution.arrow.maxRecordsPerBatch
spark.sql.parquet.int96RebaseModeInRead spark.sql.session.timeZone spark.hadoop.fs.s3a.endpoint
"""


def test_settings_that_load_code_are_refused_and_others_are_not() -> None:
    odd = (" spark.app.name", "spark.app.name ", "spark.app.name\n", "")
    assert [setting for setting in (*HARMFUL_SETTINGS.split(), *odd) if is_harmless(setting)] == []
    assert [setting for setting in HARMLESS_SETTINGS.split() if not is_harmless(setting)] == []


def test_paths() -> None:
    plain = [
        "lake",
        "/lake/a:b",
        "file:/lake",
        "s3a://lake",
        "S3://lake",
        "abfss://a@b.dfs.core.windows.net/x",
        "in/*.csv",
    ]
    assert [path for path in plain if not is_plain_path(path)] == []
    strange = ["reference://x", "simplecache::s3://x", "jar:file:/x", "http://x/a.csv", "dir::file://x", "jdbc://x"]
    assert [path for path in strange if is_plain_path(path)] == ["jar:file:/x"]


def test_the_command_needs_trust(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1]}), "lake")
    Path("p.toml").write_text(
        'name = "p"\ndatasets.out.path = "lake"\nspark.conf = { "spark.jars" = "a.jar" }\n'
        'steps = [{ name = "tidy", do = "compact", dataset = "out" }]\n'
    )
    assert main(["run", "p.toml", "--dry-run"]) == 2
    problem, remedy = capsys.readouterr().err.splitlines()
    assert "spark.conf.spark.jars: " in problem
    assert "pass --trust" in remedy
    assert main(["run", "p.toml", "--dry-run", "--trust"]) == 0

"""Steps in SQL and Python, readers of Spark, row checks, repetitions, parallel steps, selections and dry runs."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from fsspeckit import CheckFailedError, CommitConflictError, FsspeckitError
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError, StepFailedError
from kit import ruin_pages

IO = PyarrowDatasetIO()
SOURCES = {"mon": {"format": "csv", "path": "in/mon.csv"}, "tue": {"format": "csv", "path": "in/tue.csv"}}


def raw(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    datasets = {name: {"path": f"lake/{name}"} for name in ("out", "people", "bad", "other")}
    return {"name": "p", "sources": SOURCES, "datasets": datasets, "steps": list(steps)} | more


def step(name: str, do: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "do": do} | more


def rows(name: str) -> list[dict[str, Any]]:
    found = IO.read_parquet(f"lake/{name}").to_pylist()
    return sorted(found, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def people() -> None:
    IO.write_dataset(pa.table({"id": [1, 2, 3], "name": ["Ann", "Bob", "Cid"]}), "lake/people")


JOIN = """
    WITH big AS (SELECT * FROM both WHERE amount > 10)
    SELECT name, sum(amount) AS total, max(row_number) AS n
    FROM (SELECT id, amount, row_number() OVER (PARTITION BY id ORDER BY at) AS row_number FROM big)
    JOIN people USING (id) GROUP BY name
"""


def test_a_query_joins_sources_steps_and_datasets(lake: Path, spark: Any) -> None:
    people()
    spark.range(1).createOrReplaceTempView("both")
    found = raw(
        step("both", "sql", **{"from": ["mon", "tue"]}, query="SELECT * FROM mon UNION ALL SELECT * FROM tue;\n"),
        step("totals", "sql", **{"from": ["both", "people"]}, query=JOIN),
        step("load", "merge", **{"from": "totals", "into": "out"}, keys=["name"]),
    )
    result = Pipeline.of(found).run(spark)
    assert result.step("load").details["inserted"] == 2
    assert rows("out") == [{"name": "Cid", "total": 30, "n": 1}, {"name": "Bob", "total": 62, "n": 3}]
    assert [view.name for view in spark.catalog.listTables() if view.name.startswith("fsspeckit_")] == []
    assert spark.table("both").count() == 1
    spark.catalog.dropTempView("both")


def test_a_query_reads_only_what_the_file_declares(lake: Path, spark: Any) -> None:
    spark.range(1).createOrReplaceTempView("tue")
    for query in (
        "SELECT * FROM csv.`in/tue.csv`",
        "SELECT * FROM tue",
        "SELECT 1) x, csv.`in/tue.csv` y, (SELECT 2",
        "SELECT * FROM (WITH tue AS (SELECT 1) SELECT * FROM tue), tue",
        "WITH tue AS (SELECT * FROM tue) SELECT * FROM tue",
        "SELECT * FROM mon WHERE EXISTS (SELECT 1 FROM text.`in/tue.csv`)",
        "SELECT * FROM mon WHERE id IN (TABLE csv.`in/tue.csv`)",
        "FROM csv.`in/tue.csv` |> SELECT *",
    ):
        asked = step("q", "sql", **{"from": "mon"}, query=query)
        found = raw(asked, step("load", "write", **{"from": "q", "into": "out"}))
        with pytest.raises(StepFailedError, match=r"steps\[0\] \(q\).query: it reads .*not in 'from'.*--trust"):
            Pipeline.of(found).run(spark)
        with pytest.raises(PipelineFileError, match="not in 'from'"):
            Pipeline.of(found).preview(spark)
    assert not Path("lake").exists()
    spark.catalog.dropTempView("tue")


def test_a_subquery_in_an_expression_reads_nothing_else(lake: Path, spark: Any) -> None:
    where = f"id < (SELECT count(*) FROM text.`{lake}/in/tue.csv`)"
    found = raw(
        step("kept", "filter", **{"from": "mon"}, where=where), step("load", "write", **{"from": "kept", "into": "out"})
    )
    with pytest.raises(StepFailedError, match=r"\(kept\).where: it reads"):
        Pipeline.of(found).run(spark)
    assert Pipeline.of(found, trust=True).run(spark).status == "done"


def test_only_a_query_can_be_a_query(lake: Path, spark: Any) -> None:
    for query in ("INSERT INTO mon SELECT 1", "ADD JAR 'x.jar'", "SELECT 1; SELECT 2", "SELECT nothing FROM mon"):
        found = raw(
            step("q", "sql", **{"from": "mon"}, query=query), step("load", "write", **{"from": "q", "into": "out"})
        )
        with pytest.raises(StepFailedError, match="before the first step: Spark refuses the query of step 'q'"):
            Pipeline.of(found, trust=True).run(spark)


MODULE = """
def cheap(orders, people, most):
    return orders.join(people, "id").where(orders.amount < most)

def wrong(orders):
    return 7

def fails(orders):
    limit = None
    return orders.where(orders.amount < 1 + limit)

def unknown(orders):
    return orders.select("no_such_column").limit(1)

def disk(orders):
    open("/no/such/file")

def udf(orders):
    from pyspark.sql.functions import udf

    def half(amount):
        return 1 // (amount - amount)

    return orders.withColumn("amount", udf(half, "bigint")("amount"))
"""


def test_a_python_function_makes_rows(lake: Path, spark: Any) -> None:
    people()
    Path("own_steps.py").write_text(MODULE)
    Path("broken_steps.py").write_text("x = 1\ndef f(:\n")
    call = step("few", "python", **{"from": ["mon", "people"]}, call="own_steps:cheap", arguments={"most": 15})
    file = raw(call, step("load", "write", **{"from": "few", "into": "out"}))
    with pytest.raises(PipelineFileError, match=r"\(few\).call: it runs a function of Python.*--trust"):
        Pipeline.of(file)
    Path("p.json").write_text(json.dumps(file))
    pipeline = Pipeline.of(file, trust=True)
    here = Pipeline(pipeline.file, pipeline.order, trusted=True, folder=str(lake))
    assert here.run(spark).step("load").rows == 1
    assert rows("out")[0]["name"] == "Ann"
    for call["call"], call["arguments"], said in (
        ("own_steps:wrong", {}, "returned int, not a DataFrame"),
        ("own_steps:gone", {}, "cannot be found"),
        ("no_such_module:f", {}, "put the module beside the pipeline file"),
        ("own_steps:fails", {}, r"own_steps:fails raised TypeError: .*own_steps.py\", line 10: return orders"),
        ("own_steps:fails", {"x": 1}, r"own_steps:fails raised TypeError: fails\(\) got an unexpected keyword"),
        ("own_steps:unknown", {}, r"own_steps:unknown raised AnalysisException: .*no_such_column.*line 13"),
        ("own_steps:disk", {}, r"own_steps:disk raised FileNotFoundError: .*line 16: open"),
        ("own_steps:udf", {}, r"a Python function raised ZeroDivisionError: .*own_steps.py\", line 22"),
        ("broken_steps:f", {}, r"the module of broken_steps:f raised SyntaxError: .*broken_steps.py\", line 2"),
    ):
        call["from"] = ["mon"]
        broken = Pipeline.of(file, trust=True)
        with pytest.raises(StepFailedError, match=said):
            Pipeline(broken.file, broken.order, trusted=True, folder=str(lake)).run(spark)


def test_readers_of_spark(lake: Path, spark: Any) -> None:
    spark.range(3).write.orc(str(lake / "in/orc"))
    Path("in/notes.txt").write_text("one\ntwo\n")
    sources = {
        "lines": {"format": "text", "path": "in/notes.txt", "options": {"wholetext": True}},
        "orc": {"format": "orc", "path": "in/orc"},
        "numbers": {"format": "rate-micro-batch", "options": {"rowsPerBatch": 1}},
        "base": {"format": "jdbc", "options": {"url": "jdbc:h2:mem:x", "dbtable": "t"}},
    }
    query = "SELECT value, count(id) AS n FROM lines, orc GROUP BY value"
    steps = [step("q", "sql", **{"from": ["lines", "orc"]}, query=query)]
    steps.append(step("load", "write", **{"from": "q", "into": "out"}))
    two = {name: sources[name] for name in ("lines", "orc")}
    assert Pipeline.of(raw(*steps, sources=two)).run(spark).status == "done"
    assert rows("out") == [{"value": "one\ntwo\n", "n": 3}]
    with pytest.raises(PipelineFileError) as caught:
        Pipeline.of(raw(*steps, sources=sources | {"lines": sources["lines"] | {"options": {"fs.file.impl": "x"}}}))
    assert [problem.key for problem in caught.value.problems] == [
        "sources.lines.options.fs.file.impl",
        "sources.numbers.format",
        "sources.base.format",
    ]
    load = step("load", "write", **{"from": "base", "into": "out"})
    with pytest.raises(StepFailedError, match="No suitable driver"):
        Pipeline.of(raw(load, sources={"base": sources["base"]}), trust=True).run(spark)


def expecting(on_fail: str, **more: Any) -> dict[str, Any]:
    expect = {"positive": "amount >= 20", "known": "status IN ('new', 'paid')"}
    load = step("load", "write", **{"from": "mon", "into": "out"}, expect=expect, on_fail=on_fail, **more)
    return raw(load, idempotency_key="k")


def test_rows_that_do_not_meet_a_condition(lake: Path, spark: Any) -> None:
    Path("in/mon.csv").write_text("id,status,amount\n1,new,10\n2,odd,20\n3,odd,\n4,paid,30\n")
    with pytest.raises(
        StepFailedError, match="lake/out: rows do not meet positive in 2 rows, and known in 2"
    ) as caught:
        Pipeline.of(expecting("fail")).run(spark)
    assert isinstance(caught.value.__cause__, CheckFailedError)
    assert not Path("lake").exists()
    warned = Pipeline.of(expecting("warn")).run(spark).step("load")
    assert (warned.rows, warned.expectations) == (4, {"positive": 2, "known": 2})
    dropped = Pipeline.of(expecting("drop")).run(spark, idempotency_key="d").step("load")
    assert (dropped.rows, dropped.details["dropped"], dropped.to_dict()["expectations"]["known"]) == (1, 3, 2)
    for status in ("done", "skipped"):
        found = Pipeline.of(expecting("quarantine", quarantine="bad")).run(spark, idempotency_key="q").step("load")
        assert found.status == status
    bad = {row["id"]: (row["quarantine_reason"], row["quarantine_step"], row["quarantine_run"]) for row in rows("bad")}
    assert bad == {1: ("positive", "load", "q"), 2: ("known", "load", "q"), 3: ("positive, known", "load", "q")}
    assert len(rows("out")) == 4 + 1 + 1


def test_other_wrong_rows_of_a_repeated_run_are_set_aside(lake: Path, spark: Any) -> None:
    """The step of the first run failed, and its source was corrected: no row may be in neither dataset."""
    found = expecting("quarantine", quarantine="bad", checks={"rows": {"max": 1}})
    for _ in range(2):
        with pytest.raises(StepFailedError, match="more than 1"):
            Pipeline.of(found).run(spark)
    assert (len(rows("bad")), Path("lake/out").exists()) == (1, False)
    Path("in/mon.csv").write_text("id,status,amount\n1,new,30\n7,odd,20\n8,odd,20\n")
    assert Pipeline.of(found).run(spark).step("load").expectations["known"] == 2
    assert {row["id"] for row in rows("bad")} >= {7, 8}


def test_a_quarantine_gets_the_columns_of_its_rows(lake: Path, spark: Any) -> None:
    more = {"from": "mon", "into": "out", "keys": ["id"], "schema_mode": "evolve", "evolve_files": "touched"}
    load = step("load", "merge", **more, expect={"positive": "amount > 0"}, on_fail="quarantine", quarantine="bad")
    texts = {
        "a": "id,amount\n1,5\n2,-1\n",
        "b": "id,amount,note\n3,-2,late\n4,6,\n",
        "c": "id,amount\n5,-3\n",
        "d": "id,amount,note,place\n6,-4,x,y\n",
    }
    for run, text in texts.items():
        Path("in/mon.csv").write_text(text)
        for status in ("done", "skipped"):
            assert Pipeline.of(raw(load)).run(spark, idempotency_key=run).step("load").status == status
    found = {row["id"]: (row["amount"], row["note"], row["place"], row["quarantine_run"]) for row in rows("bad")}
    assert found == {
        2: (-1, None, None, "a"),
        3: (-2, "late", None, "b"),
        5: (-3, None, None, "c"),
        6: (-4, "x", "y", "d"),
    }
    assert len({row["quarantine_row"] for row in rows("bad")}) == 4
    assert sorted(row["id"] for row in rows("out")) == [1, 4]
    Path("in/mon.csv").write_text("id,amount,place\n7,-1,2\n")
    with pytest.raises(StepFailedError, match="no lossless common type: 'place' is string"):
        Pipeline.of(raw(load)).run(spark, idempotency_key="e")
    assert len(rows("bad")) == 4


def test_free_checks_and_their_results(lake: Path, spark: Any) -> None:
    people()
    orphans = "SELECT this.id FROM this LEFT ANTI JOIN people ON people.id = this.id"
    checks = {"unique": ["id", "at"], "rows": {"min": 1}, "not_null": ["id"], "sql": {"orphans": orphans}}
    load = step("load", "write", **{"from": "mon", "into": "out"}, checks=checks)
    done = Pipeline.of(raw(load)).run(spark).step("load")
    assert done.checks == dict.fromkeys(("rows", "not_null.id", "unique", "sql.orphans"), "passed")
    Path("in/mon.csv").write_text("id,status,amount,at\n9,new,10,2026-11-02\n")
    with pytest.raises(StepFailedError, match=r"orphans finds rows \(for example \(9,\)\)") as caught:
        Pipeline.of(raw(load)).run(spark)
    failed = caught.value.result.step("load").checks
    assert (failed["unique"], failed["sql.orphans"][:18]) == ("passed", "orphans finds rows")
    look = step("look", "check", **{"from": "mon"}, checks={"sql": {"none": "SELECT * FROM this WHERE id > 10"}})
    assert Pipeline.of(raw(look)).run(spark).step("look").checks == {"sql.none": "passed"}
    elsewhere = raw(step("look", "check", dataset="people", checks={"sql": {"x": "SELECT * FROM csv.`in/mon.csv`"}}))
    with pytest.raises(StepFailedError, match=r"checks\.sql\.x: it reads"):
        Pipeline.of(elsewhere).run(spark)


def test_a_step_is_repeated_after_a_conflict(lake: Path, spark: Any) -> None:
    IO.write_dataset(pa.table({"id": [5]}), "lake/other")
    meddled: list[Any] = []
    most = 1

    def meddle(event: Any) -> None:
        if (event.stage, event.done) == ("write", 1) and len(meddled) < most:
            meddled.append(IO.write_dataset(pa.table({"id": [6]}), "lake/other"))

    load = step("load", "write", **{"from": "five", "into": "other"}, checks={"rows": {"min": 1}, "not_null": ["id"]})
    load["retries"] = 0
    five = step("five", "sql", **{"from": "mon"}, query="SELECT id + sum(0 * id) OVER () AS id FROM mon")
    found = raw(five, load, repeat={"times": 3, "wait": "0s"})
    done = Pipeline.of(found).run(spark, progress=meddle).step("load")
    assert (done.status, done.attempts, len(meddled)) == ("done", 2, 1)
    assert len(rows("other")) == 1 + 1 + 3
    most = 100
    with pytest.raises(StepFailedError) as caught:
        Pipeline.of(found | {"repeat": {"times": 1, "wait": "0s"}}).run(spark, progress=meddle)
    assert isinstance(caught.value.__cause__, CommitConflictError)
    assert caught.value.result.step("load").attempts == 2


def test_a_step_is_repeated_with_growing_waits(lake: Path, spark: Any) -> None:
    """Independent steps end, steps behind it do not run, and the document has all attempts and the error."""
    Path("own_repeats.py").write_text(MODULE)
    failing = step("failing", "python", **{"from": ["mon"]}, call="own_repeats:udf")
    found = raw(
        failing,
        step("bad", "write", **{"from": "failing", "into": "out"}, repeat={"times": 2, "wait": "1s", "factor": 2}),
        step("good", "write", **{"from": "mon", "into": "other"}),
        step("behind", "compact", dataset="out"),
        step("check", "check", dataset="other", after=["bad"], checks={"rows": {"min": 1}}),
    )
    pipeline = Pipeline.of(found, trust=True)
    here = Pipeline(pipeline.file, pipeline.order, trusted=True, folder=str(lake))
    with pytest.raises(StepFailedError, match="step 'bad': a Python function raised ZeroDivisionError") as caught:
        here.run(spark)
    result = caught.value.result
    assert [each.status for each in result.steps] == ["done", "failed", "done", "not run", "not run"]
    assert (result.step("bad").attempts, result.step("bad").seconds > 1 + 2) == (3, True)
    assert result.error == f"step 'bad': {result.step('bad').error}"
    assert (Path("lake/out").exists(), len(rows("other"))) == (False, 3)


def test_a_database_is_a_source(lake: Path, spark: Any) -> None:
    """Derby, which is among the jars of Spark, in memory."""
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(lake / "derby.log"))
    driver, url = "org.apache.derby.iapi.jdbc.AutoloadedDriver", "jdbc:derby:memory:people;create=true"
    table = spark.sql("SELECT 1 AS id, 'Ann' AS name, 1.50 AS amount UNION ALL SELECT 2, NULL, NULL")
    table.write.format("jdbc").options(url=url, dbtable="people", driver=driver).mode("overwrite").save()
    options = {"url": url, "dbtable": "people", "driver": driver, "password": "s3cret"}

    def load(**more: Any) -> Pipeline:
        sources = {"people": {"format": "jdbc", "options": options | more}}
        one = step("load", "merge", **{"from": "people", "into": "out"}, keys=["id"])
        return Pipeline.of(raw(one, sources=sources), trust=True)

    assert load().preview(spark).step("load").columns == {"id": "int", "name": "string", "amount": "decimal(3,2)"}
    assert load().run(spark).step("load").details["inserted"] == 2
    parts = {"partitionColumn": "id", "lowerBound": 0, "upperBound": 9, "numPartitions": 3}
    assert load(**parts).run(spark).step("load").details["unchanged"] == 2
    assert [(row["id"], row["name"]) for row in rows("out")] == [(1, "Ann"), (2, None)]
    for more, said in (
        ({"dbtable": "nobody"}, "source 'people': .*'NOBODY' does not exist"),
        (
            {"driver": "org.example.Driver"},
            "source 'people': Spark does not find the class org.example.Driver.*spark.jars",
        ),
        ({"url": "jdbc:derby:memory:none"}, "source 'people': .*connect"),
    ):
        for call in (Pipeline.run, Pipeline.preview):
            with pytest.raises(StepFailedError, match=said) as caught:
                call(load(**more), spark)
            assert "s3cret" not in str(caught.value)


def test_independent_steps_run_at_the_same_time(lake: Path, spark: Any) -> None:
    both, alone = threading.Barrier(2), []

    class Together:
        def run_started(self, file: Any, key: str) -> None: ...
        def run_ended(self, result: Any) -> None: ...
        def step_ended(self, step: Any, record: Any) -> None: ...
        def step_started(self, step: Any) -> None:
            if step.name in ("one", "two"):
                both.wait(60)
            else:
                alone.append((step.name, threading.current_thread() is threading.main_thread()))

    load = {"from": "mon"}
    found = raw(
        step("one", "write", **load, into="out"),
        step("two", "write", **load, into="other"),
        step("last", "compact", dataset="out", after=["two"]),
    )
    result = Pipeline.of(found).run(spark, listeners=[Together()])
    assert [record.status for record in result.steps] == ["done"] * 3
    assert alone == [("last", True)]
    found["steps"][0]["checks"] = {"rows": {"max": 1}}
    with pytest.raises(StepFailedError) as caught:
        Pipeline.of(found).run(spark)
    assert [record.status for record in caught.value.result.steps] == ["failed", "done", "not run"]


def test_selected_steps(lake: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = raw(
        step("kept", "filter", **{"from": "mon"}, where="id > 1"),
        step("one", "write", **{"from": "kept", "into": "out"}),
        step("two", "write", **{"from": "tue", "into": "other"}),
        step("tidy", "compact", dataset="out"),
    )
    pipeline = Pipeline.of(found)
    assert [step.status for step in pipeline.run(spark, select=["one"]).steps] == [
        *("not selected", "done", "not selected", "not selected")
    ]
    status = {step.name: step.status for step in pipeline.run(spark, select=["one+"]).steps}
    assert status == {"kept": "not selected", "one": "done", "two": "not selected", "tidy": "done"}
    assert pipeline.run(spark, select=["+tidy"]).step("two").status == "not selected"
    with pytest.raises(PipelineFileError, match="there is no step 'three'"):
        pipeline.run(spark, select=["three+"])


def test_a_dry_run_resolves_everything_and_writes_nothing(lake: Path, spark: Any, capsys: Any) -> None:
    people()
    found = raw(
        step("both", "sql", **{"from": ["mon", "people"]}, query="SELECT * FROM mon JOIN people USING (id)"),
        step("load", "merge", **{"from": "both", "into": "out"}, keys=["id"], expect={"big": "amount > 0"}),
        step("more", "sql", **{"from": "out"}, query="SELECT name, count(*) AS n FROM out GROUP BY name"),
        step("count", "write", **{"from": "more", "into": "other"}),
        step("gone", "delete", dataset="people", where="id = 1"),
        step("new", "update", dataset="people", set={"name": "upper(name)"}, where="id = 2"),
        step("tidy", "compact", dataset="people"),
    )
    seen = Pipeline.of(found).preview(spark)
    assert {step.name: step.effect for step in seen.steps} == {
        "both": "makes rows",
        "load": "merges (upsert by id) into lake/out",
        "more": "makes rows",
        "count": "appends to lake/other",
        "gone": "deletes rows where id = 1 of lake/people",
        "new": "sets name where id = 2 in lake/people",
        "tidy": "compacts lake/people",
    }
    assert [step.state for step in seen.steps] == [None, "new", None, "new", "existing", "existing", "existing"]
    assert seen.steps[3].columns == {"name": "string", "n": "bigint"}
    assert sorted(path.name for path in Path("lake").iterdir() if not path.name.startswith(".")) == ["people"]
    for number, change, said in (
        (0, {"query": "SELECT nmae FROM mon, people"}, "nmae"),
        (1, {"expect": {"big": "amuont > 0"}}, "amuont"),
        (2, {"query": "SELECT amont FROM out"}, "amont"),
        (4, {"where": "idd = 1"}, "idd"),
        (5, {"set": {"nmae": "name"}}, "nmae"),
    ):
        wrong = [each | change if place == number else each for place, each in enumerate(found["steps"])]
        with pytest.raises(StepFailedError, match=f"^step '{wrong[number]['name']}': .*{said}") as caught:
            Pipeline.of(found | {"steps": wrong}).preview(spark)
        assert caught.value.step == wrong[number]["name"]
    Path("p.toml").write_text(
        'name = "p"\nsources.mon = { format = "csv", path = "in/mon.csv" }\ndatasets.out.path = "lake/out"\n'
        'steps = [{ name = "load", do = "write", from = "mon", into = "out" }]\n'
    )
    assert main(["run", "p.toml", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["steps"][0]["effect"], document["steps"][0]["state"]) == ("appends to lake/out", "new")
    assert not Path("lake/out").exists()


MON: dict[str, Any] = {"from": "mon", "into": "people", "keys": ["id"]}
NAMED = step("named", "sql", **{"from": "mon"}, query="SELECT id, status AS name FROM mon")
RENAMED = step("renamed", "sql", **{"from": "mon"}, query="SELECT id, amount AS points FROM mon")


LOAD: dict[str, Any] = {"name": "s", "do": "merge"} | MON | {"from": "named"}
NO_COLUMN: list[tuple[list[dict[str, Any]], str]] = [
    ([NAMED, LOAD | {"keys": ["idd"]}], "idd"),
    ([NAMED, LOAD | {"strategy": "full_merge", "scope": "nmae = 'a'"}], "scope: .*nmae"),
    ([NAMED, LOAD | {"checks": {"unique": ["idd"]}}], r"checks.unique: .*'idd'"),
    ([NAMED, LOAD | {"checks": {"not_null": ["nmae"]}}], "did you mean 'name'"),
    ([NAMED, LOAD | {"checks": {"accepted": {"nmae": ["a"]}}}], "nmae"),
    ([NAMED, LOAD | {"checks": {"sql": {"x": "SELECT nmae FROM this"}}}], "nmae"),
    ([step("s", "write", **{"from": "mon", "into": "out"}, partition_by=["dya"])], "dya"),
    ([step("s", "check", dataset="people", checks={"fresh": {"column": "name", "within": "1d"}})], "dates or times"),
    ([step("s", "check", dataset="people", checks={"accepted": {"name": ["a", 1]}})], "1 is none of its values"),
    ([step("s", "check", **{"from": "mon"}, checks={"unique": ["idd"]})], "idd"),
    ([step("s", "optimize", dataset="people", by=["idd"])], "by: unknown column 'idd'"),
    ([step("s", "deduplicate", dataset="people", keys=["id"], order_by=["-nmae"])], "order_by: unknown column 'nmae'"),
    ([step("s", "delete", dataset="people", where="idd = 1")], "character 1 of 'idd = 1'"),
    (
        [step("named", "sql", **{"from": "mon"}, query="SELECT id, amount AS name FROM mon"), LOAD],
        "'name' has the type int64 in the rows of the step and string in the dataset",
    ),
    (
        [
            RENAMED,
            step("w", "write", **{"from": "renamed", "into": "people"}, mode="overwrite"),
            step("s", "delete", dataset="people", where="name = 'Ann'"),
        ],
        "unknown column 'name'",
    ),
]


def test_a_dry_run_finds_columns_that_are_not_there(lake: Path, spark: Any) -> None:
    people()
    for steps, said in NO_COLUMN:
        with pytest.raises(StepFailedError, match=f"^step 's': .*{said}") as caught:
            Pipeline.of(raw(*steps)).preview(spark)
        assert isinstance(caught.value.__cause__, FsspeckitError)
        assert [step.status for step in caught.value.result.steps] == ["not run"] * (len(steps) - 1) + ["failed"]


def test_a_dry_run_shows_what_is_known_without_rows(lake: Path, spark: Any, capsys: Any) -> None:
    for day in range(6):
        table = pa.table({"id": [10 * day, 10 * day + 1], "day": ["mon", "tue"]})
        IO.write_dataset(table, "lake/people", partition_by=["day"])
    for file in Path("lake/people").rglob("*.parquet"):
        ruin_pages(file, "id")  # rows cannot be read
    steps = [
        step("gone", "delete", dataset="people", where="id >= 50"),
        step("new", "sql", **{"from": "mon"}, query="SELECT id, 'mon' AS day, status FROM mon"),
        step("load", "merge", **MON | {"from": "new"}, schema_mode="evolve", expect={"a": "id > 0"}, on_fail="warn"),
        step("tidy", "compact", dataset="people"),
        step("part", "compact", dataset="people", partitions=["day=mon"]),
        step("sort", "optimize", dataset="people", by=["id"]),
        step("copy", "write", **{"from": "new", "into": "out"}, partition_by=["day"]),
    ]
    pipeline = Pipeline.of(raw(*steps))
    seen = pipeline.preview(spark)
    assert (seen.step("gone").work, seen.step("gone").changed_above) == ({"files_at_most": 2, "rows_at_most": 2}, False)
    load = seen.step("load")
    assert (load.state, load.files, load.rows, load.partition_by) == ("existing", 12, 12, ("day",))
    assert (load.strategy, load.key_columns, load.added_columns) == ("upsert", ("id",), {"status": "string"})
    assert (load.expect, load.on_fail, load.changed_above) == ({"a": "id > 0"}, "warn", True)
    assert seen.step("tidy").work == seen.step("sort").work == {"files_rewritten": 12, "files_after": 2}
    assert seen.step("part").work == {"files_rewritten": 6, "files_after": 7}
    assert (seen.step("copy").state, seen.step("copy").partition_by) == ("new", ("day",))
    for said in (
        "dataset: 12 files, 12 rows, ",
        "adds: status string",
        "work: at most 2 rows in 2 files, by statistics",
        "work: 6 of 12 files rewritten, 7 files after it, by footers before the steps above",
        "dataset: a new dataset, partitioned by day",
        "rows that do not meet a: warn",
        "`fsspeckit plan` counts them",
    ):
        assert said in str(seen)
    assert json.loads(json.dumps(seen.to_dict()))["steps"][3]["work"]["files_after"] == 2
    for wrong, said in (
        (step("s", "compact", dataset="other"), "step 's': no parquet dataset at lake/other"),
        (step("s", "compact", dataset="people", partitions=["day=x"]), "step 's': lake/people has no files in .*day=x"),
        (step("s", "check", dataset="other", checks={"rows": {"min": 1}}), "step 's': no parquet dataset"),
        (step("s", "write", **{"from": "gap", "into": "out"}), "step 's': .*no/such"),
    ):
        gap = SOURCES | {"gap": {"format": "csv", "path": "no/such.csv"}}
        with pytest.raises(StepFailedError, match=said):
            Pipeline.of(raw(wrong, sources=gap)).preview(spark)
    Path("p.toml").write_text(
        'name = "p"\ndatasets.other.path = "lake/other"\n'
        'steps = [{ name = "s", do = "delete", dataset = "other", where = "id = 1" }]\n'
    )
    assert main(["run", "p.toml", "--dry-run"]) == 1
    assert "error: step 's': no parquet dataset at lake/other" in capsys.readouterr().err


def test_a_dry_run_of_selected_steps_is_that_of_their_run(lake: Path, spark: Any) -> None:
    """Steps that are not selected create and change nothing."""
    pipeline = Pipeline.of(
        raw(
            step("big", "filter", **{"from": "mon"}, where="amount > 10"),
            step("load", "write", **{"from": "big", "into": "out"}),
            step("tidy", "compact", dataset="out"),
        )
    )
    for call in (pipeline.preview, pipeline.run):
        with pytest.raises(StepFailedError, match=r"step 'tidy': no (matching )?parquet (dataset|files)"):
            call(spark, select=["tidy"])
    assert [each.name for each in pipeline.preview(spark, select=["load"]).steps] == ["load"]
    pipeline.run(spark, select=["load"])
    seen = pipeline.preview(spark, select=["tidy"]).step("tidy")
    assert (seen.state, seen.changed_above) == ("existing", False)
    assert pipeline.preview(spark).step("tidy").changed_above


def test_a_dry_run_shows_the_steps_that_a_run_would_skip(lake: Path, spark: Any) -> None:
    clean = step("clean", "filter", **{"from": "mon"}, where="amount > 0")
    pipeline = Pipeline.of(raw(clean, step("load", "write", **{"from": "clean", "into": "out"})))
    assert pipeline.preview(spark, idempotency_key="k").step("load").committed is None
    pipeline.run(spark, idempotency_key="k")
    seen = pipeline.preview(spark, idempotency_key="k")
    assert seen.step("load").committed == 1
    assert "skipped: commit 1 of an earlier run has the same idempotency key" in str(seen)
    assert pipeline.preview(spark, idempotency_key="other").step("load").committed is None
    Path("in/mon.csv").unlink()
    assert pipeline.preview(spark, idempotency_key="k").step("load").committed == 1
    assert pipeline.run(spark, idempotency_key="k").step("load").status == "skipped"
    with pytest.raises(StepFailedError, match=r"^step 'clean': .*no file at .*mon.csv"):
        pipeline.preview(spark, idempotency_key="other")


def test_a_dry_run_follows_the_types_of_datasets(lake: Path, spark: Any) -> None:
    IO.write_dataset(pa.table({"id": [1], "v": [1]}), "lake/out")
    IO.write_dataset(pa.table({"id": [1], "v": [1]}), "lake/people")
    texts = step("texts", "sql", **{"from": "people"}, query="SELECT id, 'a' AS v FROM people")
    replaced = step("replaced", "write", **{"from": "texts", "into": "out"}, mode="overwrite")
    for change, said in (("v + 1", "a text cannot be used in arithmetic"), ("upper(v)", None)):
        pipeline = Pipeline.of(
            raw(texts, replaced, step("u", "update", dataset="out", set={"v": change}, where="id = 1"))
        )
        for call in (pipeline.preview, pipeline.run):
            with pytest.raises(StepFailedError, match=f"^step 'u': .*{said}") if said else nullcontext():
                call(spark)
    day = step("day", "sql", **{"from": "people"}, query="SELECT id, DATE '2026-11-02' AS v FROM people")
    IO.write_dataset(pa.table({"id": [1], "v": pa.array([1], pa.timestamp("us"))}), "lake/bad")
    pipeline = Pipeline.of(raw(day, step("load", "merge", **{"from": "day", "into": "bad"}, keys=["id"])))
    for call in (pipeline.preview, pipeline.run):
        with pytest.raises(StepFailedError, match=r"^step 'load': .*date32"):
            call(spark)


def test_a_check_reads_only_datasets_that_its_query_names(lake: Path, spark: Any) -> None:
    people()
    query = "SELECT id AS people_out FROM this WHERE id NOT IN (SELECT id FROM People)"
    load = step("load", "write", **{"from": "mon", "into": "bad"}, checks={"sql": {"known": query}})
    for call in (Pipeline.preview, Pipeline.run):
        call(Pipeline.of(raw(load)), spark)


def test_a_dry_run_resolves_the_quarantine(lake: Path, spark: Any) -> None:
    IO.write_dataset(pa.table({"id": ["x"], "quarantine_row": ["1"]}), "lake/bad")
    IO.write_dataset(pa.table({"id": [1]}), "lake/other")
    expect = {"expect": {"positive": "amount >= 20"}, "on_fail": "quarantine", "quarantine": "bad"}
    load = step("load", "write", **{"from": "mon", "into": "out"}, **expect)
    begin = "^step 'load': rows that do not meet expect.positive do not fit the quarantine"
    for name, said in (("bad", "'id' is string in the target and int64"), ("other", "it is no quarantine")):
        for call in (Pipeline.preview, Pipeline.run):
            with pytest.raises(StepFailedError, match=rf"{begin} '{name}' \(lake/{name}\): .*{said}"):
                call(Pipeline.of(raw(load | {"quarantine": name})), spark)
    assert not Path("lake/out").exists()
    typo = step("load", "write", **{"from": "mon", "into": "out"}, **expect | {"expect": {"positive": "amuont > 1"}})
    with pytest.raises(StepFailedError, match=r"^step 'load': .*expect.positive.*amuont"):
        Pipeline.of(raw(typo)).preview(spark)
    taken = step("t", "sql", **{"from": "mon"}, query="SELECT *, 1 AS Quarantine_Reason FROM mon")
    with pytest.raises(StepFailedError, match=r"Quarantine_Reason.*rename"):
        Pipeline.of(raw(taken, load | {"from": "t"})).preview(spark)
    first = step("first", "write", **{"from": "mon", "into": "out"}, **expect | {"quarantine": "people"})
    texts = step("texts", "sql", **{"from": "mon"}, query="SELECT string(id) AS id, status, amount FROM mon")
    second = step("second", "write", **{"from": "texts", "into": "out"}, **expect | {"quarantine": "people"})
    with pytest.raises(StepFailedError, match=r"^step 'second': lake/out: the column 'id' has the type string"):
        Pipeline.of(raw(first, texts, second)).preview(spark)
    second |= {"mode": "overwrite"}
    with pytest.raises(StepFailedError, match=r"^step 'second': .*\(lake/people\): .*'id' is int64"):
        Pipeline.of(raw(first, texts, second)).preview(spark)
    seen = Pipeline.of(raw(first)).preview(spark).step("first")
    assert (seen.quarantine, seen.quarantine_state) == ("lake/people", "new")
    check = step("look", "check", dataset="people", checks={"not_null": ["quarantine_reason", "amount"]})
    assert Pipeline.of(raw(first, check)).preview(spark).step("look").state == "written above"


def test_a_dry_run_follows_the_columns_of_datasets(lake: Path, spark: Any) -> None:
    people()
    feed = {"keys": ["id"], "sequence_by": "at", "except_columns": ["status"]}
    steps = [
        RENAMED,
        step("write", "write", **{"from": "renamed", "into": "people"}, mode="overwrite"),
        step("low", "delete", dataset="people", where="points < 0", checks={"not_null": ["points"]}),
        step("more", "merge", **MON, schema_mode="evolve", checks={"sql": {"a": "SELECT at, points FROM this"}}),
        step("sort", "optimize", dataset="people", by=["at", "points"]),
        step(
            "part", "merge", **MON | {"into": "out"}, partition_by=["status"], scope="amount > 1", strategy="full_merge"
        ),
        step("again", "merge", **MON | {"into": "out"}, partition_by=["status"]),
        step("feed", "apply_changes", **{"from": "mon", "into": "other"}, **feed, scd_type=2),
        step("old", "sql", **{"from": "other"}, query="SELECT id, amount, valid_to FROM other WHERE is_current"),
        step("keep", "write", **{"from": "old", "into": "bad"}),
    ]
    seen = Pipeline.of(raw(*steps)).preview(spark)
    assert list(seen.steps[-1].columns) == ["id", "amount", "valid_to"]
    assert sorted(path.name for path in Path("lake").iterdir() if not path.name.startswith(".")) == ["people"]


def test_a_dry_run_reads_the_beginning_of_large_files(lake: Path, spark: Any) -> None:
    with Path("in/mon.csv").open("w") as file:
        file.write("id,note\n" + "1,abc\n" * 100_000 + "a broken line without a comma\n")
    load = step("load", "write", **{"from": "mon", "into": "out"})
    started = time.perf_counter()
    seen = Pipeline.of(raw(load)).preview(spark)
    assert seen.steps[0].columns == {"id": "bigint", "note": "string"}
    assert time.perf_counter() - started < 60
    with pytest.raises(StepFailedError, match="before the first step"):
        Pipeline.of(raw(load)).run(spark)


def test_the_graph(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = raw(
        step("q", "sql", **{"from": ["mon", "people"]}, query="SELECT 1"),
        step("load", "merge", **{"from": "q", "into": "out"}, keys=["id"]),
        step("tidy", "compact", dataset="out"),
    )
    text = Pipeline.of(found).graph()
    assert text.splitlines()[0] == "flowchart LR"
    ids = dict(line.strip().split("[", 1)[::-1] for line in text.splitlines() if "[" in line and "-->" not in line)
    number = {label.split('"')[1]: key.strip("(") for label, key in ids.items()}
    for before, after in (
        ("mon (csv)", "q (sql)"),
        ("people", "q (sql)"),
        ("q (sql)", "load (merge)"),
        ("load (merge)", "out"),
        ("load (merge)", "tidy (compact)"),
    ):
        assert f"    {number[before]} --> {number[after]}" in text.splitlines()
    drawn = ElementTree.fromstring(Pipeline.of(found).graph("svg"))
    labels = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"mon (csv)", "q (sql)", "load (merge)", "out"} <= set(labels)
    Path("p.toml").write_text(
        'name = "p"\ndatasets.out.path = "lake"\nsteps = [{ name = "tidy", do = "compact", dataset = "out" }]\n'
    )
    assert main(["run", "p.toml", "--graph", "mermaid"]) == 0
    assert "tidy (compact)" in capsys.readouterr().out

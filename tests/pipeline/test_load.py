"""Pipeline files: what they may say, how mistakes are named, and the order that follows from them."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError
from fsspeckit.pipeline.model import RowStep
from fsspeckit.pipeline.parts import Expecting
from fsspeckit.pipeline.wording import ARGUMENTS


def raw(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    sources = {"orders": {"format": "csv", "path": "in/*.csv"}, "now": {"format": "dataset", "dataset": "silver"}}
    datasets = {"bronze": {"path": "lake/bronze"}, "silver": {"path": "lake/silver"}}
    return {"name": "p", "sources": sources, "datasets": datasets, "steps": list(steps)} | more


def step(name: str, do: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "do": do} | more


def merge(name: str, **more: Any) -> dict[str, Any]:
    return step(name, "merge") | {"from": "orders", "into": "bronze", "keys": ["id"]} | more


def mistakes(found: dict[str, Any], **variables: str) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        Pipeline.of(found, variables)
    return [str(problem) for problem in caught.value.problems]


def update(**more: Any) -> dict[str, Any]:
    return step("mark", "update", dataset="bronze", set={"status": "'open'"}, where="status IS NULL") | more


def write(**more: Any) -> dict[str, Any]:
    return step("load", "write") | {"from": "orders", "into": "bronze"} | more


def changes(**more: Any) -> dict[str, Any]:
    return (
        step("feed", "apply_changes")
        | {"from": "orders", "into": "bronze", "keys": ["id"], "sequence_by": "lsn"}
        | more
    )


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (update(where="status ="), ".where: not an SQL expression at character 8 of 'status ='"),
    (update(where=""), ".where: '' is not one expression; pass one condition or value"),
    (update(where="true; true"), ".where: 'true; true' is not one expression; pass one"),
    (update(where=5), ".where: 5 is wrong; write a text in quotes"),
    (update(set={}), ".set: a value of type dict is wrong; it must have a length of at least 1"),
    (update(set={"a": "b +"}), ".set.a: not an SQL expression"),
    (update(set={"a": 1}), ".set.a: 1 is wrong; write a text in quotes"),
    (update(dataset="gold"), ".dataset: there is no dataset 'gold'; use one of bronze, silver"),
    (update(into="bronze"), ".into: this key is unknown; use one of name, after, repeat, dataset, where"),
    (update(do="delete"), ".set: this key is unknown; use one of name, after, repeat, dataset, where"),
    (update(compression="zip"), ".compression: 'zip' is not allowed; use one of"),
    (merge("a", delete_when="op ="), ".delete_when: not an SQL expression at character 4 of 'op ='"),
    (merge("a", update_when="source.id >"), ".update_when: not an SQL expression at character 11 of"),
    (merge("a", insert_when=""), ".insert_when: '' is not one expression; pass one condition or value"),
    (merge("a", scope="a; b", strategy="full_merge"), ".scope: 'a; b' is not one expression; pass one"),
    (merge("a", update_columns=[]), ".update_columns: [] is wrong; it must have a length of at least 1"),
    (merge("a", partition_move="burn"), ".partition_move: 'burn' is not allowed; use one of 'check', 'unchecked'"),
    (merge("a", newer_by=5), ".newer_by: 5 is wrong; write a text in quotes"),
    (merge("a", scope="true"), ': scope is for strategy="full_merge"; leave it out'),
    (merge("a", strategy="insert", update_when="source.id = 1"), ": update_when changes rows that exist, and"),
    (merge("a", strategy="update", insert_when="source.id = 1"), ": insert_when is for strategies that insert"),
    (merge("a", strategy="upsrt"), ".strategy: 'upsrt' is not allowed; use one of 'upsert', 'insert', 'update'"),
    (merge("a", keys=[]), ".keys: [] is wrong; it must have a length of at least 1"),
    (merge("a", **{"from": "nobody"}), ".from: there is no source or step with rows 'nobody'; use one of orders"),
    (merge("a", into="gold"), ".into: there is no dataset 'gold'; use one of bronze, silver"),
    (merge("a", after=["x"]), ".after: there is no step 'x'; use one of a"),
    (merge("a", order_by=["at"]), ": 'order_by' goes with strategy"),
    (merge("a", max_rows_per_file=0), ".max_rows_per_file: 0 is wrong; it must be more than 0"),
    (merge("a", checks={"rows": {"least": 1}}), ".checks.rows.least: this key is unknown; use one of min, max"),
    (merge("a", checks={"fresh": {"column": "at", "within": "2 weeks"}}), ".checks.fresh.within: '2 weeks'"),
    (merge("a", key="id"), ".key: this key is unknown; use one of expect, on_fail, quarantine"),
    (merge("a", on_fail="drop"), ": 'on_fail' and 'quarantine' go with 'expect'"),
    (merge("a", expect={"a": "true"}, on_fail="quarantine"), "needs 'quarantine', the name of a dataset"),
    (merge("a", expect={"a": "true"}, on_fail="explode"), ".on_fail: 'explode' is not allowed"),
    (merge("a", repeat={"times": 1, "wait": "soon"}), ".repeat.wait"),
    (changes(sequence_by=None), ".sequence_by: a value of type NoneType is wrong; write a text in quotes"),
    (changes(delete_when="op ="), ".delete_when: not an SQL expression at character 4 of 'op ='"),
    (changes(except_columns=[]), ".except_columns: [] is wrong; it must have a length of at least 1"),
    (changes(columns="id"), ".columns: a value of type str is wrong; write a list, such as"),
    (changes(ignore_null_updates="why"), ".ignore_null_updates: a value of type str is wrong; write true or false"),
    (changes(scd_type=3), ".scd_type: 3 is not allowed; use one of 1 or 2"),
    (changes(strategy="upsert"), ".strategy: this key is unknown; use one of expect, on_fail, quarantine, name"),
    (write(replace_where="id = 1"), ": 'replace_where' goes with mode 'overwrite'"),
    (write(mode="overwrite", replace_where="id ="), ".replace_where: not an SQL expression"),
    (write(mode="new"), ".mode: 'new' is not allowed; use one of 'append', 'overwrite'"),
    (step("c", "check", checks={}), "give either 'from' or 'dataset'"),
    (step("c", "check", dataset="silver", checks={"reconciled": True}), "'reconciled' goes with a step that writes"),
    (step("d", "deduplicate", keys=["id"]) | {"from": "orders"}, "name columns in 'order_by'"),
    (step("d", "deduplicate", keys=["id"], order_by=["at"], checks={}) | {"from": "orders"}, "'checks' goes with"),
    (step("d", "deduplicate", keys=["id"]), "give either"),
]


def test_a_mistake_is_named_by_its_key_with_what_is_allowed() -> None:
    """It is found before anything runs."""
    for found, said in MISTAKES:
        problem = mistakes(raw(found))[0].replace("Value error, ", "")
        begin = f"steps[0] ({found['name']})"
        assert problem.startswith(begin), problem
        assert said in problem, (said, problem)


@pytest.mark.parametrize("model", get_args(RowStep), ids=lambda model: model.__name__)
def test_every_argument_of_an_operation_is_a_key_with_its_default(model: Any) -> None:
    (operation,) = get_args(model.model_fields["do"].annotation)
    parameters = inspect.signature(getattr(SparkDatasetIO, operation)).parameters
    others = {"self", "data", "source", "path", "progress", "dry_run", "plan", "batch_rows", "memory_limit"}
    others |= {"partition_columns", "skip_unchanged"}
    known = {name: each.default for name, each in parameters.items() if name not in others}
    keys = {ARGUMENTS.get(name, name): field for name, field in model.model_fields.items()}
    own = {"name", "after", "repeat", "do", "source", "dataset", "checks", *Expecting.model_fields}
    assert known.keys() == keys.keys() - own
    for name in known.keys() - {"strategy"}:
        assert known[name] == (inspect.Parameter.empty if keys[name].is_required() else keys[name].default), name


def test_deletes_and_updates_keep_their_place_among_the_steps_of_a_dataset() -> None:
    found = raw(
        merge("load"),
        update(),
        changes(),
        step("purge", "delete", dataset="bronze", where="id < 0"),
        merge("more", into="silver", **{"from": "orders"}),
        step("first", "delete", dataset="silver", where="true"),
        step("tidy", "compact", dataset="bronze"),
    )
    assert Pipeline.of(found).steps == ("load", "mark", "feed", "purge", "more", "first", "tidy")


def test_an_expression_of_a_delete_needs_no_trust() -> None:
    """It is not SQL of Spark, and functions are checked by name when the step runs."""
    found = raw(step("purge", "delete", dataset="bronze", where="note = 'reflect(' OR `using` = 1"))
    assert Pipeline.of(found).steps == ("purge",)


def test_every_mistake_is_found_at_once() -> None:
    found = raw(step("a", "mrge"), {"name": "b"}, merge("c", strategy="x"), sources={"s": {"format": "csv"}}, nme="p")
    assert [problem.partition(":")[0] for problem in mistakes(found)] == [
        "sources.s",
        "steps[0] (a).do",
        "steps[1] (b).do",
        "steps[2] (c).strategy",
        "nme",
    ]
    assert "use one of 'select', 'rename'" in mistakes(found)[2]
    assert "name, idempotency_key, variables, spark, repeat, parallel, sources, datasets, steps" in mistakes(found)[4]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"format": "csv"}, "format 'csv' needs 'path'"),
        ({"format": "dataset", "path": "x"}, "format 'dataset' needs 'dataset'"),
        ({"format": "dataset", "dataset": "silver", "options": {"header": True}}, "options, columns and storage"),
        ({"format": "dataset", "dataset": "gold"}, "there is no dataset 'gold'"),
        ({"format": "csv", "path": 5}, "sources.orders.path: 5 is wrong"),
        ({"path": "in"}, "sources.orders.format: it is missing; add one of 'parquet', 'csv', 'json', 'dataset'"),
    ],
)
def test_sources_say_where_they_are(source: dict[str, Any], said: str) -> None:
    found = raw(merge("load"))
    assert said in mistakes(found | {"sources": {"orders": source}})[0]


def test_the_order_follows_from_rows_datasets_and_words() -> None:
    pipeline = Pipeline.of(
        raw(
            step("tidy", "compact", dataset="bronze", after=["load"]),
            merge("load", **{"from": "clean"}),
            step("clean", "filter", where="id > 0") | {"from": "orders"},
            step("silver", "write", into="silver") | {"from": "clean"},
            merge("back", **{"from": "now"}),
            step("good", "check", dataset="bronze", checks={"rows": {"min": 1}}),
            step("last", "optimize", dataset="silver", by=["id"]),
        )
    )
    assert pipeline.steps == ("clean", "load", "tidy", "silver", "back", "good", "last")


def test_steps_that_wait_for_each_other() -> None:
    found = raw(
        step("a", "compact", dataset="bronze", after=["b"]), step("b", "compact", dataset="silver", after=["a"])
    )
    assert "they wait for each other: " in mistakes(found)[0]
    one, two = (step(name, "filter", where="true") | {"from": other} for name, other in (("a", "b"), ("b", "a")))
    assert "they wait for each other" in mistakes(raw(one, two))[0]


def test_names_are_given_once() -> None:
    assert "the name is taken" in mistakes(raw(merge("a"), merge("a")))[0]
    assert "the name is taken" in mistakes(raw(merge("orders")))[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [("s3://lake/a", "s3a://lake/a/"), ("lake/a", "./lake/../lake/a/"), ("lake/a", f"file://{os.getcwd()}/lake/a")],
)
def test_a_folder_has_one_name(one: str, other: str) -> None:
    twice = {"bronze": {"path": one}, "silver": {"path": other}}
    assert mistakes(raw(merge("a"), datasets=twice)) == [
        "datasets.silver.path: it is that of 'bronze' too; name a folder once, and use that name"
    ]


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_OF_LAKE", "box")
    variables = {"day": "mon", "least": 2, "host": "${env:HOST_OF_LAKE}", "strict": True}
    rows = {"rows": {"min": "${least}"}, "reconciled": "${strict}"}
    found = raw(merge("load", checks=rows), variables=variables, idempotency_key="${day}-${run}")
    found["datasets"]["bronze"]["path"] = "s3://${host}/$${day}/${env:HOST_OF_LAKE}"
    file = Pipeline.of(found, {"run": "7", "day": "tue"}).file
    assert (file.idempotency_key, file.datasets["bronze"].path) == ("tue-7", "s3://box/${day}/box")
    assert file.steps[0].checks.rows.min == 2  # type: ignore[union-attr]
    assert file.steps[0].checks.reconciled is True  # type: ignore[union-attr]


def test_variables_that_are_missing_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    found = raw(merge("load"), idempotency_key="${day}-${env:NOWHERE}", variables={"a": "${b}"})
    found["datasets"]["bronze"]["path"] = "${a}"
    assert mistakes(found, dya="x") == [
        "variables.a: a default cannot use ${b}; only ${env:NAME} is allowed there",
        "idempotency_key: the variable 'day' has no value; pass --var day=..., or set variables.day",
        "idempotency_key: the environment has no NOWHERE; set NOWHERE",
        "variable dya: it occurs nowhere in the file; use one of a, day",
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="it cannot be read"):
        Pipeline.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = \n")
    with pytest.raises(PipelineFileError, match="line 1"):
        Pipeline.load(tmp_path / "bad.toml")


def test_the_schema_describes_every_step() -> None:
    schema = Pipeline.json_schema()
    kinds = set(schema["properties"]["steps"]["items"]["discriminator"]["mapping"])
    assert kinds == {
        *("select", "rename", "cast", "filter", "sql", "python", "deduplicate", "merge", "write", "delete", "update"),
        "apply_changes",
        *("compact", "optimize", "check"),
    }
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("steps", "repeat", "said"),
    [
        ("none", {}, 'steps: a value of type str is wrong; write a list, such as ["a", "b"]'),
        ([5], {}, "steps[0]: 5 is wrong; write a table, such as { key = value }"),
        ([{"name": "c", "do": "compact", "dataset": "a", "target_mb": "x"}], {}, "is wrong; write a number"),
        ([{"name": "c", "do": "compact", "dataset": "a"}], {"times": -1}, "-1 is wrong; it must be at least 0"),
        ([{"name": "c", "do": "compact", "dataset": "a"}], {"times": 1.5}, "1.5 is wrong; write a whole number"),
    ],
)
def test_a_wrong_value_is_explained_without_words_of_the_validator(steps: Any, repeat: Any, said: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        Pipeline.of({"name": "p", "datasets": {"a": {"path": "x"}}, "steps": steps, "repeat": repeat})
    assert said in str(caught.value)
    assert not re.search("[Ii]nput should|dictionary|instance of|unable to parse", str(caught.value))

"""The file that `plan` writes and `apply` reads. The file may have been edited, so every value is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from posixpath import dirname
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from fsspeckit.cli.errors import usage
from fsspeckit.cli.options import OPERATIONS, REQUIRED, ROW_OPERATIONS, WITH_SOURCE
from fsspeckit.common.choices import EngineName
from fsspeckit.common.wording import EXPRESSIONS

if TYPE_CHECKING:
    from fsspeckit.cli.sources import Source
    from fsspeckit.common.documents import Node
    from fsspeckit.core.commit.listing import View
    from fsspeckit.core.result_view import ResultMapping
    from fsspeckit.core.results import MergePlan

FORMAT = 1
_COUNTS = {"insert": "inserted", "update": "updated", "delete": "deleted", "unchanged": "unchanged", "total": "total"}
_ACTIONS = ("rewrite", "insert", "delete", "keep")
_REMEDY = "make a new plan with `fsspeckit plan`"
_KEYS = ("fsspeckit_plan", "command", "made_at", "engine", "dest", "options", "plan")
_SUMS = ("counts", "totals")
_OF_ONE_RUN = ("seconds", "commit_seconds", "commit_seq", "commits", "new_files")
"""Facts of a result that are not those of a plan."""


@dataclass(frozen=True, slots=True)
class SavedSource:
    """The source of a plan and its files."""

    path: str
    format: str
    delimiter: str | None
    encoding: str | None
    schema: str | None
    cast: str | None
    decimal_comma: bool
    date_format: str | None
    files: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DryRun:
    """What an operation without a `MergePlan` would do: a digest of the dataset, and the facts of a dry run.

    `apply` only compares them with those of another dry run.
    """

    state: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The content of a plan file; operations without source rows have no source."""

    command: str
    engine: str
    dest: str
    source: SavedSource | None
    options: dict[str, Any]
    plan: MergePlan | DryRun


def document_of(saved: SavedPlan) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    from fsspeckit.common.text import scrub

    source = {} if saved.source is None else {"source": asdict(saved.source) | {"path": scrub(saved.source.path)}}
    return {
        "fsspeckit_plan": FORMAT,
        "command": saved.command,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine": saved.engine,
        "dest": scrub(saved.dest),
        **source,
        "options": saved.options,
        **_planned(saved.plan),
    }


def _planned(plan: MergePlan | DryRun) -> dict[str, Any]:
    if isinstance(plan, DryRun):
        return {"plan": asdict(plan)}
    return {"counts": counts_of(plan), "totals": totals_of(plan), "plan": plan.to_dict()}


def state_of_dataset(view: View) -> str:
    """Return a digest of the paths, sizes and versions of the files of a dataset."""
    lines = sorted(f"{file.path!r} {file.size} {file.version}" for file in view.files)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def facts_of(result: ResultMapping) -> dict[str, Any]:
    """Return the facts of a dry run as JSON types. New files are named by their folder and rows."""
    facts = {name: value for name, value in result.to_dict().items() if name not in _OF_ONE_RUN}
    if "files" in facts:
        facts["files"] = [{"folder": dirname(file["path"]), "rows": file["row_count"]} for file in facts["files"]]
    found: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return found


def state_of(source: Source) -> list[dict[str, Any]]:
    """Return the files of a source as a plan file records them."""
    from fsspeckit.common.text import scrub

    return [file | {"path": scrub(file["path"])} for file in source.files()]


def counts_of(plan: MergePlan) -> dict[str, int]:
    """Return the row counts of a plan by action."""
    return {action: getattr(plan, name) for action, name in _COUNTS.items()}


def totals_of(plan: MergePlan) -> dict[str, dict[str, int]]:
    """Return files, rows and bytes of a plan by action."""
    return {action: _total(plan, action) for action in _ACTIONS}


def _total(plan: MergePlan, action: str) -> dict[str, int]:
    entries = [entry for entry in plan.entries if entry.action == action]
    return {"files": len(entries), "rows": sum(e.rows for e in entries), "bytes": sum(e.bytes for e in entries)}


def read_plan(path: Path) -> SavedPlan:
    """Read and check a plan file.

    Raises:
        DocumentError: The file is not a plan, or a value in it is not as `fsspeckit plan` writes it.
    """
    from fsspeckit.common.documents import read_json
    from fsspeckit.common.errors import DocumentError

    try:
        return _read(read_json(path, _REMEDY))
    except OSError as error:
        raise usage(f"cannot read the plan {path}: {error.strerror}", "check the path") from error
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from error


def _read(document: Node) -> SavedPlan:
    if document["fsspeckit_plan"].count() != FORMAT:
        raise document["fsspeckit_plan"].refuse("is the format of another version of fsspeckit")
    command = document["command"].choice(OPERATIONS)
    has_source, has_rows = command in WITH_SOURCE, command in ROW_OPERATIONS
    document.only([*_KEYS, *(["source"] if has_source else []), *(_SUMS if has_rows else ())])
    _check_time(document["made_at"])
    plan = _row_plan(document, command) if has_rows else _dry_run(document["plan"])
    return SavedPlan(
        command=command,
        engine=document["engine"].choice(get_args(EngineName)),
        dest=document["dest"].text(),
        source=_source(document["source"]) if has_source else None,
        options=_options(document["options"], command),
        plan=plan,
    )


def _check_time(node: Node) -> None:
    made_at = node.text()
    try:
        datetime.fromisoformat(made_at)
    except ValueError as error:
        raise node.refuse("is not a time") from error


def _dry_run(node: Node) -> DryRun:
    node.only(("state", "facts"))
    return DryRun(node["state"].text(), node["facts"].object())


def _row_plan(document: Node, command: str) -> MergePlan:
    """Return the plan of a merge, delete or update. Raise unless the sums agree with it."""
    from fsspeckit.core.planning.pinned_plan import check_plan_names
    from fsspeckit.core.results import MergePlan

    plan = MergePlan.from_node(document["plan"])
    if plan.operation != command:
        raise document["command"].refuse("does not agree with the plan")
    check_plan_names(plan)
    if document["counts"].values(lambda each: each.count()) != counts_of(plan):
        raise document["counts"].refuse("that does not agree with the plan")
    if document["totals"].values(lambda each: each.values(lambda inner: inner.count())) != totals_of(plan):
        raise document["totals"].refuse("that does not agree with the plan")
    return plan


def _source(node: Node) -> SavedSource:
    from fsspeckit.core.formats import ENDINGS, can_delimit

    delimiter = node["delimiter"].optional(_text)
    if delimiter is not None and not can_delimit(delimiter):
        raise node["delimiter"].refuse("is not one character")
    return SavedSource(
        path=node["path"].text(),
        format=node["format"].choice(ENDINGS),
        delimiter=delimiter,
        encoding=node["encoding"].optional(_text),
        schema=node["schema"].optional(_text),
        cast=node["cast"].optional(_text),
        decimal_comma=node["decimal_comma"].flag(),
        date_format=node["date_format"].optional(_text),
        files=node["files"].each(_file),
    )


def _file(node: Node) -> dict[str, Any]:
    return {"path": node["path"].text(), "bytes": node["bytes"].count(), "stamp": node["stamp"].text()}


def _options(node: Node, command: str) -> dict[str, Any]:
    """Return the arguments of the `DatasetIO` method that the command calls."""
    table = OPERATIONS[command]
    node.only(table)
    required = [name for name, (_, default) in table.items() if default is REQUIRED]
    return {name: _option(node[name], name, table[name][0]) for name in dict.fromkeys([*required, *node.keys()])}


def _option(node: Node, name: str, option: Any) -> Any:
    """Return a value of the type that an option has on the command line; expressions must be SQL."""
    if name == "set":
        return node.values(_expression)
    type_ = get_args(option)[0]
    kinds = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    read = _expression if name in EXPRESSIONS else _reader(kinds[0])
    return node.optional(read) if NoneType in kinds else read(node)


def _reader(type_: Any) -> Callable[[Node], Any]:
    if get_origin(type_) is Literal:
        return lambda node: node.choice(get_args(type_))
    readers: dict[Any, Callable[[Node], Any]] = {
        str: _text,
        int: lambda node: node.count(),
        float: lambda node: node.number(),
        bool: lambda node: node.flag(),
    }
    return readers.get(type_, _texts)


def _text(node: Node) -> str:
    return node.text()


def _texts(node: Node) -> list[str]:
    return node.each(_text)


def _expression(node: Node) -> str:
    from fsspeckit.common.errors import ExpressionError
    from fsspeckit.core.expressions.grammar import parse_one

    text = node.text()
    try:
        parse_one(text)
    except ExpressionError as error:
        raise node.refuse("is not one SQL expression") from error
    return text

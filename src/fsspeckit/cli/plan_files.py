"""The file that `plan` writes and `apply` reads. The file may have been edited, so every value is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from fsspeckit.cli.errors import usage
from fsspeckit.cli.options import OPERATIONS, REQUIRED
from fsspeckit.common.choices import EngineName
from fsspeckit.common.wording import EXPRESSIONS

if TYPE_CHECKING:
    from fsspeckit.cli.sources import Source
    from fsspeckit.common.documents import Node
    from fsspeckit.core.results import MergePlan

FORMAT = 1
_COUNTS = {"insert": "inserted", "update": "updated", "delete": "deleted", "unchanged": "unchanged", "total": "total"}
_ACTIONS = ("rewrite", "insert", "delete", "keep")
_REMEDY = "make a new plan with `fsspeckit plan`"
_KEYS = ("fsspeckit_plan", "command", "made_at", "engine", "dest", "options", "counts", "totals", "plan")


@dataclass(frozen=True, slots=True)
class SavedSource:
    """The source of a plan and its files."""

    path: str
    format: str
    delimiter: str | None
    encoding: str | None
    schema: str | None
    cast: str | None
    files: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The content of a plan file; operations without source rows have no source."""

    command: str
    engine: str
    dest: str
    source: SavedSource | None
    options: dict[str, Any]
    plan: MergePlan


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
        "counts": counts_of(saved.plan),
        "totals": totals_of(saved.plan),
        "plan": saved.plan.to_dict(),
    }


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
    from fsspeckit.core.planning.pinned_plan import check_plan_names
    from fsspeckit.core.results import WITH_SOURCE, MergePlan

    if document["fsspeckit_plan"].count() != FORMAT:
        raise document["fsspeckit_plan"].refuse("is the format of another version of fsspeckit")
    command = document["command"].choice(OPERATIONS)
    has_source = command in WITH_SOURCE
    document.only((*_KEYS, "source") if has_source else _KEYS)
    plan = MergePlan.from_node(document["plan"])
    if plan.operation != command:
        raise document["command"].refuse("does not agree with the plan")
    check_plan_names(plan)
    _check_summary(document, plan)
    return SavedPlan(
        command=command,
        engine=document["engine"].choice(get_args(EngineName)),
        dest=document["dest"].text(),
        source=_source(document["source"]) if has_source else None,
        options=_options(document["options"], command),
        plan=plan,
    )


def _check_summary(document: Node, plan: MergePlan) -> None:
    """Raise unless time, counts and totals are present and the sums agree with the plan."""
    made_at = document["made_at"].text()
    try:
        datetime.fromisoformat(made_at)
    except ValueError as error:
        raise document["made_at"].refuse("is not a time") from error
    if document["counts"].values(lambda each: each.count()) != counts_of(plan):
        raise document["counts"].refuse("that does not agree with the plan")
    if document["totals"].values(lambda each: each.values(lambda inner: inner.count())) != totals_of(plan):
        raise document["totals"].refuse("that does not agree with the plan")


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
    kinds = get_args(type_) if isinstance(type_, UnionType) else (type_,)
    read = _expression if name in EXPRESSIONS else _reader(kinds[0])
    return node.optional(read) if NoneType in kinds else read(node)


def _reader(type_: Any) -> Callable[[Node], Any]:
    if get_origin(type_) is Literal:
        return lambda node: node.choice(get_args(type_))
    return {str: _text, int: lambda node: node.count(), bool: lambda node: node.flag()}.get(type_, _texts)


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

"""The command `update`: compute new values for the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.delete import delete_options
from fsspeckit.cli.commands.merge import is_noop
from fsspeckit.cli.errors import usage
from fsspeckit.cli.options import Assignments, Compression, Dataset, DryRun, Memory, RowGroup, Where

_EXAMPLE = """
fsspeckit update lake/orders --set "amount=amount * 2" --where "day = 'mon'" --dry-run --engine pyarrow
fsspeckit update lake/orders --set "amount=coalesce(amount, 0)" --where true --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "update", example=_EXAMPLE)(update)


def update(
    run: Run,
    path: Dataset,
    set_: Assignments,
    where: Where,
    compression: Compression = None,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    dry_run: DryRun = False,
) -> int:
    """Set columns of the rows for which a condition is true to values that are computed from the row."""
    options = update_options(locals())
    with run.bars() as progress:
        result = run.io().update(path, dry_run=dry_run, progress=progress, **options)
    return run.finish(result, noop=is_noop(result))


def update_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `DatasetIO.update` from those of the command."""
    return {"set": _assignments(given["set_"])} | delete_options(given)


def _assignments(texts: Sequence[str]) -> dict[str, str]:
    """Parse columns and expressions from `column=expression`; the first equals sign separates them.

    Example:
        >>> _assignments(["price=price * 1.1", "is_open = status = 'open'"])
        {'price': 'price * 1.1', 'is_open': "status = 'open'"}
    """
    assignments: dict[str, str] = {}
    for text in texts:
        column, equals, expression = (part.strip() for part in text.partition("="))
        if not column or not equals or not expression:
            raise usage(f"--set {text!r} is not COLUMN=EXPRESSION", 'write it as --set "price=price * 1.1"')
        if column in assignments:
            raise usage(f"--set names the column {column!r} twice", "name each column once")
        assignments[column] = expression
    return assignments

"""The command `update`: compute new values for the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import usage
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Retries
from fsspeckit.common.choices import DEFAULT_RETRIES

_EXAMPLE = """
fsspeckit update lake/orders --set "amount=amount * 2" --where "day = 'mon'" --dry-run --engine pyarrow
fsspeckit update lake/orders --set "amount=coalesce(amount, 0)" --where true --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "update", example=_EXAMPLE, options=OPERATIONS["update"], commits=True)(update)


def update(
    run: Run, path: Dataset, options: Options, retries: Retries = DEFAULT_RETRIES, dry_run: DryRun = False
) -> int:
    """Set columns of the rows for which a condition is true to values that are computed from the row."""
    given = update_options(options)
    with run.bars() as progress:
        result = run.io().update(path, dry_run=dry_run, progress=progress, retries=retries, **given)
    return run.finish(result, noop=is_noop(result))


def update_options(options: Options) -> Options:
    """Return the arguments of `DatasetIO.update`."""
    return options | {"set": _assignments(options["set"])}


def _assignments(texts: Sequence[str]) -> dict[str, str]:
    """Parse columns and expressions from `column=expression`; the first equals sign separates them.

    Examples:
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

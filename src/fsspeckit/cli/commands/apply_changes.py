"""The command `apply-changes`: apply the change feed of a database."""

from __future__ import annotations

from functools import partial

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import plan_and_ask
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Feed, MustExist, Options, Retries, Yes
from fsspeckit.cli.sources import Source
from fsspeckit.common.choices import DEFAULT_RETRIES

_EXAMPLE = """
fsspeckit apply-changes feed.csv lake/customers --key id --sequence-by lsn --delete-when "op = 'd'" \\
    --except-columns op --engine pyarrow
fsspeckit apply-changes sparse.csv lake/customers --key id --sequence-by lsn --columns name --ignore-null-updates \\
    --dry-run --engine pyarrow
fsspeckit apply-changes feed.csv lake/history --key id --sequence-by lsn --delete-when "op = 'd'" \\
    --except-columns op --scd-type 2 --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "apply-changes", example=_EXAMPLE, options=OPERATIONS["apply_changes"], commits=True)(apply_changes)


def apply_changes(
    run: Run,
    feed: Feed,
    path: Dataset,
    options: Options,
    reading: Options,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
    must_exist: MustExist = False,
    yes: Yes = False,
) -> int:
    """Apply the changes of FEED to the dataset PATH: the newest change of each key wins.

    A change that is not newer than the row in the dataset is dropped and counted as stale, so applying a feed again
    changes nothing. --delete-when is an SQL condition over the columns of FEED.
    """
    source = Source.of(run, feed, **reading)
    existed = run.existed(path, must_exist=must_exist)
    apply = partial(run.io().apply_changes, source.rows(), path, retries=retries, **options)
    if "delete_when" in options and not dry_run:
        plan_and_ask(run, path, apply, yes=yes)
    with run.bars() as progress:
        result = apply(dry_run=dry_run, progress=progress)
    return run.finish(result, noop=is_noop(result), existed=existed)

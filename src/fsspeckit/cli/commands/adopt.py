"""The command `adopt`: take a folder that others wrote under the journal."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import Dataset

_EXAMPLE = """
fsspeckit adopt lake/events --engine pyarrow
fsspeckit adopt lake/events --key id --yes --engine pyarrow
"""
Key = Annotated[list[str], typer.Option("--key", metavar="COLUMN", help="Key column to record; repeatable.")]
PartitionTypes = Annotated[
    str | None, typer.Option("--partition-types", metavar="TYPES", help='Types of partition columns: "zip string".')
]
Retain = Annotated[str, typer.Option("--retain", metavar="TIME", help="Keep replaced files for a time; off does not.")]
Record = Annotated[bool, typer.Option("--yes", help="Record it. Without this option, nothing is changed.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "adopt", example=_EXAMPLE, without=("noop_exit_code",))(adopt)


def adopt(
    run: Run,
    path: Dataset,
    key: Key = [],  # noqa: B006 - read by typer, never changed
    partition_types: PartitionTypes = None,
    retain: Retain = "7d",
    yes: Record = False,
) -> int:
    """Say what is in a folder that others wrote: unique keys, types, writers, small files, and what is recommended.

    With --yes, record the key and the types of partition columns, and keep the files that later commits replace. No
    data file is changed. Later commands need no --key.
    """
    with run.bars() as progress:
        result = run.io().adopt(
            path,
            key_columns=key or None,
            partition_types=partition_types,
            retain=None if retain == "off" else retain,
            dry_run=not yes,
            progress=progress,
        )
    return run.finish(result)

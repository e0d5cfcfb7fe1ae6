"""The command `export`: write Delta or Iceberg metadata for the files of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import Dataset
from fsspeckit.common.choices import ExportFormat, ForeignChange

_EXAMPLE = """
fsspeckit export delta lake/orders --keep-exported
fsspeckit export iceberg lake/orders
fsspeckit export delta lake/orders --remove
fsspeckit export delta lake/orders --remove --foreign keep
"""
Format = Annotated[
    ExportFormat,
    typer.Argument(
        metavar="FORMAT", help="delta: a Delta log in the folder; iceberg: metadata in PATH.iceberg beside it."
    ),
]
KeepExported = Annotated[
    bool, typer.Option("--keep-exported", help="Write a new version after every commit of every writer.")
]
Remove = Annotated[bool, typer.Option("--remove", help="Delete the metadata of the format. The data files stay.")]
Foreign = Annotated[
    ForeignChange | None,
    typer.Option(
        "--foreign",
        help="With --remove, if another program committed to the table. keep: the dataset takes over what the newest "
        "version of the Delta table holds; discard: delete the files that the program added. Default: list them and "
        "stop.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "export", example=_EXAMPLE, without=("engine",))(export)


def export(
    run: Run,
    format: Format,  # noqa: A002
    path: Dataset,
    keep_exported: KeepExported = False,
    remove: Remove = False,
    foreign: Foreign = None,
) -> int:
    """Let readers of Delta Lake or Apache Iceberg read the dataset. No data file is copied or changed.

    A version of the metadata describes one state of the dataset, with statistics. The next commit removes the files
    that it replaces, so use --keep-exported for a dataset that changes. An export without this option ends it.
    """
    from fsspeckit.core.operations import export as operations

    place = run.place(path)
    if foreign is not None and not remove:
        raise ValueError("--foreign says what --remove does with the change of another program. Add --remove.")
    if remove:
        if keep_exported:
            raise ValueError("--remove and --keep-exported exclude each other. Use one of them.")
        removed = operations.remove_export(place, format, foreign)
        facts = {"operation": "remove export", "path": place.path, "format": format, "removed": removed}
        run.say(facts, f"removed the {format} metadata of {place.path}" if removed else "There is no export to remove.")
        return 0 if removed else run.noop_exit_code
    with run.bars():
        result = operations.export(place, format, keep_exported=keep_exported)
    return run.finish(result, noop=not result.changed)

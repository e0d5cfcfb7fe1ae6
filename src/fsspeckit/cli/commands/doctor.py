"""The command `doctor`: check the environment and print how to fix what does not work."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import DOCTOR_LOOKS, FAILED, describe

MaybePath = Annotated[str | None, typer.Argument(metavar="PATH", help="A dataset, or the location for a new one.")]
StartSpark = Annotated[bool, typer.Option("--start-spark", help="Start a Spark session and run a job in it.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit doctor lake/orders --engine pyarrow"
    command(app, "doctor", example=example, without=("noop_exit_code",))(doctor)


def doctor(run: Run, path: MaybePath = None, start_spark: StartSpark = False) -> int:
    """Check Java, Spark, extras, access, credentials and the journal. Exit with 1 if a check fails."""
    from fsspeckit.doctor import diagnose

    def described(error: Exception) -> tuple[str, str]:
        problem, remedy, _ = describe(error, run.words)
        return problem, remedy.removesuffix(DOCTOR_LOOKS)

    options, engine = run.options(), run.chosen_engine()
    with run.bars():
        found = diagnose(path, engine, storage_options=options, start_spark=start_spark, describe=described)
    found = replace(found, checks=tuple(replace(check, mend=run.words(check.mend)) for check in found.checks))
    run.finish(found)
    return 0 if found.healthy else FAILED

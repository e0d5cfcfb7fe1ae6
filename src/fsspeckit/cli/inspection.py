"""The command `inspect`: the layout of a dataset from its footers, its score, and what would better it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fsspeckit.cli.errors import FAILED, usage
from fsspeckit.cli.run import Run, command
from fsspeckit.cli.upkeep import Path_

ScoreKeys = Annotated[
    list[str], typer.Option("--key", metavar="COLUMN", help="Column that readers search by; repeatable.")
]
FailUnder = Annotated[
    int | None, typer.Option("--fail-under", metavar="N", min=0, max=100, help="Exit with 1 where the score is lower.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    shared = ("engine", "no_progress", "noop_exit_code")
    command(app, "inspect", example="fsspeckit inspect lake/orders --fail-under 50", without=shared)(inspect)


def inspect(run: Run, path: Path_, key: ScoreKeys = [], fail_under: FailUnder = None) -> int:  # noqa: B006
    """Show files, row groups, partitions, overlap and statistics of a dataset, and score them from 0 to 100."""
    from fsspeckit.report.layout import analyse, load_all_statistics
    from fsspeckit.report.score import score
    from fsspeckit.report.text import render

    place = run.place(path)
    snapshot = load_all_statistics(place)
    layout = analyse(snapshot, place.path, place.journal.status())
    _check_keys(key, tuple(layout.schema))
    found = score(snapshot, layout, key)
    run.say(
        layout.to_dict() | {"score": found.value, "findings": [asdict(f) for f in found.findings]},
        render(layout, found),
    )
    if fail_under is None or found.value >= fail_under:
        return 0
    worst = max(found.findings, key=lambda finding: finding.points)
    typer.echo(f"error: the score is {found.value}, under {fail_under}\nto do: {worst.command}", err=True)
    return FAILED


def _check_keys(keys: list[str], columns: tuple[str, ...]) -> None:
    unknown = [name for name in keys if name not in columns]
    if unknown:
        raise usage(f"the dataset has no column {unknown[0]!r}", f"choose among {', '.join(columns)}")

"""The command `recover`: finish or undo the commits of crashed writers."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import Dataset, DryRun
from fsspeckit.common.text import counted


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "recover", example="fsspeckit recover lake/orders", without=("engine",))(recover)


def recover(run: Run, path: Dataset, dry_run: DryRun = False) -> int:
    """Finish or undo the commits of crashed writers. Every command that writes does this automatically.

    On an object store, writers at work are treated as crashed: they get a conflict, and repeat their operation.
    """
    from fsspeckit.core.operations import read

    place = run.place(path)
    status = place.journal.status(end_writers=True)
    if status.sidecar is None:
        read.existing_view(place)
    if dry_run:
        place.journal.view_to_change(may_be_lost=True)
        finish, remove = [status.pending] if status.pending is not None else [], list(status.dead)
        verbs = ("would finish", "would remove")
    else:
        with run.bars():
            done = read.recover(place)
        finish, remove = list(done.replayed), list(done.removed)
        verbs = ("finished", "removed")
    stagings = counted(len(remove), "abandoned staging folder")
    text = f"{verbs[0]} {counted(len(finish), 'commit')}, {verbs[1]} {stagings}"
    facts = {"operation": "recover", "path": place.path, "replayed": finish, "removed": remove, "dry_run": dry_run}
    run.say(facts, text if finish or remove else "Nothing to recover.")
    return 0 if finish or remove else run.noop_exit_code

"""The command `changes`: the rows that commits inserted, updated and deleted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import check_target
from fsspeckit.cli.options import Dataset

_EXAMPLE = """
fsspeckit changes lake/orders --since 12 --key id
fsspeckit changes lake/orders --since 12 --until 14 --output changes.parquet
"""
Since = Annotated[int, typer.Option("--since", metavar="N", min=0, help="Version, as `history` lists it.")]
Until = Annotated[int | None, typer.Option("--until", metavar="N", min=0, help="Last version; default: the newest.")]
FeedKeys = Annotated[
    list[str],
    typer.Option("--key", metavar="COLUMN", help="Column that identifies a row; repeatable."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Print at most N rows.")]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write all rows to a Parquet file.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "changes", example=_EXAMPLE, without=("engine",))(changes)


def changes(
    run: Run,
    path: Dataset,
    since: Since,
    until: Until = None,
    key: FeedKeys = [],  # noqa: B006 - read by typer, never changed
    limit: Limit = 20,
    output: Output = None,
) -> int:
    """Show the rows that commits after a version inserted, updated and deleted."""
    from fsspeckit.api import dataset_io
    from fsspeckit.core.result_view import columns

    check_target(output, "--output")
    place = run.place(path)
    with run.bars():
        feed = dataset_io("pyarrow", storage_options=run.options()).changes(
            path, since=since, until=until, key_columns=key or None
        )
    counts = Counter(feed["_change_type"].to_pylist())
    rows = feed.slice(0, limit).to_pylist()
    text = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "no changes"
    if rows:
        text += "\n\n" + columns([feed.column_names, *([str(value) for value in row.values()] for row in rows)])
    if output is not None:
        import pyarrow.parquet as pq

        pq.write_table(feed, output)
        text += f"\n\nwritten to {output}"
    facts = {"operation": "changes", "path": place.path, "since": since, "until": until}
    run.say(facts | {"counts": dict(counts), "rows": rows}, text)
    return 0 if feed.num_rows else run.noop_exit_code

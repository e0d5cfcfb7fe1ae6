"""The command `inspect`: the layout of a dataset from its footers, its score, and how to improve it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import CommandError, check_target, show, usage
from fsspeckit.cli.options import Dataset
from fsspeckit.common.text import printable

if TYPE_CHECKING:
    from fsspeckit.core.dataset.place import Place

ScoreKeys = Annotated[
    list[str], typer.Option("--key", metavar="COLUMN", help="Column that readers search by; repeatable.")
]
FailUnder = Annotated[
    int | None, typer.Option("--fail-under", metavar="N", min=0, max=100, help="Exit with 1 if the score is lower.")
]


Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as an HTML page.")]
Compare = Annotated[
    Path | None, typer.Option("--compare", metavar="BEFORE", help="Earlier --json output to compare with.")
]
RebuildIndex = Annotated[
    bool, typer.Option("--rebuild-index", help="First read all footers again and replace the footer index.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    shared = ("engine", "noop_exit_code")
    example = "fsspeckit inspect lake/orders --html report.html --fail-under 50"
    command(app, "inspect", example=example, without=shared)(inspect)


def inspect(
    run: Run,
    path: Dataset,
    key: ScoreKeys = [],  # noqa: B006 - read by typer, never changed
    html: Html = None,
    compare: Compare = None,
    fail_under: FailUnder = None,
    rebuild_index: RebuildIndex = False,
) -> int:
    """Show files, row groups, partitions, overlap and statistics of a dataset, and score them from 0 to 100."""
    from fsspeckit.report.document import comparison, read_document
    from fsspeckit.report.inspection import inspect_layout
    from fsspeckit.report.text import render, render_comparison

    check_target(html, "--html")
    before = _before(compare, read_document)
    place = run.place(path)
    if rebuild_index:
        _rebuild(run, place)
    with run.bars() as progress:
        report, layout, found = inspect_layout(place, key, progress)
    text = render(layout, found)
    changed = comparison(before, report) if before is not None else []
    if html is not None:
        from fsspeckit.report.page import render_page

        html.write_text(render_page(report, before), "utf-8")
        text += f"\n\nwritten to {printable(str(html))}"
    if before is not None:
        report["compared"] = {name: {"before": old, "after": new} for name, old, new in changed}
        text += "\n\n" + render_comparison(changed)
    run.say(report, text)
    if fail_under is None or found.value >= fail_under:
        return 0
    remedy = next((finding.command for finding in found.findings if finding.command), "")
    return show(CommandError(f"the score is {found.value}, under {fail_under}", remedy), run.words, debug=False)


def _rebuild(run: Run, place: Place) -> None:
    from fsspeckit.core.operations.index import rebuild_index

    with run.bars() as progress:
        rebuild_index(place, progress)


def _before(compare: Path | None, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return read(compare) if compare is not None else None
    except OSError as error:
        raise usage(f"cannot read {compare}: {error.strerror}", "check --compare") from error

"""The commands `plan OPERATION`: what `fsspeckit apply` does later, written to a file.

The file holds the plan, the state of every file of the dataset and of the source, and the options. It never holds
storage options, which may be secret: `apply` is given them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.merge import is_noop
from fsspeckit.cli.commands.update import update_options
from fsspeckit.cli.errors import check_target, usage
from fsspeckit.cli.options import OPERATIONS, Dataset, Dest, Feed, Options, Src
from fsspeckit.cli.plan_files import SavedPlan, SavedSource, document_of, state_of
from fsspeckit.cli.sources import STDIN, Source
from fsspeckit.common.text import printable

_MERGE = "fsspeckit plan merge updates.csv lake/orders --key id -o plan.json --engine pyarrow"
_APPLY_CHANGES = """
fsspeckit plan apply-changes feed.csv lake/customers --key id --sequence-by lsn --delete-when "op = 'd'" \\
    --except-columns op -o plan.json --engine pyarrow
"""
_DELETE = 'fsspeckit plan delete lake/orders --where "id = 7" -o plan.json --engine pyarrow'
_UPDATE = 'fsspeckit plan update lake/orders --set "amount=amount * 2" --where "id = 7" -o plan.json --engine pyarrow'
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write the plan to.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(name="plan", help="Save the plan of an operation.", no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group)
    for operation, example, function in (
        ("merge", _MERGE, plan_merge),
        ("apply_changes", _APPLY_CHANGES, plan_apply_changes),
        ("delete", _DELETE, plan_delete),
        ("update", _UPDATE, plan_update),
    ):
        name = operation.replace("_", "-")
        command(group, name, example=example, options=OPERATIONS[operation])(function)


def plan_merge(
    run: Run,
    src: Src,
    dest: Dest,
    options: Options,
    reading: Options,
    output: Output = None,
) -> int:
    """Plan a merge of SRC into DEST exactly, file by file, and save the plan for `fsspeckit apply`."""
    source = _source(run, src, reading)
    return _plan(run, "merge", dest, options, output, source)


def plan_apply_changes(
    run: Run,
    feed: Feed,
    path: Dataset,
    options: Options,
    reading: Options,
    output: Output = None,
) -> int:
    """Plan the changes of FEED to PATH exactly, file by file, and save the plan for `fsspeckit apply`."""
    source = _source(run, feed, reading)
    return _plan(run, "apply_changes", path, options, output, source)


def plan_delete(run: Run, path: Dataset, options: Options, output: Output = None) -> int:
    """Plan a delete exactly, file by file, and save the plan for `fsspeckit apply`."""
    return _plan(run, "delete", path, options, output)


def plan_update(run: Run, path: Dataset, options: Options, output: Output = None) -> int:
    """Plan an update exactly, file by file, and save the plan for `fsspeckit apply`."""
    return _plan(run, "update", path, update_options(options), output)


def _source(run: Run, path: str, reading: Options) -> Source:
    if path == STDIN:
        raise usage("standard input cannot be read again by `fsspeckit apply`", "put the rows into a file first")
    return Source.of(run, _absolute(path), **reading)


def _plan(
    run: Run, operation: str, path: str, options: Options, output: Path | None, source: Source | None = None
) -> int:
    check_target(output, "--output")
    dest, rows, saved = _absolute(path), list[Any](), None
    if source is not None:
        reading = (source.delimiter, source.encoding, source.schema, source.cast)
        saved = SavedSource(source.path, source.format, *reading, state_of(source))
        rows = [source.rows()]
    with run.bars() as progress:
        plan = getattr(run.io(), operation)(*rows, dest, dry_run=True, progress=progress, **options)
    document = document_of(SavedPlan(operation, run.chosen_engine(), dest, saved, options, plan))
    if output is not None:
        output.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    run.say(document, f"{plan}\n" + (f"written to {printable(str(output))}" if output is not None else ""))
    return run.noop_exit_code if is_noop(plan) else 0


def _absolute(path: str) -> str:
    """Return a path that does not depend on the working folder."""
    return path if "://" in path or "::" in path else str(Path(path).expanduser().absolute())

"""The commands `plan` and `apply`: a merge that is looked at first, and then done to the letter or not at all.

The file holds the plan, the state of every file of the dataset and of the source, and the options. It never holds
storage options, which may be secret: `apply` is given them again.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.merge import is_noop, merge_options
from fsspeckit.cli.confirm import ask
from fsspeckit.cli.errors import check_target, usage
from fsspeckit.cli.options import (
    Compression,
    Delimiter,
    Dest,
    Duplicates,
    Encoding,
    Evolution,
    Format,
    Keys,
    MaxRows,
    Memory,
    NullsInKeys,
    OrderBy,
    PartitionBy,
    RowGroup,
    Src,
    Strategy,
    Yes,
)
from fsspeckit.cli.plan_files import FORMAT, counts_of, read_plan, totals_of
from fsspeckit.cli.sources import STDIN, Source
from fsspeckit.common.text import printable

if TYPE_CHECKING:
    from fsspeckit.core.results import MergePlan

Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the plan is written.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `fsspeckit plan` wrote.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(
        name="plan", help="Write down what an operation would do.", no_args_is_help=True, rich_markup_mode=None
    )
    app.add_typer(group)
    command(
        group,
        "merge",
        example="fsspeckit plan merge updates.csv lake/orders --key id -o plan.json --engine pyarrow",
    )(plan_merge)
    command(app, "apply", example="fsspeckit apply plan.json")(apply)


def plan_merge(
    run: Run,
    src: Src,
    dest: Dest,
    key: Keys,
    strategy: Strategy = "upsert",
    partition_by: PartitionBy = [],  # noqa: B006 - read by typer, never changed
    order_by: OrderBy = [],  # noqa: B006
    on_duplicate_source: Duplicates = "error",
    null_keys: NullsInKeys = "error",
    schema_mode: Evolution = "strict",
    format_: Format = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    compression: Compression = None,
    max_rows_per_file: MaxRows = 5_000_000,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    output: Output = None,
) -> int:
    """Plan a merge of SRC into DEST exactly, file by file, and write the plan down for `fsspeckit apply`."""
    if src == STDIN:
        raise usage("standard input cannot be read again by `fsspeckit apply`", "put the rows into a file first")
    check_target(output, "--output")
    source = Source.of(run, _absolute(src), format_, delimiter, encoding)
    options = merge_options(locals())
    files = source.files()
    with run.bars() as progress:
        plan = run.io().merge(source.rows(), _absolute(dest), dry_run=True, progress=progress, **options)
    document = _document(run, source, files, _absolute(dest), options, cast("MergePlan", plan))
    if output is not None:
        output.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    run.say(document, f"{plan}\n" + (f"written to {printable(str(output))}" if output is not None else ""))
    return run.noop_exit_code if is_noop(plan) else 0


def _document(
    run: Run, source: Source, files: list[dict[str, Any]], dest: str, options: dict[str, Any], plan: MergePlan
) -> dict[str, Any]:
    from fsspeckit.common.text import scrub

    return {
        "fsspeckit_plan": FORMAT,
        "command": "merge",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine": run.chosen_engine(),
        "dest": scrub(dest),
        "source": {
            "path": scrub(source.path),
            "format": source.format,
            "delimiter": source.delimiter,
            "encoding": source.encoding,
            "files": [file | {"path": scrub(file["path"])} for file in files],
        },
        "options": options,
        "counts": counts_of(plan),
        "totals": totals_of(plan),
        "plan": plan.to_dict(),
    }


def apply(run: Run, plan_file: PlanFile, yes: Yes = False) -> int:
    """Do what a plan says, to the letter; refuse with exit code 3 where the dataset or the source has changed since."""
    saved = read_plan(plan_file)
    plan = saved.plan
    source = Source(
        saved.source.path, saved.source.format, saved.source.delimiter, saved.source.encoding, run.options()
    )
    rows = source.rows_for(run.place(saved.dest))
    _check_source(source, saved.source.files)
    if plan.target_count_before and not plan.total:
        ask(run, f"the plan deletes all {plan.target_count_before:,} rows of {saved.dest}", yes=yes)
    with run.bars() as progress:
        io = run.io(saved.engine)
        result = io.merge(rows, saved.dest, progress=progress, plan=plan, **saved.options)
    return run.finish(result, noop=is_noop(result))


def _check_source(source: Source, saved: list[dict[str, Any]]) -> None:
    from fsspeckit.common.errors import CommitConflictError
    from fsspeckit.common.text import scrub

    now = [file | {"path": scrub(file["path"])} for file in source.files()]
    if now != saved:
        raise CommitConflictError(f"the source {source.path} has changed since the plan was made; make a new plan")


def _absolute(path: str) -> str:
    """A path that means the same from every folder."""
    return path if "://" in path or "::" in path else str(Path(path).expanduser().absolute())

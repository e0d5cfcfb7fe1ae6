"""The commands `plan merge`, `plan delete` and `plan update`: what `fsspeckit apply` does later, written to a file.

The file holds the plan, the state of every file of the dataset and of the source, and the options. It never holds
storage options, which may be secret: `apply` is given them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.delete import delete_options
from fsspeckit.cli.commands.merge import is_noop, merge_options
from fsspeckit.cli.commands.update import update_options
from fsspeckit.cli.errors import check_target, usage
from fsspeckit.cli.options import (
    Assignments,
    Compression,
    Dataset,
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
    Where,
)
from fsspeckit.cli.plan_files import SavedPlan, SavedSource, document_of, state_of
from fsspeckit.cli.sources import STDIN, Source
from fsspeckit.common.text import printable

_UPDATE = """
fsspeckit plan update lake/orders --set "amount=amount * 2" --where "id = 7" -o plan.json --engine pyarrow
"""
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write the plan to.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(name="plan", help="Save the plan of an operation.", no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group)
    for name, example, function in (
        ("merge", "fsspeckit plan merge updates.csv lake/orders --key id -o plan.json --engine pyarrow", plan_merge),
        ("delete", 'fsspeckit plan delete lake/orders --where "id = 7" -o plan.json --engine pyarrow', plan_delete),
        ("update", _UPDATE, plan_update),
    ):
        command(group, name, example=example)(function)


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
    """Plan a merge of SRC into DEST exactly, file by file, and save the plan for `fsspeckit apply`."""
    if src == STDIN:
        raise usage("standard input cannot be read again by `fsspeckit apply`", "put the rows into a file first")
    check_target(output, "--output")
    source = Source.of(run, _absolute(src), format_, delimiter, encoding)
    options = merge_options(locals())
    saved = SavedSource(source.path, source.format, source.delimiter, source.encoding, state_of(source))
    with run.bars() as progress:
        plan = run.io().merge(source.rows(), _absolute(dest), dry_run=True, progress=progress, **options)
    return _finish(run, _absolute(dest), options, plan, output, saved)


def plan_delete(
    run: Run,
    path: Dataset,
    where: Where,
    compression: Compression = None,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    output: Output = None,
) -> int:
    """Plan a delete exactly, file by file, and save the plan for `fsspeckit apply`."""
    check_target(output, "--output")
    options = delete_options(locals())
    with run.bars() as progress:
        plan = run.io().delete(_absolute(path), dry_run=True, progress=progress, **options)
    return _finish(run, _absolute(path), options, plan, output)


def plan_update(
    run: Run,
    path: Dataset,
    set_: Assignments,
    where: Where,
    compression: Compression = None,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    output: Output = None,
) -> int:
    """Plan an update exactly, file by file, and save the plan for `fsspeckit apply`."""
    check_target(output, "--output")
    options = update_options(locals())
    with run.bars() as progress:
        plan = run.io().update(_absolute(path), dry_run=True, progress=progress, **options)
    return _finish(run, _absolute(path), options, plan, output)


def _finish(
    run: Run, dest: str, options: dict[str, Any], plan: Any, output: Path | None, source: SavedSource | None = None
) -> int:
    document = document_of(SavedPlan(run.chosen_engine(), dest, source, options, plan))
    if output is not None:
        output.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    run.say(document, f"{plan}\n" + (f"written to {printable(str(output))}" if output is not None else ""))
    return run.noop_exit_code if is_noop(plan) else 0


def _absolute(path: str) -> str:
    """Return a path that does not depend on the working folder."""
    return path if "://" in path or "::" in path else str(Path(path).expanduser().absolute())

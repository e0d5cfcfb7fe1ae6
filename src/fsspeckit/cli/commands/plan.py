"""The commands `plan OPERATION`: what `fsspeckit apply` does later, written to a file.

The file holds the plan, the state of every file of the dataset and of the source, and the options. It never holds
storage options, which may be secret: `apply` is given them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.update import update_options
from fsspeckit.cli.errors import check_target, usage
from fsspeckit.cli.operations import call_operation, engine_of, is_noop, operation_io
from fsspeckit.cli.options import (
    OPERATIONS,
    ROW_OPERATIONS,
    WITHOUT_ENGINE,
    Dataset,
    Dest,
    Diff,
    Feed,
    Options,
    OptionTable,
    Src,
)
from fsspeckit.cli.plan_files import (
    DryRun,
    SavedPlan,
    SavedSource,
    document_of,
    facts_of,
    state_of,
    state_of_dataset,
)
from fsspeckit.cli.sources import STDIN, Source
from fsspeckit.common.text import printable

if TYPE_CHECKING:
    from fsspeckit.core.operations.row_sample import RowSample

_MERGE = "fsspeckit plan merge updates.csv lake/orders --key id -o plan.json --engine pyarrow"
_APPLY_CHANGES = """
fsspeckit plan apply-changes feed.csv lake/customers --key id --sequence-by lsn --delete-when "op = 'd'" \\
    --except-columns op -o plan.json --engine pyarrow
"""
_DELETE = 'fsspeckit plan delete lake/orders --where "id = 7" --diff -o plan.json --engine pyarrow'
_UPDATE = 'fsspeckit plan update lake/orders --set "amount=amount * 2" --where "id = 7" -o plan.json --engine pyarrow'
_WRITE = "fsspeckit plan write orders.csv lake/orders --mode overwrite --diff -o plan.json --engine pyarrow"
_COMPACT = "fsspeckit plan compact lake/orders --target-mb 128 -o plan.json --engine pyarrow"
_OPTIMIZE = "fsspeckit plan optimize lake/orders --by id -o plan.json --engine pyarrow"
_DEDUPLICATE = "fsspeckit plan deduplicate lake/orders --key id --diff-html review.html -o plan.json --engine pyarrow"
_VACUUM = "fsspeckit plan vacuum lake/orders --older-than 3d -o plan.json"
_RESTORE = "fsspeckit plan restore lake/orders --version 12 --diff -o plan.json --engine pyarrow"
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write the plan to.")]
_OUTPUT: OptionTable = {"output": (Output, None)}
_DIFF: OptionTable = {
    "diff": (Diff, False),
    "diff_html": (
        Annotated[
            Path | None, typer.Option("--diff-html", metavar="FILE", help="Write plan and sample rows as an HTML page.")
        ],
        None,
    ),
    **_OUTPUT,
}


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(name="plan", help="Save the plan of an operation.", no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group)
    for operation, example, function in (
        ("merge", _MERGE, plan_merge),
        ("apply_changes", _APPLY_CHANGES, plan_apply_changes),
        ("write", _WRITE, plan_write),
        ("delete", _DELETE, plan_delete),
        ("update", _UPDATE, plan_update),
        ("compact", _COMPACT, plan_compact),
        ("optimize", _OPTIMIZE, plan_optimize),
        ("deduplicate", _DEDUPLICATE, plan_deduplicate),
        ("restore", _RESTORE, plan_restore),
        ("vacuum", _VACUUM, plan_vacuum),
    ):
        name, without = operation.replace("_", "-"), ("engine",) if operation in WITHOUT_ENGINE else ()
        options = {**OPERATIONS[operation], **(_OUTPUT if operation in WITHOUT_ENGINE else _DIFF)}
        command(group, name, example=example, options=options, without=without)(function)


def plan_merge(run: Run, src: Src, dest: Dest, options: Options, reading: Options) -> int:
    """Plan a merge of SRC into DEST exactly, file by file, and save the plan for `fsspeckit apply`."""
    return _plan(run, "merge", dest, options, _source(run, src, reading))


def plan_apply_changes(run: Run, feed: Feed, path: Dataset, options: Options, reading: Options) -> int:
    """Plan the changes of FEED to PATH exactly, file by file, and save the plan for `fsspeckit apply`."""
    return _plan(run, "apply_changes", path, options, _source(run, feed, reading))


def plan_write(run: Run, src: Src, dest: Dest, options: Options, reading: Options) -> int:
    """Plan a write of SRC to DEST, and save the plan for `fsspeckit apply`."""
    return _plan(run, "write", dest, options, _source(run, src, reading))


def plan_delete(run: Run, path: Dataset, options: Options) -> int:
    """Plan a delete exactly, file by file, and save the plan for `fsspeckit apply`."""
    return _plan(run, "delete", path, options)


def plan_update(run: Run, path: Dataset, options: Options) -> int:
    """Plan an update exactly, file by file, and save the plan for `fsspeckit apply`."""
    return _plan(run, "update", path, update_options(options))


def plan_compact(run: Run, path: Dataset, options: Options) -> int:
    """Plan which small files are joined, and save the plan for `fsspeckit apply`."""
    from fsspeckit.api import compact_options

    return _plan(run, "compact", path, compact_options(options))


def plan_optimize(run: Run, path: Dataset, options: Options) -> int:
    """Plan which files are sorted, and save the plan for `fsspeckit apply`."""
    return _plan(run, "optimize", path, options)


def plan_deduplicate(run: Run, path: Dataset, options: Options) -> int:
    """Plan which rows are removed so that one row per key is left, and save the plan for `fsspeckit apply`."""
    return _plan(run, "deduplicate", path, options)


def plan_restore(run: Run, path: Dataset, options: Options) -> int:
    """Plan which files of a kept version come back, and save the plan for `fsspeckit apply`."""
    return _plan(run, "restore", path, options)


def plan_vacuum(run: Run, path: Dataset, options: Options) -> int:
    """Plan which kept files of old versions are removed, and save the plan for `fsspeckit apply`."""
    return _plan(run, "vacuum", path, options)


def _source(run: Run, path: str, reading: Options) -> Source:
    if path == STDIN:
        raise usage("standard input cannot be read again by `fsspeckit apply`", "put the rows into a file first")
    return Source.of(run, _absolute(path), **reading)


def _plan(run: Run, operation: str, path: str, given: Options, source: Source | None = None) -> int:
    output, page = given.pop("output", None), given.pop("diff_html", None)
    shows_rows = given.pop("diff", False) or page is not None
    check_target(output, "--output")
    check_target(page, "--diff-html")
    dest, rows, saved = _absolute(path), list[Any](), None
    if source is not None:
        saved = SavedSource(source.path, source.format, **source.reading, files=state_of(source))
        rows = [source.rows()]
    io, place = operation_io(run, operation), run.place(dest)
    if "key_columns" in OPERATIONS[operation] and "key_columns" not in given:
        from fsspeckit.datasets.arguments import keys_for

        given["key_columns"] = list(keys_for(place, None))
    with run.bars() as progress:
        state = "" if operation in ROW_OPERATIONS else state_of_dataset(place.journal.view())
        plan = call_operation(io, operation, (*rows, dest), progress, dry_run=True, **given)
        sample = None
        if shows_rows:
            from fsspeckit.cli.diff import RowSampler, sample_rows

            sampler = RowSampler(place.storage, operation, given.get("key_columns", ()))
            sample = sample_rows(
                io, sampler, lambda bound: call_operation(bound, operation, (*rows, dest), progress, **given)
            )
    kept = plan if operation in ROW_OPERATIONS else DryRun(state, facts_of(plan))
    document = document_of(SavedPlan(operation, engine_of(run, operation), dest, saved, given, kept))
    if output is not None:
        output.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    shown = _shown(plan, sample, page, output, _title(operation, path, given))
    run.say(document if sample is None else document | {"sample": sample.as_json()}, shown)
    return run.noop_exit_code if is_noop(plan) else 0


def _title(operation: str, path: str, given: Options) -> str:
    """Return what is planned, with the values and the condition of an update or delete."""
    sets = ", ".join(f"{name} = {value}" for name, value in (given.get("set") or {}).items())
    where = given.get("where")
    ends = (f" set {sets}" if sets else "", "" if where is None else f" where {where}")
    return f"{operation.replace('_', '-')} {path}{''.join(ends)}"


def _shown(plan: Any, sample: RowSample | None, page: Path | None, output: Path | None, title: str) -> str:
    """Return the text of a plan; write the page of its rows."""
    parts = [str(plan)]
    if sample is not None:
        from fsspeckit.report.change_page import render_change_page, render_sample

        parts.append(render_sample(sample))
        if page is not None:
            page.write_text(render_change_page(plan, sample, f"Plan: {title}"), "utf-8")
    parts += [f"written to {printable(str(path))}" for path in (output, page) if path is not None]
    return "\n".join(parts)


def _absolute(path: str) -> str:
    """Return a path that does not depend on the working folder."""
    return path if "://" in path or "::" in path else str(Path(path).expanduser().absolute())

"""The command `run`: run a pipeline file and print one document with a record for each step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.errors import describe, show, usage
from fsspeckit.cli.settings import split_pairs
from fsspeckit.common.text import counted

if TYPE_CHECKING:
    from fsspeckit.pipeline import Pipeline

File = Annotated[Path | None, typer.Argument(metavar="FILE", help="Pipeline file in TOML.")]
Var = Annotated[list[str], typer.Option("--var", metavar="K=V", help="Variable of the file; repeatable.")]
Key = Annotated[
    str | None,
    typer.Option("--idempotency-key", metavar="KEY", help="Key of the run; steps committed with it are skipped."),
]
Master = Annotated[str | None, typer.Option("--master", help="Spark master; default: local.")]
SparkConf = Annotated[list[str], typer.Option("--spark-conf", metavar="K=V", help="Spark setting; repeatable.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Allow what can run code or read elsewhere: python, jdbc, jars, other tables.")
]
Reload = Annotated[
    bool,
    typer.Option("--reload", help="Load from the beginning into datasets that were removed or written anew."),
]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON schema of pipeline files and exit.")]
Check = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Resolve all columns on Spark and show what each step would do.")
]
Chosen = Annotated[
    list[str],
    typer.Option(
        "--select",
        metavar="STEP",
        help="Run only this step; STEP+ also those after it, +STEP those before.",
    ),
]
Lineage = Annotated[
    str | None,
    typer.Option("--lineage", metavar="TARGET", help="Send OpenLineage events to a URL, or append them to a file."),
]
Graph = Annotated[
    Literal["mermaid", "svg"] | None, typer.Option("--graph", help="Print the graph of the steps and exit.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    shared = ("engine", "storage_option", "config")
    command(app, "run", example="fsspeckit run pipeline.toml --var day=monday --dry-run", without=shared)(run_pipeline)


def run_pipeline(
    run: Run,
    file: File = None,
    var: Var = [],  # noqa: B006 - read by typer, never changed
    idempotency_key: Key = None,
    master: Master = None,
    spark_conf: SparkConf = [],  # noqa: B006
    trust: Trust = False,
    select: Chosen = [],  # noqa: B006
    reload: Reload = False,
    lineage: Lineage = None,
    graph: Graph = None,
    schema: Schema = False,
    dry_run: Check = False,
) -> int:
    """Run the steps of a pipeline file on Spark. A run with the same key continues where the last one stopped."""
    from fsspeckit.common.errors import VersionNotFoundError
    from fsspeckit.pipeline import LineageListener, Pipeline, StepFailedError
    from fsspeckit.pipeline.wording import as_keys

    if schema:
        document = Pipeline.json_schema()
        run.say(document, json.dumps(document, indent=2))
        return 0
    pipeline = _load(file, var, trust=trust)
    conf = dict(split_pairs(spark_conf, "--spark-conf"))
    if graph is not None:
        drawn = pipeline.graph(graph)
        run.say({"format": graph, "graph": drawn}, drawn)
        return 0
    listeners = [] if lineage is None else [LineageListener(lineage)]
    try:
        if dry_run:
            key = idempotency_key
            return run.finish(
                pipeline.preview(idempotency_key=key, master=master, conf=conf, select=select, reload=reload)
            )
        with run.bars() as progress:
            result = pipeline.run(
                idempotency_key=idempotency_key,
                master=master,
                conf=conf,
                progress=progress,
                select=select,
                reload=reload,
                listeners=listeners,
            )
    except StepFailedError as error:
        cause, step = error.__cause__ or error, next((each for each in pipeline.order if each.name == error.step), None)
        if isinstance(cause, VersionNotFoundError):
            cause.wrong_call = False  # the run has read up to a version that is no longer kept
        run.say(error.result.to_dict() | {"exit_code": describe(cause, run.words)[2]}, str(error.result))
        where = f"step {error.step!r}" if error.step else ""
        return show(cause, lambda text: as_keys(text, step), debug=run.debug, where=where)
    changed = any(step.status == "done" and step.commit_seq is not None for step in result.steps)
    run.say(result.to_dict(), str(result))
    return 0 if changed else run.noop_exit_code


def _load(file: Path | None, var: Sequence[str], *, trust: bool) -> Pipeline:
    from fsspeckit.pipeline import Pipeline, PipelineFileError

    if file is None:
        raise usage("FILE is missing", "name a pipeline file, or ask for --schema")
    try:
        return Pipeline.load(file, dict(split_pairs(var, "--var")), trust=trust)
    except PipelineFileError as error:
        first, more = error.problems[0], [problem.key for problem in error.problems[1:]]
        also = f" (and {counted(len(more), 'more mistake')}, at {', '.join(more)})" if more else ""
        key = f"{first.key}: " if first.key else ""
        raise usage(f"{file}: {key}{first.what}{also}", first.remedy) from error

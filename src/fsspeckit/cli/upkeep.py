"""The commands that keep a dataset in shape: `compact`, `optimize`, `dedupe` and `recover`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fsspeckit.cli.changes import Compression, DryRun, Keys, NullKeys, OrderBy, RowGroup
from fsspeckit.cli.run import Run, command

Path_ = Annotated[str, typer.Argument(metavar="PATH", help="The dataset's folder or URL.")]
TargetMb = Annotated[float | None, typer.Option("--target-mb", help="Wanted size of a file in MB.")]
TargetRows = Annotated[int | None, typer.Option("--target-rows", help="Wanted rows of a file.")]
Partitions = Annotated[
    list[str],
    typer.Option("--partition", metavar="FOLDER", help="Only this folder, such as day=2026-03-01; repeatable."),
]
MaxFiles = Annotated[int | None, typer.Option("--max-files", help="Most files to rewrite in this run.")]
MaxBytes = Annotated[int | None, typer.Option("--max-bytes", help="Most bytes to rewrite in this run.")]
By = Annotated[list[str], typer.Option("--by", metavar="COLUMN", help="Column to order by; repeatable.")]
Curve = Annotated[Literal["linear", "zorder", "hilbert"], typer.Option("--curve", help="How columns make one order.")]
Bloom = Annotated[list[str], typer.Option("--bloom", metavar="COLUMN", help="Column that gets Bloom filters.")]
Force = Annotated[bool, typer.Option("--force", help="Rewrite files that are in this order already, too.")]
DedupeKeys = Annotated[list[str], typer.Option("--dedupe-key", metavar="COLUMN", help="Leave one row of each key.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    command(app, "compact", example="fsspeckit compact lake/orders --target-mb 128 --engine pyarrow")(compact)
    command(app, "optimize", example="fsspeckit optimize lake/orders --by id --engine pyarrow")(optimize)
    command(app, "dedupe", example="fsspeckit dedupe lake/orders --key id --dry-run --engine pyarrow")(dedupe)
    command(app, "recover", example="fsspeckit recover lake/orders", without=("engine",))(recover)


def compact(
    run: Run,
    path: Path_,
    target_mb: TargetMb = None,
    target_rows: TargetRows = None,
    partition: Partitions = [],  # noqa: B006 - read by typer, never changed
    compression: Compression = None,
    row_group_size: RowGroup = None,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    dry_run: DryRun = False,
) -> int:
    """Join small files of each partition into files of about the wanted size; 128 MB by default."""
    with run.bars() as progress:
        result = run.io().compact_parquet_dataset(
            path,
            128 if target_mb is None and target_rows is None else target_mb,
            target_rows,
            partition or None,
            compression,
            dry_run,
            row_group_size=row_group_size,
            max_files=max_files,
            max_bytes=max_bytes,
            progress=progress,
        )
    return run.finish(result, noop=not result.compacted_file_count)


def optimize(
    run: Run,
    path: Path_,
    by: By = [],  # noqa: B006
    curve: Curve = "linear",
    target_mb: TargetMb = None,
    target_rows: TargetRows = None,
    partition: Partitions = [],  # noqa: B006
    bloom: Bloom = [],  # noqa: B006
    dedupe_key: DedupeKeys = [],  # noqa: B006
    order_by: OrderBy = [],  # noqa: B006
    force: Force = False,
    compression: Compression = None,
    row_group_size: RowGroup = None,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    dry_run: DryRun = False,
) -> int:
    """Order the rows of each partition, so that readers can skip what they do not need."""
    with run.bars() as progress:
        result = run.io().optimize_parquet_dataset(
            path,
            by or None,
            target_mb,
            target_rows,
            partition or None,
            compression,
            dry_run,
            curve=curve,
            deduplicate_key_columns=dedupe_key or None,
            dedup_order_by=order_by or None,
            bloom_filter_columns=bloom or None,
            force=force,
            row_group_size=row_group_size,
            max_files=max_files,
            max_bytes=max_bytes,
            progress=progress,
        )
    return run.finish(result, noop=not result.compacted_file_count)


def dedupe(
    run: Run,
    path: Path_,
    key: Keys,
    order_by: OrderBy = [],  # noqa: B006
    partition: Partitions = [],  # noqa: B006
    null_keys: NullKeys = "error",
    compression: Compression = None,
    row_group_size: RowGroup = None,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    dry_run: DryRun = False,
) -> int:
    """Leave one row of each key, rewriting only files that lose rows."""
    with run.bars() as progress:
        result = run.io().deduplicate_parquet_dataset(
            path,
            key,
            order_by or None,
            partition or None,
            compression,
            dry_run,
            null_keys=null_keys,
            row_group_size=row_group_size,
            max_files=max_files,
            max_bytes=max_bytes,
            progress=progress,
        )
    return run.finish(result, noop=not result.compacted_file_count)


def recover(run: Run, path: Path_, dry_run: DryRun = False) -> int:
    """Finish or undo what a crashed writer left behind; every command that writes does this by itself."""
    from fsspeckit.core.operations.read import existing_view

    place = run.place(path)
    status = place.journal.status()
    if status.sidecar is None:
        existing_view(place)
    if dry_run:
        finish, remove = [status.pending] if status.pending is not None else [], list(status.dead)
        text = f"would finish {len(finish)} commits, would remove {len(remove)} abandoned stagings"
    else:
        with run.bars():
            done = place.journal.recover()
        finish, remove = list(done.replayed), list(done.removed)
        text = f"finished {len(finish)} commits, removed {len(remove)} abandoned stagings"
    facts = {"operation": "recover", "path": place.path, "replayed": finish, "removed": remove, "dry_run": dry_run}
    run.say(facts, text)
    return 0 if finish or remove else run.noop_exit_code

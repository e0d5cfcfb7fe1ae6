"""Build the maintenance command that a report recommends: as a request for the planner, and as text.

A dataset that `optimize` has sorted keeps its order and target size: they are in the sort notes of its files.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from fsspeckit.common.choices import Curve
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.planning.maintenance_request import CompactRequest, MaintenanceScope, OptimizeRequest
from fsspeckit.core.planning.output_sizes import DEFAULT_TARGET, Target
from fsspeckit.core.result_view import readable_bytes
from fsspeckit.report.layout import MB

Request = CompactRequest | OptimizeRequest


@dataclass(frozen=True, slots=True)
class Order:
    """The order of the rows of a dataset. The linear order of several columns helps readers of the first one."""

    curve: Curve
    columns: tuple[str, ...]

    @property
    def searched(self) -> tuple[str, ...]:
        """The columns in which files of this order overlap little."""
        return self.columns[:1] if self.curve == "linear" else self.columns


def noted_order(files: Sequence[DataFile], columns: Sequence[str]) -> Order | None:
    """Return the order in which `optimize` has sorted most of the rows, if there is one; ``columns`` are allowed."""
    rows: Counter[Order] = Counter()
    for file in files:
        note = file.sort_note
        curve = next((name for name in get_args(Curve) if note is not None and name == note.curve), None)
        if note is not None and curve is not None and note.columns and set(note.columns) <= set(columns):
            rows[Order(curve, note.columns)] += file.rows
    order, most = next(iter(rows.most_common(1)), (None, 0))
    return order if 2 * most > sum(file.rows for file in files) else None


def target_of(file: DataFile) -> Target | None:
    """Return the target size that a run of `optimize` or `compact` has noted in a file, or None."""
    if file.sort_note is None:
        return None
    size, rows = file.sort_note.target
    try:
        return Target.of(None if size is None else size / MB, rows) or None
    except ValueError:
        return None


def dataset_target(files: Sequence[DataFile]) -> Target:
    """Return the target size of most files that have a note of it, or 128 MB."""
    targets = Counter(target for file in files if (target := target_of(file)) is not None)
    return targets.most_common(1)[0][0] if targets else DEFAULT_TARGET


def target_text(target: Target) -> str:
    """Return a target size in words.

    Examples:
        >>> target_text(Target.of(4, 1000))
        '4.0 MB or 1,000 rows'
    """
    size = [readable_bytes(round(target.bytes))] if target.bytes is not None else []
    return " or ".join([*size, *([f"{target.rows:,} rows"] if target.rows is not None else [])])


def to_compact(target: Target) -> CompactRequest:
    """Return the request to join small files."""
    return CompactRequest(target, MaintenanceScope())


def to_optimize(order: Order, target: Target, row_group_size: int | None = None, *, force: bool) -> OptimizeRequest:
    """Return the request to sort; with ``force``, also what is sorted already."""
    scope = MaintenanceScope(options=WriteOptions(row_group_size=row_group_size))
    # Without a target, optimize keeps sorted files of any size.
    wanted = Target(None, None) if target == DEFAULT_TARGET else target
    return OptimizeRequest(order.columns, order.curve, wanted, scope, force=force)


def command_text(request: Request, path: str) -> str:
    """Return the command of a request, as it is typed in a shell.

    Examples:
        >>> command_text(to_optimize(Order("linear", ("order id",)), DEFAULT_TARGET, force=False), "lake")
        "fsspeckit optimize lake --by 'order id'"
    """
    words = ["fsspeckit", "compact" if isinstance(request, CompactRequest) else "optimize", path]
    if isinstance(request, OptimizeRequest):
        words += [word for name in request.columns or () for word in ("--by", name)]
        words += [] if request.curve == "linear" else ["--curve", request.curve]
    if request.target.bytes is not None:
        words += ["--target-mb", repr(request.target.bytes / MB).removesuffix(".0")]
    words += [] if request.target.rows is None else ["--target-rows", str(request.target.rows)]
    if isinstance(request, OptimizeRequest):
        size = request.scope.options.row_group_size
        words += ["--force"] if request.force else []
        words += [] if size is None else ["--row-group-size", str(size)]
    return shlex.join(words)

"""Check that a condition is true for all source rows, in batches and, on Spark, on executors."""

from __future__ import annotations

import pyarrow as pa

from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.types import common_type
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema
from fsspeckit.core.dataset.source import Source, TablePiece
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import constant_value
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.find_other_rows import FindOtherRows
from fsspeckit.core.progress import Reporter

_SHOWN = 5


def compared_schema(source: pa.Schema, snapshot: Snapshot) -> pa.Schema:
    """Return the columns of a dataset with types that hold its values and those of a source.

    A column that is only in the names of folders keeps its type. A dataset without files has the columns of the source.
    """
    if snapshot.schema is None:
        return source
    shared = {name for name in snapshot.schema.names if name in source.names}
    return pa.schema(
        field.with_type(_both(field.type, source.field(field.name).type)) if field.name in shared else field
        for field in full_schema(snapshot)
    )


def _both(target: pa.DataType, source: pa.DataType) -> pa.DataType:
    return common_type(target, source, evolve=True, checked=True) or target


def check_all_match(
    engine: Engine,
    source: Source,
    snapshot: Snapshot,
    condition: Expression,
    argument: str,
    reporter: Reporter,
    *,
    without: Expression | None = None,
) -> None:
    """Raise if a condition over the columns of a dataset is false or NULL for a source row.

    ``condition`` is compiled for the types of `compared_schema`. ``argument`` is its name in errors. Source rows for
    which ``without`` is true are not checked.

    Raises:
        ExpressionError: The message has the number of such rows and some of them.
    """
    schema = compared_schema(source.schema, snapshot)
    wanted = columns_of(condition)
    names = [name for name in schema.names if name in wanted]
    missing = [name for name in names if name not in source.schema.names]
    if missing:
        raise ExpressionError(f"{argument} reads {missing}, which the source lacks. Add the columns to the source.")
    others = [] if without is None else sorted(columns_of(without))
    if not names and not others:
        if without is not None and constant_value(without).value.as_py() is True:
            return
        with errors_name(argument):
            holds = not source.rows or constant_value(condition).value.as_py() is True
        if not holds:
            raise _others(source.rows, argument, [])
        return
    in_folders = [] if snapshot.schema is None else [name for name in names if name not in snapshot.schema.names]
    find = FindOtherRows(condition, pa.schema([schema.field(name) for name in names]), in_folders, without)
    pieces = source.pieces(list(dict.fromkeys((*names, *others))))
    on_done = reporter.stage("check source", len(pieces), rows=source.rows)
    is_here = len(pieces) < 2 and all(isinstance(piece, TablePiece) for piece in pieces)
    with errors_name(argument):
        found = [find(piece) for piece in pieces] if is_here else engine.map(find, pieces, on_done)
    count = sum(number for number, _ in found)
    if count:
        raise _others(count, argument, [row for _, rows in found for row in rows][:_SHOWN])


def _others(count: int, argument: str, examples: list[dict[str, object]]) -> ExpressionError:
    shown = f", such as {examples}" if examples else ""
    error = ExpressionError(
        f"{count:,} source row(s) are outside the condition {argument}{shown}. Nothing was changed. Filter the source "
        "by the condition."
    )
    error.wrong_call = False
    return error

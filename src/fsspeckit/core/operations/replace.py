"""The part of a write that removes the rows for which ``replace_where`` is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, full_schema
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import compile_condition, errors_name
from fsspeckit.core.model import RewriteTask, WriteOptions
from fsspeckit.core.operations.delete import removal_tasks
from fsspeckit.core.planning.conditions import MatchingRows, find_matching_rows
from fsspeckit.core.planning.source_conditions import check_all_match, compared_schema
from fsspeckit.core.progress import SILENT, Reporter


@dataclass(frozen=True, slots=True, eq=False)
class Removal:
    """Rows that a write removes: files to rewrite without them, files to delete, and their number.

    ``rows`` is ``None`` if no condition was given. ``depends_on`` returns whether other files have such rows.
    """

    rewrites: tuple[RewriteTask, ...] = ()
    deletes: tuple[str, ...] = ()
    rows: int | None = None
    depends_on: Callable[[Snapshot], bool] = lambda _: True


def remove_matching_rows(
    engine: Engine,
    place: Place,
    snapshot: Snapshot,
    source: Source,
    where: Any,
    options: WriteOptions,
    reporter: Reporter,
) -> Removal:
    """Plan the removal of the rows for which a condition is true. Without a condition, no row is removed.

    Raises:
        ExpressionError: The condition does not fit the columns, or is not true for all source rows.
    """
    if where is None:
        return Removal()
    schema = source.schema if snapshot.schema is None else full_schema(snapshot)
    with errors_name("replace_where"):
        condition = compile_condition(where, schema)
        for_source = compile_condition(where, compared_schema(source.schema, snapshot))
    check_one_dataset(snapshot)
    check_all_match(engine, source, snapshot, for_source, "replace_where", reporter)
    if not snapshot.files:
        return Removal(rows=0)

    def find(searched: Snapshot, reporter: Reporter) -> list[MatchingRows]:
        with errors_name("replace_where"):
            return find_matching_rows(engine, place.storage, searched, schema, condition, reporter)

    with vanished_file_is_conflict(place, "write"):
        rows = find(snapshot, reporter)
    rewrites, deletes = removal_tasks(rows, options)
    count = sum(match.count for match in rows)
    return Removal(rewrites, deletes, count, lambda added: any(match.count for match in find(added, SILENT)))

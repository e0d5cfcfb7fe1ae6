"""Conditions of a merge: which source rows delete, which matched rows are updated, which new rows are inserted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fsspeckit.common.errors import ColumnNameError, KeyColumnError
from fsspeckit.common.schema import field_remedy
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_columns import SourceColumns
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import compile_condition, errors_name
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.expressions.types import common_type, is_comparable, plain_type
from fsspeckit.core.kernels.exchange.stored_rows import StoredRows
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.kernels.read_values import ReadValues
from fsspeckit.core.kernels.row_rules import (
    SOURCE,
    TARGET,
    Failure,
    Mask,
    RowRules,
    SequenceColumn,
    row_places,
)
from fsspeckit.core.model import DataFile, Match, RowNumbers
from fsspeckit.core.planning.conditions import constants_of, find_matching_rows, store_matching_rows
from fsspeckit.core.planning.merge_request import MergeRequest
from fsspeckit.core.planning.source_conditions import check_all_match, compared_schema
from fsspeckit.core.progress import Reporter


@dataclass(frozen=True, slots=True, eq=False)
class MergeRules:
    """The compiled conditions of a merge; a condition that was not given is None.

    ``target`` has all columns of the dataset. ``source_scope`` is the scope over the columns of the source, in the
    types in which both sides are compared.
    """

    target: pa.Schema
    deletes: Expression | None = None
    updates: Expression | None = None
    inserts: Expression | None = None
    scope: Expression | None = None
    source_scope: Expression | None = None
    newer_by: str | None = None


def compile_rules(request: MergeRequest, source: pa.Schema, snapshot: Snapshot) -> MergeRules:
    """Compile the conditions of a merge against the columns of both sides."""
    target = full_schema(snapshot) if snapshot.schema is not None else source
    both = pa.schema([*_prefixed(SOURCE, source), *_prefixed(TARGET, target)])
    if request.newer_by is not None:
        _check_newer_by(request.newer_by, source, target)
    return MergeRules(
        target=target,
        deletes=_compiled("delete_when", request.delete_when, source),
        updates=_compiled("update_when", request.update_when, both, (SOURCE, TARGET)),
        inserts=_compiled("insert_when", request.insert_when, pa.schema(_prefixed(SOURCE, source)), (SOURCE,)),
        scope=_compiled("scope", request.scope, target),
        source_scope=_compiled("scope", request.scope, compared_schema(source, snapshot)),
        newer_by=request.newer_by,
    )


def _compiled(argument: str, text: str | None, schema: pa.Schema, tables: Sequence[str] = ()) -> Expression | None:
    if text is None:
        return None
    with errors_name(argument):
        return compile_condition(text, schema, tables=tables)


def _prefixed(table: str, schema: pa.Schema) -> list[pa.Field]:
    return [field.with_name(f"{table}.{field.name}") for field in schema]


def _check_newer_by(name: str, source: pa.Schema, target: pa.Schema) -> None:
    for schema, side in ((source, SOURCE), (target, TARGET)):
        if name not in schema.names:
            remedy = field_remedy([name], schema.names) or "Add it."
            raise ColumnNameError(f"the {side} does not have the column {name!r}, which orders changes. {remedy}")
        type_ = schema.field(name).type
        if not is_comparable(type_):
            raise KeyColumnError(
                f"the column {name!r} orders changes, and its type {type_} has no order. Name another."
            )


def row_rules(rules: MergeRules, source: pa.Schema, snapshot: Snapshot) -> RowRules:
    """Return the conditions as workers evaluate them; a scope is not among them."""
    read = [name for condition in (rules.updates, rules.inserts) for name in _names(condition)]
    mine = sorted({name.partition(".")[2] for name in read if name.startswith(f"{SOURCE}.")})
    theirs = {name.partition(".")[2] for name in read if name.startswith(f"{TARGET}.")}
    sequence = None
    if rules.newer_by is not None:
        theirs.add(rules.newer_by)
        sequence = _sequence(rules.newer_by, source, rules.target)
    target = pa.schema([field for field in rules.target if field.name in theirs])
    if snapshot.schema is None:
        target = pa.schema([])
    return RowRules(rules.deletes, rules.inserts, rules.updates, sequence, tuple(mine), target)


def _sequence(name: str, source: pa.Schema, target: pa.Schema) -> SequenceColumn:
    mine, theirs = plain_type(target.field(name).type), plain_type(source.field(name).type)
    return SequenceColumn(name, common_type(mine, theirs) or mine, mine)


def deleting_rows(rules: MergeRules, source: Source) -> Mask | None:
    """Return which source rows delete their key, or None where none can."""
    with errors_name("delete_when"):
        return None if rules.deletes is None else _holds(rules.deletes, source)


def _holds(condition: Expression, source: Source) -> Mask:
    chosen = sorted(columns_of(condition))
    if not chosen:
        return np.full(source.rows, bool(matching_rows(condition, pa.table({"": pa.nulls(1)}))[0]))
    return matching_rows(condition, source.columns(chosen))


@dataclass(frozen=True, slots=True, eq=False)
class RuleCheck:
    """Decides which matches change their target row, and which unmatched source rows are inserted.

    ``failures`` collects the conditions that cannot be computed, for `raise_first`.
    """

    engine: Engine
    place: Place
    snapshot: Snapshot
    source: SourceColumns
    rules: RowRules
    reporter: Reporter
    failures: list[Failure] = field(default_factory=list)

    def apply(self, matches: Sequence[tuple[int, DataFile, Match]], *, conditions: bool) -> list[tuple[Mask, int]]:
        """Return for each match which rows change, and how many are stale; ``conditions`` includes ``update_when``.

        ``matches`` have the numbers of the files.
        """
        rules = self.rules if conditions else self.rules.for_deletes()
        if not rules.compares or not matches:
            return [(np.ones(len(match.positions), dtype=bool), 0) for _, _, match in matches]
        items = [(file, match.positions) for _, file, match in matches]
        on_done = self.reporter.stage("compare", len(items))
        tables = self.engine.map(ReadValues(self.place.storage, rules.target), items, on_done)
        return [self._decide(rules, *match, table) for match, table in zip(matches, tables, strict=True)]

    def inserting(self, rows: RowNumbers) -> RowNumbers:
        """Return the unmatched source rows that are inserted."""
        if self.rules.inserts is None or not len(rows):
            return rows
        return rows[self.rules.inserting(self._source_values(self.rules, rows), row_places(0, rows), self.failures)]

    def _decide(self, rules: RowRules, number: int, file: DataFile, match: Match, stored: pa.Table) -> tuple[Mask, int]:
        source = self._source_values(rules, match.source_rows)
        constants = {name: each.value for name, each in constants_of(self.snapshot, file, rules.target).items()}
        target = pa.table(rules.with_constants(stored, constants, len(match.positions)))
        places = row_places(number, match.positions)
        newer = rules.newer(source, target, places, self.failures)
        return newer & rules.updating(source, target, places, self.failures), int(np.count_nonzero(~newer))

    def _source_values(self, rules: RowRules, rows: RowNumbers) -> pa.Table:
        """Return the columns that conditions read; a table without columns would have no rows."""
        names = rules.source_columns
        if not names:
            return pa.table({"": pa.nulls(len(rows))})
        table = self.source.take(rows, pa.schema([self.source.schema.field(name) for name in names]))
        return pa.table(dict(rules.source_values(table)))


def _names(expression: Expression | None) -> frozenset[str]:
    return frozenset() if expression is None else columns_of(expression)


def check_scope(engine: Engine, snapshot: Snapshot, source: Source, rules: MergeRules, reporter: Reporter) -> None:
    """Raise if a source row is outside the scope of a full merge.

    Source rows that delete their key may be outside: their other columns may be null.

    Raises:
        ExpressionError: A source row is outside the scope.
    """
    if rules.source_scope is not None:
        check_all_match(engine, source, snapshot, rules.source_scope, "scope", reporter, without=rules.deletes)


def rows_in_scope(
    engine: Engine, place: Place, snapshot: Snapshot, rules: MergeRules, reporter: Reporter
) -> list[RowNumbers] | None:
    """Return the rows of each file that a full merge may delete; None where it may delete all."""
    if rules.scope is None:
        return None
    with errors_name("scope"):
        found = find_matching_rows(engine, place.storage, snapshot, rules.target, rules.scope, reporter)
    return [match.positions for match in found]


def store_rows_in_scope(
    engine: Engine, place: Place, snapshot: Snapshot, rules: MergeRules, folder: TableFolder, reporter: Reporter
) -> list[StoredRows] | None:
    """Return the same rows as `rows_in_scope`, whose positions workers keep in a folder."""
    if rules.scope is None:
        return None
    with errors_name("scope"):
        return store_matching_rows(engine, place.storage, snapshot, rules.target, rules.scope, folder, reporter)

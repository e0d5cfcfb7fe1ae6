"""Find the rows of a dataset for which a condition is true: prove what can be proven, read only the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.partitions import typed_values
from fsspeckit.core.dataset.indexed_files import DataFiles
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import Engine, RowSelection
from fsspeckit.core.expressions.tree import Call, Column, Expression, InList, Literal, null_of, with_constants
from fsspeckit.core.expressions.types import plain_type
from fsspeckit.core.kernels.exchange.stored_rows import NO_STORED_ROWS, RowsToStore, StoredRows, StoreRows
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.kernels.find_rows import FindRows
from fsspeckit.core.model import NO_ROWS, DataFile, RowNumbers, Scan
from fsspeckit.core.parquet.footer_table import FooterTable, Numbers
from fsspeckit.core.parquet.reader import confirmed
from fsspeckit.core.planning.bloom import drop_by_bloom
from fsspeckit.core.planning.condition_proofs import Truth, possible_truths
from fsspeckit.core.planning.pruned_files import PrunedFiles, may_compare, may_have_keys, set_aside
from fsspeckit.core.planning.statistics import KeySet, Mask
from fsspeckit.core.progress import Reporter
from fsspeckit.core.storage import Storage, for_each

NO_ROW_MATCHES = "no row matches, by statistics"
"""The reason for a file that statistics exclude."""


@dataclass(frozen=True, slots=True, eq=False)
class MatchingRows:
    """The matching rows of a file, ascending, and how they were found; ``found`` is None if all rows match."""

    file: DataFile
    found: RowNumbers | None
    reason: str

    @property
    def count(self) -> int:
        """The number of matching rows."""
        return self.file.rows if self.found is None else len(self.found)

    @property
    def is_whole_file(self) -> bool:
        """Whether the file has rows and all of them match."""
        return 0 < self.file.rows == self.count

    @property
    def positions(self) -> RowNumbers:
        """The positions of the matching rows."""
        return np.arange(self.file.rows) if self.found is None else self.found


@dataclass(frozen=True, slots=True, eq=False)
class _Proof:
    """What is known before a file is read: row groups in which every row matches, and those that must be read."""

    file: DataFile
    condition: Expression
    matching: tuple[int, ...]
    unknown: tuple[int, ...]


def find_matching_rows(
    engine: Engine,
    storage: Storage,
    snapshot: Snapshot,
    schema: pa.Schema,
    condition: Expression,
    reporter: Reporter,
) -> list[MatchingRows]:
    """Return the matching rows of every file of a snapshot; ``schema`` has all columns with their types."""
    proofs = _proofs(storage, snapshot, schema, condition)
    items = [(Scan(proof.file, proof.unknown, 0), proof.condition) for proof in proofs if proof.unknown]
    on_done = reporter.stage("match", len(items), rows=sum(scan.rows for scan, _ in items))
    found = iter(engine.map(FindRows(storage, schema), items, on_done) if items else ())
    return [_combine(proof, next(found) if proof.unknown else None) for proof in proofs]


def store_matching_rows(
    engine: Engine,
    storage: Storage,
    snapshot: Snapshot,
    schema: pa.Schema,
    condition: Expression,
    folder: TableFolder,
    reporter: Reporter,
) -> list[StoredRows]:
    """Store the positions of the matching rows of every file of a snapshot; see `find_matching_rows`."""
    proofs = _proofs(storage, snapshot, schema, condition)
    items = [RowsToStore(each.file, each.matching, each.unknown, each.condition) for each in proofs]
    wanted = [item for item in items if item.whole or item.unknown]
    read = sum(item.file.row_groups[group] for item in wanted for group in item.unknown)
    on_done = reporter.stage("match", len(wanted), rows=read)
    found = iter(engine.map(StoreRows(storage, folder, schema), wanted, on_done) if wanted else ())
    return [next(found) if item.whole or item.unknown else NO_STORED_ROWS for item in items]


def set_aside_without_matches(snapshot: Snapshot, condition: Expression) -> tuple[Snapshot, PrunedFiles | None]:
    """Return the snapshot of the files that may have a row for which a condition is true, and the other files.

    Only comparisons of columns with constants are looked at, which all must be true.
    """
    parts, values = _parts(condition), _required_values(condition)
    # The proofs of single files do not use the upper bounds of floats, so these do not set files aside either.
    keys = {name: key_set for name, key_set in values.items() if not pa.types.is_floating(key_set.type)}
    compared = [each for each in map(_comparison, parts) if each is not None]

    def may_change(files: DataFiles, table: FooterTable, numbers: Numbers) -> Mask:
        found = may_have_keys(files, table, numbers, keys)
        for name, operator, constant in compared:
            found &= may_compare(files, table, numbers, name, operator, constant)
        return np.asarray(found | (table.numbers("rows")[files.rows_in(table, numbers)] == 0))

    return set_aside(snapshot, may_change) if keys or compared else (snapshot, None)


def _comparison(part: Expression) -> tuple[str, str, Any] | None:
    """Return a comparison as the name of a column, an operator and a constant, or None if it is another expression."""
    if not isinstance(part, Call) or part.function not in _MIRRORED:
        return None
    match part.arguments:
        case (Column(path=()) as column, Literal(value=value)) if value.is_valid:
            return column.name, part.function, value
        case (Literal(value=value), Column(path=()) as column) if value.is_valid:
            return column.name, _MIRRORED[part.function], value
        case _:
            return None


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def select_rows(
    storage: Storage, snapshot: Snapshot, schema: pa.Schema, condition: Expression
) -> dict[str, RowSelection]:
    """Return what to read of each file to find the rows for which a condition is true, without reading rows."""
    proofs = [proof for proof in _proofs(storage, snapshot, schema, condition) if proof.matching or proof.unknown]
    return {
        proof.file.path: RowSelection(
            tuple(sorted(proof.matching + proof.unknown)), proof.condition if proof.unknown else None
        )
        for proof in proofs
    }


def _proofs(storage: Storage, snapshot: Snapshot, schema: pa.Schema, condition: Expression) -> list[_Proof]:
    """Bloom filters are read from storage, so files are examined in parallel where that is remote."""
    return for_each(storage, partial(_prove, storage, snapshot, schema, condition), snapshot.files)


def constants_of(snapshot: Snapshot, file: DataFile, schema: pa.Schema) -> dict[str, Literal]:
    """Return the columns that are constant in a file: partition values, and NULL where the file lacks a column."""
    found = {}
    for field in schema:
        if field.name in file.schema.names:
            continue
        type_ = plain_type(field.type)
        found[field.name] = null_of(type_)
        if field.name in snapshot.partition_columns and file.partition is not None:
            text = file.partition[snapshot.partition_columns.index(field.name)]
            found[field.name] = Literal(typed_values([text], field.type, field.name).cast(type_)[0])
    return found


def _prove(storage: Storage, snapshot: Snapshot, schema: pa.Schema, condition: Expression, file: DataFile) -> _Proof:
    condition = with_constants(condition, constants_of(snapshot, file, schema))
    truths = possible_truths(condition, file)
    groups = [group for group, rows in enumerate(file.row_groups) if rows]
    matching = tuple(group for group in groups if truths[group] == Truth.TRUE)
    unknown = tuple(group for group in groups if Truth.TRUE in truths[group] and group not in matching)
    if unknown and file.blooms:
        unknown = drop_by_bloom(storage, file, unknown, _required_values(condition))
    if matching and not unknown:  # nothing else opens the file before it is deleted
        file = confirmed(storage, file, reads_rows=False)
    return _Proof(file, condition, matching, unknown)


def _parts(condition: Expression) -> Sequence[Expression]:
    """Return expressions that all must be true for the condition to be true."""
    if not isinstance(condition, Call) or condition.function != "and":
        return (condition,)
    return [part for argument in condition.arguments for part in _parts(argument)]


def _required_values(condition: Expression) -> dict[str, KeySet]:
    """Return the constants of which a column must have one for the condition to be true."""
    found: dict[str, KeySet] = {}
    for part in _parts(condition):
        match part:
            case Call(function="=", arguments=(Column(path=()) as column, Literal() as constant)):
                found[column.name] = KeySet.of(pa.chunked_array([[constant.value.as_py()]], constant.type))
            case InList(value=Column(path=()) as column):
                found[column.name] = KeySet.of(pa.chunked_array([part.options]))
            case _:
                continue
    return found


def _combine(proof: _Proof, found: RowNumbers | None) -> MatchingRows:
    if sum(proof.file.row_groups[group] for group in proof.matching) == proof.file.rows:
        return MatchingRows(proof.file, None if proof.file.rows else NO_ROWS, _reason(proof, proof.file.rows))
    starts = np.concatenate([[0], np.cumsum(proof.file.row_groups)])
    parts = [np.arange(starts[group], starts[group + 1]) for group in proof.matching]
    if found is not None:
        parts.append(found)
    positions = np.sort(np.concatenate(parts)) if parts else NO_ROWS
    return MatchingRows(proof.file, positions.astype(np.int64), _reason(proof, len(positions)))


def _reason(proof: _Proof, count: int) -> str:
    if proof.unknown:
        return "condition" if count else "no row matches"
    return "every row matches, by statistics" if count == proof.file.rows else NO_ROW_MATCHES

"""The keys of the source rows of a part of an exchange: one row for each key, which the hashes of other rows find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_numpy
from fsspeckit.core.kernels.exchange.split_keys import Keep, choose_rows, key_groups, key_ranks
from fsspeckit.core.kernels.row_rules import Mask, flags_of
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.hashing import Hashes
from fsspeckit.core.values.take import take_rows, with_one_dictionary

OrderBy = tuple[tuple[str, bool], ...]
"""Columns that decide which row of a key is kept, and whether the lowest value is."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class SourceIndex:
    """The source rows of a part, one for each key, in the order of their hashes.

    ``values`` has the columns that conditions read, and ``deletes`` the rows that delete their key. ``stored`` has the
    hashes of the partition values, if files have these in their rows.
    """

    high: Hashes
    low: Hashes
    files: RowNumbers
    rows: RowNumbers
    partitions: RowNumbers
    stored: Hashes
    values: pa.Table
    deletes: Mask
    ambiguous: bool
    duplicates: int
    examples: list[tuple[int, int, int]]

    @classmethod
    def of(
        cls, pieces: Sequence[pa.Table], keep: Keep, order_by: OrderBy, sent: Sequence[str], *, partitioned: bool
    ) -> SourceIndex:
        """Build the index of all pieces of the source; ``sent`` are the columns that conditions read."""
        high, low, rows = (np.concatenate([to_numpy(p[name]) for p in pieces]) for name in ("high", "low", "row"))
        sizes = [piece.num_rows for piece in pieces]
        files = np.repeat([int(piece.schema.metadata[b"number"]) for piece in pieces], sizes)
        partitions = np.zeros(len(high), dtype=np.int64)
        if partitioned:
            partitions = np.concatenate([to_numpy(piece["partition"]) for piece in pieces]).astype(np.int64)
        stored = np.zeros(len(high), dtype=np.uint64)
        if "stored" in pieces[0].column_names:
            stored = np.concatenate([to_numpy(piece["stored"]) for piece in pieces])
        order = np.argsort(high)
        same = high[order[1:]] == high[order[:-1]]
        duplicates, examples = 0, list[tuple[int, int, int]]()
        if same.any() or any("rows" in piece.column_names for piece in pieces):
            duplicates, examples, chosen = _without_duplicates(pieces, high, low, files, keep, order_by)
            order = chosen[np.lexsort((low[chosen], high[chosen]))]
        upper, values = high[order], _values(pieces, sent, order)
        return cls(
            upper,
            low[order],
            files[order],
            rows[order].astype(np.int64),
            partitions[order],
            stored[order],
            values,
            flags_of(values),
            bool((upper[1:] == upper[:-1]).any()),
            duplicates,
            examples,
        )

    def first_rows(self, written: Mask) -> dict[int, tuple[int, int]]:
        """Return the part of the source and the number of the first row of each partition, of some rows."""
        numbers = self.files << 32 | self.rows
        firsts = np.full(int(self.partitions.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(firsts, self.partitions[written], numbers[written])
        found = np.flatnonzero(firsts < np.iinfo(np.int64).max).tolist()
        return {partition: (int(firsts[partition]) >> 32, int(firsts[partition]) & 0xFFFFFFFF) for partition in found}

    def lookup(self, high: Hashes, low: Hashes) -> tuple[RowNumbers, RowNumbers]:
        """Return the positions of known hashes, and the row of the index of each."""
        at = np.searchsorted(self.high, high)
        last = len(self.high) - 1
        inside = np.minimum(at, last)
        equal = self.high[inside] == high
        if self.ambiguous:  # several keys have the same upper half
            for _ in range(len(self.high)):
                wrong = equal & (self.low[inside] != low) & (inside < last)
                wrong &= self.high[np.minimum(inside + 1, last)] == high
                if not wrong.any():
                    break
                inside = inside + wrong
        hits = np.flatnonzero(equal & (self.low[inside] == low))
        return hits, inside[hits]


def _without_duplicates(
    pieces: Sequence[pa.Table], high: Hashes, low: Hashes, files: RowNumbers, keep: Keep, order_by: OrderBy
) -> tuple[int, list[tuple[int, int, int]], RowNumbers]:
    """Return the number of keys with several rows, examples of them, and the rows to keep."""
    groups = key_groups(high, low)
    weights = np.concatenate([_numbers(piece, "rows", 1) for piece in pieces])
    first_rows = np.concatenate([_numbers(piece, "first", None) for piece in pieces])
    counts = np.bincount(groups, weights).astype(np.int64)
    repeated = np.flatnonzero(counts > 1)
    if not len(repeated):
        return 0, [], np.arange(len(high))
    firsts = np.full(len(counts), len(high), dtype=np.int64)
    np.minimum.at(firsts, groups, np.arange(len(high)))
    at = firsts[repeated]
    shown = np.lexsort((first_rows[at], files[at]))[:_SHOWN]
    examples = [(int(files[at[i]]), int(first_rows[at[i]]), int(counts[repeated[i]])) for i in shown]
    ranks: list[RowNumbers] = []
    if keep == "highest" and order_by:
        columns = pa.concat_tables([p.select([f"order{i}" for i in range(len(order_by))]) for p in pieces])
        ranks = key_ranks(columns, order_by)
    return len(repeated), examples, choose_rows(groups, keep, ranks)


def _numbers(piece: pa.Table, name: str, default: int | None) -> RowNumbers:
    if name in piece.column_names:
        return to_numpy(piece[name])
    return to_numpy(piece["row"]).astype(np.int64) if default is None else np.full(piece.num_rows, default)


def _values(pieces: Sequence[pa.Table], names: Sequence[str], order: RowNumbers) -> pa.Table:
    """Return some columns of source rows in an order; a table without columns would have no rows."""
    if not names:
        return pa.table({"": pa.nulls(len(order))})
    joined = pa.concat_tables([piece.select(list(names)).replace_schema_metadata(None) for piece in pieces])
    return take_rows(with_one_dictionary(joined), order)

"""Methods of `DatasetIO` that change rows by conditions: change feeds, delete, update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspeckit.common.choices import DEFAULT_RETRIES, EvolveFiles, SchemaMode
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.source import Input
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations import delete, merge, update, versions
from fsspeckit.core.operations.attempts import check_retries
from fsspeckit.core.operations.history import apply_history
from fsspeckit.core.planning.history import HistoryRequest
from fsspeckit.core.planning.merge_request import MergeRequest
from fsspeckit.core.progress import Progress
from fsspeckit.core.results import MergePlan, MergeResult
from fsspeckit.datasets.arguments import (
    Columns,
    Duration,
    MemoryLimit,
    column_names,
    keys_for,
    parse_bytes,
    parse_duration,
)


class RowChanges:
    """The methods of a `DatasetIO` that change rows by conditions."""

    engine: Engine

    def _place(self, path: Any) -> Place:
        raise NotImplementedError

    def _input(self, data: Any) -> Input:
        raise NotImplementedError

    def apply_changes(
        self,
        source: Any,
        path: Any,
        *,
        key_columns: Columns | None = None,
        sequence_by: str,
        delete_when: str | None = None,
        columns: Columns | None = None,
        except_columns: Columns | None = None,
        ignore_null_updates: bool = False,
        scd_type: int = 1,
        tombstones: Duration | None = "7d",
        partition_by: Columns | None = None,
        schema_mode: SchemaMode = "strict",
        evolve_files: EvolveFiles | None = None,
        progress: Progress = None,
        dry_run: bool = False,
        plan: MergePlan | None = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MergeResult | MergePlan:
        """Apply a change feed of a database: the newest change of each key wins, or the history of each key is kept.

        With ``scd_type=1``, a change that is not newer than the row in the dataset is late and is dropped, and so are
        the older changes of a key in the feed. A deleted key is kept with its sequence beside the journal, as a
        tombstone, so a late change of it is dropped too.

        With ``scd_type=2``, each row of the dataset has the values of its key from ``valid_from`` to ``valid_to``,
        which is NULL in the current row, where ``is_current`` is true. Late changes are put at their place in the
        history. The last change of a key and sequence counts, in the feed and against the dataset. A change that does
        not change the values at its sequence leaves no trace.

        Args:
            source: The feed, as for `merge`. It may have several changes of a key.
            path: The dataset's folder. It is created if it does not exist.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
            sequence_by: The column that orders changes, such as a log sequence number. It is written to the dataset;
                with ``scd_type=2`` as ``valid_from``, and as itself only if ``columns`` names it.
            delete_when: A condition over the feed, such as ``"op = 'd'"``: these changes delete their key. Their other
                columns may be null, also the partition columns.
            columns: The columns to write, in addition to key, sequence and partition columns; by default all.
            except_columns: Columns that are not written, such as ``["op"]``.
            ignore_null_updates: Keep the value of the dataset where the change has NULL; with ``scd_type=2`` the value
                of the preceding row. With ``scd_type=1`` the feed must then have one change per key.
            scd_type: 1 to keep the newest row of each key, 2 to keep the history of each key.
            tombstones: With ``scd_type=1``, for how long deleted keys are kept, such as ``"7d"``. ``None`` keeps none,
                and removes those that are there. The oldest beyond 10 million are removed.
            partition_by: Partition columns of a new dataset. A row whose partition value changes is moved.
            schema_mode: As for `merge`.
            evolve_files: As for `merge`.
            progress: As for `merge`.
            dry_run: Return the plan with exact counts and write nothing.
            plan: As for `merge`.
            retries: As for `merge`.

        Returns:
            The counts and files, as for `merge`; ``stale`` is the number of late changes. With ``scd_type=2`` it is the
            number of changes without effect, ``inserted`` counts new history rows, ``updated`` those that are closed or
            get other values, and ``deleted`` those that another row covers or replaces.

        Raises:
            KeyColumnError: A key or a sequence is missing, NULL or NaN, a key occurs several times and
                ``ignore_null_updates`` is set, or history rows of the dataset overlap.
            SchemaMismatchError: Columns or types of feed and dataset differ, or the dataset is not a history.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/customers"
            >>> feed = pa.table({"id": [1, 2, 1], "name": ["a", "b", "A"], "lsn": [1, 2, 3], "op": ["c", "c", "u"]})
            >>> result = io.apply_changes(
            ...     feed, folder, key_columns="id", sequence_by="lsn", delete_when="op = 'd'", except_columns="op"
            ... )
            >>> result.inserted, io.read_parquet(folder).sort_by("id")["name"].to_pylist()
            (2, ['A', 'b'])
        """
        if not isinstance(sequence_by, str):
            raise ValueError(f"sequence_by={sequence_by!r} is not the name of a column. Pass one, such as 'lsn'.")
        if scd_type not in (1, 2) or isinstance(scd_type, bool):
            raise ValueError(
                f"scd_type={scd_type!r} is unknown. Pass 1 to keep the newest rows, 2 to keep the history."
            )
        retries = check_retries(retries)
        place, given = self._place(path), self._input(source)
        if scd_type == 2:
            history = HistoryRequest(
                key_columns=keys_for(place, key_columns),
                sequence_by=sequence_by,
                delete_when=delete_when,
                columns=column_names(columns),
                except_columns=column_names(except_columns) or (),
                ignore_null_updates=ignore_null_updates,
                partition_by=column_names(partition_by),
                schema_mode=schema_mode,
                evolve_files=evolve_files,
            )
            return apply_history(
                self.engine, given, place, history, dry_run=dry_run, progress=progress, pinned=plan, retries=retries
            )
        request = MergeRequest(
            strategy="deduplicate",
            key_columns=keys_for(place, key_columns),
            partition_by=column_names(partition_by),
            dedup_order_by=(sequence_by,),
            partition_move="move",
            delete_when=delete_when,
            newer_by=sequence_by,
            columns=column_names(columns),
            except_columns=column_names(except_columns) or (),
            ignore_null_updates=ignore_null_updates,
            schema_mode=schema_mode,
            evolve_files=evolve_files,
            tombstones=0 if tombstones in (None, "0") else parse_duration("tombstones", tombstones),
            operation="apply_changes",
        )
        return merge.merge(
            self.engine, given, place, request, dry_run=dry_run, progress=progress, pinned=plan, retries=retries
        )

    def delete(
        self,
        path: Any,
        *,
        where: Any,
        compression: str | None = None,
        row_group_size: int | None = None,
        batch_rows: int | None = None,
        memory_limit: MemoryLimit = None,
        progress: Progress = None,
        dry_run: bool = False,
        plan: MergePlan | None = None,
        erase_history: bool = False,
        retries: int = DEFAULT_RETRIES,
    ) -> MergeResult | MergePlan:
        """Delete the rows for which a condition is true.

        Files in which no row matches are not changed, and those in which every row matches are removed, without reading
        their rows where statistics prove it.

        Args:
            path: The dataset's folder.
            where: The condition, such as ``"customer_id = 7"``; ``"true"`` deletes all rows. The page on expressions
                lists what it can use.
            compression: Codec of rewritten files; by default they keep theirs.
            row_group_size: Most rows of a row group; by default files keep theirs.
            batch_rows: Most rows that are rewritten at once.
            memory_limit: Most memory for rewriting, such as ``"2GB"``.
            progress: As for `merge`.
            dry_run: Return the plan, with exact counts, and write nothing.
            plan: As for `merge`.
            erase_history: Also remove all kept versions before this delete, so that no kept file has the rows.
            retries: As for `merge`.

        Returns:
            Counts and files, as `merge` returns them; ``deleted`` is the number of deleted rows.

        Raises:
            ExpressionError: The condition is not in the expression language, or does not fit the columns.
            DatasetNotFoundError: There is no dataset at the path.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2, 3]}), folder)
            >>> io.delete(folder, where="id >= 2").deleted
            2
        """
        options = _rewrite_options(compression, row_group_size, batch_rows, memory_limit)
        retries, place = check_retries(retries), self._place(path)
        result = delete.delete(
            self.engine, place, where, options, dry_run=dry_run, progress=progress, pinned=plan, retries=retries
        )
        if erase_history and isinstance(result, MergeResult):
            versions.erase(place, result.commit_seq)
        return result

    def update(
        self,
        path: Any,
        *,
        set: Mapping[str, str],  # noqa: A002 - the word of SQL
        where: Any,
        compression: str | None = None,
        row_group_size: int | None = None,
        batch_rows: int | None = None,
        memory_limit: MemoryLimit = None,
        progress: Progress = None,
        dry_run: bool = False,
        plan: MergePlan | None = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MergeResult | MergePlan:
        """Set columns of the rows for which a condition is true to computed values.

        Only the changed columns of row groups with matching rows are written again. A row whose partition column gets
        another value is moved to that partition, in the same commit.

        Args:
            path: The dataset's folder.
            set: Columns and the expressions that compute their values from the row, such as
                ``{"price": "price * 1.1", "status": "'open'"}``.
            where: The condition, such as ``"status IS NULL"``; ``"true"`` updates all rows.
            compression: Codec of rewritten files; by default they keep theirs.
            row_group_size: Most rows of a row group; by default files keep theirs.
            batch_rows: Most rows that are rewritten at once.
            memory_limit: Most memory for rewriting, such as ``"2GB"``.
            progress: As for `merge`.
            dry_run: Return the plan, with exact counts, and write nothing.
            plan: As for `merge`.
            retries: As for `merge`.

        Returns:
            Counts and files, as `merge` returns them; ``unchanged`` rows had their values already, ``moved`` rows are
            in another partition.

        Raises:
            ExpressionError: An expression is not in the language, does not fit its column, or cannot be computed.
            PartitionError: The value of a partition column cannot be the name of a folder.
            DatasetNotFoundError: There is no dataset at the path.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), folder)
            >>> _ = io.update(folder, set={"n": "n + id"}, where="id = 2")
            >>> io.read_parquet(folder)["n"].to_pylist()
            [10, 22]
        """
        options = _rewrite_options(compression, row_group_size, batch_rows, memory_limit)
        retries, place = check_retries(retries), self._place(path)
        return update.update(
            self.engine, place, set, where, options, dry_run=dry_run, progress=progress, pinned=plan, retries=retries
        )


def _rewrite_options(
    compression: str | None, row_group_size: int | None, batch_rows: int | None, memory_limit: MemoryLimit
) -> WriteOptions:
    limit = parse_bytes(memory_limit)
    return WriteOptions(compression, row_group_size=row_group_size, batch_rows=batch_rows, memory_limit=limit)

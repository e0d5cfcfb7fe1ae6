"""`DatasetIO`: every operation as a method, the same for all engines.

This module has the names, defaults and checks of arguments. `fsspeckit.core.operations` runs the operations.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import pyarrow as pa

from fsspeckit.common.choices import (
    DEFAULT_PUBLISH,
    DEFAULT_RETRIES,
    DEFAULT_STRATEGY,
    EvolveFiles,
    NullKeys,
    OnDuplicate,
    PartitionMove,
    PublishMode,
    SchemaMode,
    WriteMode,
    check_choice,
)
from fsspeckit.core.commit.forget import ForgetResult
from fsspeckit.core.commit.replay import Recovery
from fsspeckit.core.commit.transaction import Check, Terms
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.row_streams import with_batches
from fsspeckit.core.dataset.source import Input
from fsspeckit.core.dataset.text_source import TextFiles, text_files
from fsspeckit.core.engine.protocol import Engine, ReadRequest
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations import merge, read, write
from fsspeckit.core.operations.attempts import check_retries
from fsspeckit.core.operations.forget import forget
from fsspeckit.core.operations.write import WriteRequest
from fsspeckit.core.planning.merge_request import MergeRequest
from fsspeckit.core.progress import Progress
from fsspeckit.core.results import MergePlan, MergeResult, WriteResult
from fsspeckit.datasets.arguments import Columns, MemoryLimit, column_names, keys_for, parse_bytes
from fsspeckit.datasets.exports import Exports
from fsspeckit.datasets.maintenance import Maintenance
from fsspeckit.datasets.row_changes import RowChanges
from fsspeckit.datasets.versions import KeptVersions

__all__ = ["Columns", "DatasetIO", "column_names"]


class DatasetIO(Maintenance, RowChanges, KeptVersions, Exports):
    """Write, read, merge and maintain plain Parquet dataset folders.

    Args:
        filesystem: The fsspec filesystem of all paths; without it, paths are local or URLs.
        storage_options: Options for the filesystem of URLs, such as credentials.
        publish: How a commit becomes visible on local disks, see the guarantees in the documentation: ``"new_names"``
            gives rewritten files new names, ``"exchange"`` also shows all changes of a folder at once, and
            ``"replace"`` replaces files under their names, so that other programs can read a mix of two states.

    Use a subclass of an engine, for example `fsspeckit.datasets.pyarrow.PyarrowDatasetIO`.
    """

    engine: Engine

    def __init__(
        self,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        publish: PublishMode = DEFAULT_PUBLISH,
    ) -> None:
        check_choice("publish", publish, get_args(PublishMode))
        self.filesystem = filesystem
        self.storage_options = storage_options
        self.publish: PublishMode = publish

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def merge(
        self,
        data: Any,
        path: Any,
        *,
        key_columns: Columns | None = None,
        strategy: str = DEFAULT_STRATEGY,
        partition_by: Columns | None = None,
        partition_columns: Columns | None = None,
        dedup_order_by: Columns | None = None,
        on_duplicate_source: OnDuplicate = "error",
        null_keys: NullKeys = "error",
        schema_mode: SchemaMode = "strict",
        evolve_files: EvolveFiles | None = None,
        skip_unchanged: bool = True,
        partition_move: PartitionMove = "check",
        update_columns: Columns | None = None,
        delete_when: str | None = None,
        update_when: str | None = None,
        insert_when: str | None = None,
        newer_by: str | None = None,
        scope: str | None = None,
        compression: str | None = None,
        max_rows_per_file: int = 5_000_000,
        row_group_size: int | None = None,
        batch_rows: int | None = None,
        memory_limit: MemoryLimit = None,
        progress: Progress = None,
        dry_run: bool = False,
        plan: MergePlan | None = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MergeResult | MergePlan:
        """Merge rows into a dataset, rewriting only files in which a row changes.

        Args:
            data: The source: an Arrow table, batch, reader or dataset, a path of Parquet, CSV or JSON files, or
                any object with ``__arrow_c_stream__``. CSV and JSON are parsed with the types of the dataset.
            path: The dataset's folder. It is created if it does not exist.
            strategy: ``"upsert"``, ``"insert"``, ``"update"``, ``"full_merge"`` or ``"deduplicate"``.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
            partition_by: Partition columns of a new dataset; those of an existing dataset are read from its folders.
            partition_columns: Another name for ``partition_by``.
            dedup_order_by: With ``"deduplicate"``, keep the row with the highest value (``"-ts"``: lowest).
            on_duplicate_source: What to do if a key occurs twice in the source: ``"error"``, or keep the ``"first"``
                or ``"last"`` row.
            null_keys: ``"match"`` treats NULL in a key as equal to NULL.
            schema_mode: ``"strict"`` keeps the columns and types of the dataset; a source value that cannot be
                converted without loss is an error. ``"widen"`` gives a column the common type of dataset and source.
                ``"evolve"`` also adds new columns; a column that the source lacks keeps its value in matched rows and
                is null in inserted ones.
            evolve_files: Which files get a new column or a wider type: ``"touched"``, those that change anyway, or
                ``"all"``. By default all files, if at most 1 GB of files without a changed row is rewritten; else it is
                an error.
            skip_unchanged: Do not rewrite a file if its matched rows equal the source rows.
            partition_move: What to do with a key that exists in another partition, and not in that of the source row:
                ``"check"`` raises an error, ``"move"`` moves the row, ``"unchecked"`` does not search for such keys.
            update_columns: Columns that matched rows get; inserted rows get all columns. A row that moves also gets the
                partition columns.
            delete_when: A condition over the source, such as ``"op = 'd'"``: these rows delete their key. A column that
                this condition reads and an existing dataset lacks is not written.
            update_when: A condition over ``source.`` and ``target.`` columns. Other matched rows are not updated.
            insert_when: A condition over ``source.`` columns. Other new rows are not inserted.
            newer_by: A column such as a log sequence number. A matched row is updated only if the source is newer.
            scope: With ``"full_merge"``, a condition: only rows that match it are deleted, and every source row must.
            compression: Codec of all written files; by default, rewritten files keep theirs.
            max_rows_per_file: The most rows of a new file.
            row_group_size: The most rows of a row group; by default, rewritten files keep theirs.
            batch_rows: The most rows of a file in memory at once; larger row groups are split.
            memory_limit: Bytes (or ``"500MB"``) that rewriting may use; determines ``batch_rows``.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            dry_run: Return the plan with exact counts and write nothing.
            plan: A plan from an earlier ``dry_run`` of the same call. If the dataset has changed, or other rows or
                counts would change, `CommitConflictError` is raised. Values of source rows are not compared.
            retries: How often the merge is planned again if another writer commits rows on which it depends, after
                growing waits. After that, `CommitConflictError` is raised. With ``plan`` there are no retries.

        Returns:
            The counts and files of the merge, or its plan.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), folder)
            >>> updates = pa.table({"id": [2, 3], "v": ["B", "C"]})
            >>> io.merge(updates, folder, strategy="upsert", key_columns="id").stats()
            {'inserted': 1, 'updated': 1, 'deleted': 0, 'total': 3}
        """
        place = self._place(path)
        request = MergeRequest(
            strategy=strategy,
            key_columns=keys_for(place, key_columns),
            partition_by=_partition_names(partition_by, partition_columns),
            dedup_order_by=column_names(dedup_order_by) or (),
            on_duplicate_source=on_duplicate_source,
            null_keys=null_keys,
            schema_mode=schema_mode,
            evolve_files=evolve_files,
            skip_unchanged=skip_unchanged,
            partition_move=partition_move,
            options=WriteOptions(compression, max_rows_per_file, row_group_size, batch_rows, parse_bytes(memory_limit)),
            update_columns=column_names(update_columns),
            delete_when=delete_when,
            update_when=update_when,
            insert_when=insert_when,
            newer_by=newer_by,
            scope=scope,
        )
        retries = check_retries(retries)
        if dedup_order_by is not None and strategy != "deduplicate":
            raise ValueError(
                f"dedup_order_by has no effect with strategy={strategy!r}. "
                'Use strategy="deduplicate", or omit dedup_order_by.'
            )
        given = self._input(data)
        return merge.merge(
            self.engine, given, place, request, dry_run=dry_run, progress=progress, pinned=plan, retries=retries
        )

    def write_dataset(
        self,
        data: Any,
        path: Any,
        *,
        mode: WriteMode = "append",
        partition_by: Columns | None = None,
        partition_columns: Columns | None = None,
        replace_where: Any = None,
        basename_template: str | None = None,
        compression: str | None = None,
        max_rows_per_file: int = 5_000_000,
        row_group_size: int | None = None,
        memory_limit: MemoryLimit = None,
        progress: Progress = None,
        dry_run: bool = False,
        retries: int = DEFAULT_RETRIES,
    ) -> WriteResult:
        """Write rows as new files of a dataset.

        Args:
            data: The rows, in any form that `merge` accepts.
            path: The dataset's folder. It is created if it does not exist.
            mode: ``"append"``, ``"overwrite"`` (all data files), ``"overwrite_partitions"`` (those of the rows),
                ``"error"`` (raise if the dataset exists), or ``"ignore"`` (do nothing if the dataset exists). A dataset
                exists if there are data files at the path.
            partition_by: Partition columns; those of an existing dataset are read from its folders.
            partition_columns: Another name for ``partition_by``.
            replace_where: With ``mode="overwrite"``, a condition such as ``"day = '2026-11-02'"``: the rows for which
                it is true are removed, the given rows are written, and other rows are kept. It must be true for all
                given rows, whose columns must fit the dataset.
            basename_template: File name with ``{i}`` for a number; by default names are unique.
            compression: Codec; by default that of the dataset, or snappy for a new one.
            max_rows_per_file: The most rows of a file.
            row_group_size: The most rows of a row group.
            memory_limit: Bytes (or ``"500MB"``) that writing may use.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            dry_run: Return the files that would be written and removed, and write nothing.
            retries: As for `merge`.

        Returns:
            One entry for each written file, with its path, rows and size; ``replaced`` rows and ``rewritten_files`` of
            ``replace_where``; ``skipped`` if the dataset exists and the mode is ``"ignore"``.

        Raises:
            DatasetExistsError: The dataset exists, and the mode is ``"error"``.
            ExpressionError: ``replace_where`` does not fit the columns, or is not true for a given row.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"day": ["mon", "mon", "tue"], "n": [1, 2, 3]}), folder)
            >>> new = pa.table({"day": ["mon"], "n": [9]})
            >>> result = io.write_dataset(new, folder, mode="overwrite", replace_where="day = 'mon'")
            >>> result.replaced, sorted(io.read_parquet(folder)["n"].to_pylist())
            (2, [3, 9])
        """
        request = WriteRequest(
            mode=mode,
            partition_by=_partition_names(partition_by, partition_columns),
            replace_where=replace_where,
            basename_template=basename_template,
            options=WriteOptions(
                compression, max_rows_per_file, row_group_size, memory_limit=parse_bytes(memory_limit)
            ),
        )
        retries = check_retries(retries)
        place = self._place(path)
        given = self._input(data)
        return write.write(self.engine, given, place, request, dry_run=dry_run, progress=progress, retries=retries)

    def read_parquet(
        self,
        path: Any,
        *,
        columns: Columns | None = None,
        filters: Any = None,
        include_file_path: bool = False,
        use_threads: bool = True,
        version: int | None = None,
        as_of: Any = None,
    ) -> pa.Table:
        """Read one consistent state of a dataset, even while another process writes to it.

        Args:
            path: The dataset's folder.
            columns: Columns to read; all by default.
            filters: A condition as text, such as ``"day = '2026-11-02' AND amount > 10"`` (the page on expressions
                lists what it can use), tuples as in pyarrow, or a `pyarrow.compute.Expression`.
            include_file_path: Add a column ``file_path``.
            use_threads: Read files in parallel. It does not change the result.
            version: The number of a kept version, as `history` lists it.
            as_of: A time such as ``"2026-11-02T10:00Z"``: read the version that was current then.

        Returns:
            The rows, partition columns last.

        Raises:
            FilterError: The filter is not one condition over the columns.
            DatasetNotFoundError: There is no dataset at the path.
            VersionNotFoundError: There is no such version, or it is not kept.
        """
        request = ReadRequest(column_names(columns), filters, include_file_path, use_threads)
        return read.read(self.engine, self._place(path), request, version, as_of)

    def write_parquet_dataset(
        self,
        data: Any,
        path: Any,
        *,
        mode: WriteMode | None = None,
        strategy: str | None = None,
        key_columns: Columns | None = None,
        rewrite_mode: Literal["incremental"] | None = None,
        **options: Any,
    ) -> WriteResult | MergeResult | MergePlan:
        """Call `merge` if a strategy is given, else `write_dataset`.

        Args:
            data: The rows.
            path: The dataset's folder.
            mode: As for `write_dataset`; a strategy takes precedence over it.
            strategy: As for `merge`.
            key_columns: As for `merge`.
            rewrite_mode: ``"incremental"`` requires that only affected files are rewritten, which every merge does. It
                is an error with ``"full_merge"``.
            **options: As for the method that is called.
        """
        if rewrite_mode not in (None, "incremental"):
            raise ValueError(f'rewrite_mode={rewrite_mode!r} is unknown. Use "incremental" or omit it.')
        if strategy is None:
            if rewrite_mode is not None or key_columns is not None:
                raise ValueError(
                    "key_columns and rewrite_mode have no effect without a strategy. Pass strategy, such as 'upsert'."
                )
            return self.write_dataset(data, path, mode=mode or "append", **options)
        _check_mode(mode, strategy, key_columns, rewrite_mode)
        return self.merge(data, path, strategy=strategy, key_columns=key_columns, **options)

    def on_terms(
        self,
        *,
        idempotency_key: str | None = None,
        check: Check | None = None,
        note: str | None = None,
        reload: bool = False,
    ) -> Self:
        """Return a copy of this object for one operation, whose commit has conditions.

        Args:
            idempotency_key: A name of the change, which is stored in the commit record. A write or merge then commits
                even if it changes nothing. A second commit with the same key raises `AlreadyCommittedError`.
            check: Called before the commit with views of the dataset before and after, staged files included, and the
                facts of the change. If it raises an error, such as `CheckFailedError`, nothing is changed.
            note: A text that is stored in the commit record and that `history` shows.
            reload: Start the dataset anew if its rows are gone although the journal remembers them, or if it has no
                rows. Everything that was remembered before is not valid any more. By default a key that was committed
                is `DatasetLostError` then, and so is every change of a dataset whose folder was removed.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.on_terms(idempotency_key="monday").write_dataset(pa.table({"id": [1]}), folder)
            >>> io.committed(folder, "monday"), io.committed(folder, "tuesday")
            (1, None)
        """
        result = copy.copy(self)
        result.terms = Terms(idempotency_key, check, note, reload=reload)
        return result

    def committed(self, path: Any, idempotency_key: str) -> int | None:
        """Return the sequence number of the commit with an idempotency key, or None if there is none.

        Raises:
            DatasetLostError: There is one, but another program removed all files that the newest commits published.
        """
        return self._place(path).journal.committed(idempotency_key)

    def recover(self, path: Any) -> Recovery:
        """Finish the commits and remove the staged files of crashed writers. Operations that write do this first.

        On an object store it is not known which writers have crashed, so the staged files of all are removed. The
        commit of a writer that is still at work is a conflict. Operations that write keep files of less than a day
        there.
        """
        return read.recover(self._place(path))

    def forget(self, path: Any, *, dry_run: bool = False) -> ForgetResult:
        """Remove the journal of a dataset. The data files are not changed.

        Versions, idempotency keys, positions of pipelines and streams, and the columns of a dataset without rows are
        lost: a pipeline loads all new files again, into what is there. A commit that is not finished is finished first.

        Args:
            path: The dataset's folder. It may be removed already.
            dry_run: Return what would be removed, and remove nothing.

        Raises:
            CommitConflictError: A writer is at work; nothing was removed.
            TableFormatError: The journal describes exported metadata or a catalog; remove these first.
        """
        return forget(self._place(path), dry_run=dry_run)

    def _place(self, path: Any) -> Place:
        filesystem = self._filesystem_for(path)
        options, settings = self._options_for(path)
        engine = self.engine
        place = Place.of(path, filesystem, options, self.terms, engine.committed, engine.distribute)
        if self.publish != DEFAULT_PUBLISH:
            place.journal.publish = self.publish
        return replace(place, settings=settings)

    def _input(self, data: Any) -> Input:
        path = data.path if isinstance(data, TextFiles) else data
        options, _ = self._options_for(path)
        return Input(text_files(data) or with_batches(data), self._filesystem_for(path), options)

    def _filesystem_for(self, path: Any) -> Any:  # noqa: ARG002 - engines with their own filesystems use it
        return self.filesystem

    def _options_for(self, path: Any) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:  # noqa: ARG002
        """Return the options of a path, and the settings of the engine that they come from."""
        return self.storage_options, ()


def _check_mode(mode: str | None, strategy: str, key_columns: Columns | None, rewrite_mode: str | None) -> None:
    if rewrite_mode == "incremental" and strategy == "full_merge":
        raise ValueError(
            'rewrite_mode="incremental" is not supported for full_merge, which may change all files. Omit rewrite_mode.'
        )
    if mode is not None:
        check_choice("mode", mode, get_args(WriteMode))
    if mode == "append" and strategy != "insert" and key_columns is None:
        raise ValueError(
            f'mode="append" is not supported for strategy={strategy!r}, which rewrites files. '
            "Omit mode and pass key_columns."
        )
    if mode is not None and not (mode == "append" and strategy == "insert"):
        warnings.warn(f"strategy={strategy!r} takes precedence over mode={mode!r}. Omit mode.", stacklevel=3)


def _partition_names(partition_by: Columns | None, partition_columns: Columns | None) -> tuple[str, ...] | None:
    first, second = column_names(partition_by), column_names(partition_columns)
    if first is not None and second is not None and first != second:
        raise ValueError(f"partition_by={first} and partition_columns={second} differ. Pass one of them.")
    names = first if first is not None else second
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"partition_by names a column twice: {names}. Name each column once.")
    return names

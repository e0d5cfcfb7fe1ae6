"""Strategies of a merge, the rules for keys, schemas and partitions, and the tasks of a merge.

Nothing here reads or writes files. All checks raise before the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import pyarrow as pa

from fsspeckit.common.categories import same_categories
from fsspeckit.common.choices import (
    EvolveFiles,
    NullKeys,
    OnDuplicate,
    PartitionMove,
    SchemaMode,
    StrategyName,
    check_choice,
)
from fsspeckit.common.errors import ColumnNameError, KeyColumnError, PartitionError, SchemaMismatchError
from fsspeckit.common.schema import field_remedy, reconcile, refuse_case_twins, same_storage
from fsspeckit.common.text import counted
from fsspeckit.common.types import is_text, key_compare_type
from fsspeckit.core.dataset.snapshot import Snapshot, partition_schema
from fsspeckit.core.dataset.source_keys import ONE_CHANGE_PER_KEY, KeyChoice, PartitionRows
from fsspeckit.core.expressions.conditions import columns_named, errors_name
from fsspeckit.core.file_names import new_file_name
from fsspeckit.core.model import (
    NO_MATCH,
    DataFile,
    KeyColumn,
    Match,
    RemoteMatch,
    RewriteTask,
    RowChange,
    RowNumbers,
    WriteOptions,
    WriteTask,
)
from fsspeckit.core.parquet.writer_options import check_distinct, check_writable, codec_name
from fsspeckit.core.result_view import readable_bytes
from fsspeckit.core.results import RowOperation, SchemaChange
from fsspeckit.core.values.keys import key_type


@dataclass(frozen=True, slots=True)
class Strategy:
    """Whether a merge updates matched rows, inserts unmatched source rows and deletes unmatched target rows."""

    update: bool
    insert: bool
    delete: bool
    deduplicate: bool = False


MOST_UNASKED_BYTES = 1_000_000_000
"""Bytes of files without a changed row that a change of the schema rewrites although nobody asked for it."""
STRATEGIES: Mapping[str, Strategy] = {
    "upsert": Strategy(update=True, insert=True, delete=False),
    "insert": Strategy(update=False, insert=True, delete=False),
    "update": Strategy(update=True, insert=False, delete=False),
    "full_merge": Strategy(update=True, insert=True, delete=True),
    "deduplicate": Strategy(update=True, insert=True, delete=False, deduplicate=True),
}


_COLUMN_REMEDIES = {
    "merge": (
        'Use the same columns in the source, or pass schema_mode="evolve" to add new columns and to keep the values of '
        "the dataset in missing ones."
    ),
    "apply_changes": "Add missing columns to the source, and leave additional ones out with except_columns or columns.",
}


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """The options of a merge, validated."""

    strategy: str
    key_columns: tuple[str, ...]
    partition_by: tuple[str, ...] | None = None
    dedup_order_by: tuple[str, ...] = ()
    on_duplicate_source: OnDuplicate = "error"
    null_keys: NullKeys = "error"
    schema_mode: SchemaMode = "strict"
    evolve_files: EvolveFiles | None = None
    skip_unchanged: bool = True
    partition_move: PartitionMove = "check"
    options: WriteOptions = field(default_factory=WriteOptions)
    update_columns: tuple[str, ...] | None = None
    delete_when: str | None = None
    update_when: str | None = None
    insert_when: str | None = None
    newer_by: str | None = None
    scope: str | None = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] = ()
    ignore_null_updates: bool = False
    tombstones: int | None = None
    """For how many seconds deleted keys are kept, 0 to keep none; None for a merge that is not a change feed."""
    operation: RowOperation = "merge"

    def __post_init__(self) -> None:
        check_choice("strategy", self.strategy, get_args(StrategyName))
        check_choice("on_duplicate_source", self.on_duplicate_source, get_args(OnDuplicate))
        check_choice("null_keys", self.null_keys, get_args(NullKeys))
        check_choice("schema_mode", self.schema_mode, get_args(SchemaMode))
        if self.evolve_files is not None:
            check_choice("evolve_files", self.evolve_files, get_args(EvolveFiles))
            if self.schema_mode == "strict":
                raise ValueError(
                    'evolve_files is for schema_mode="widen" or "evolve": "strict" changes no schema. Leave it out.'
                )
        check_choice("partition_move", self.partition_move, get_args(PartitionMove))
        for name in ("update_columns", "update_when", "newer_by", "delete_when"):
            if getattr(self, name) is not None and not self.rule.update:
                raise ValueError(
                    f"{name} changes rows that exist, and strategy={self.strategy!r} does not. Leave it out."
                )
        if self.insert_when is not None and not self.rule.insert:
            raise ValueError(f"insert_when is for strategies that insert, not {self.strategy!r}. Leave it out.")
        if self.scope is not None and not self.rule.delete:
            raise ValueError('scope is for strategy="full_merge". Leave it out.')

    @property
    def rule(self) -> Strategy:
        """The rule of the strategy."""
        return STRATEGIES[self.strategy]

    @property
    def choice(self) -> KeyChoice:
        """Which source row of each key is merged.

        Where NULL keeps a value, the older changes of a key in the source would count too, so there must be none.
        """
        if self.ignore_null_updates:
            return KeyChoice(None, remedy=ONE_CHANGE_PER_KEY)
        if self.rule.deduplicate:
            return KeyChoice("highest", self.dedup_order_by)
        return KeyChoice(None if self.on_duplicate_source == "error" else self.on_duplicate_source)


def normalize_keys(key_columns: str | Sequence[str], parameter: str = "key_columns") -> list[str]:
    """Return key columns as a list of distinct names. ``parameter`` is the name that errors use.

    Examples:
        >>> normalize_keys("id")
        ['id']
    """
    listed = key_columns if isinstance(key_columns, Iterable) else () if key_columns is None else (key_columns,)
    names = [key_columns] if isinstance(key_columns, str) else list(listed)
    advice = f'Name the columns that identify a row, such as {parameter}=["id"].'
    if isinstance(key_columns, set | frozenset):
        raise ColumnNameError(f"{parameter}={key_columns!r} is a set, which has no order. Pass a list of names.")
    if others := [name for name in names if not isinstance(name, str)]:
        raise ColumnNameError(f"{parameter} contains {others[0]!r}, which is not the name of a column. {advice}")
    if not all(names) or not names:
        raise ColumnNameError(f"{parameter} is empty. {advice}")
    if len(set(names)) < len(names):
        raise ColumnNameError(f"{parameter} names a column twice: {names}. Name each column once.")
    return names


def validate_keys_and_schema(
    source_schema: pa.Schema,
    target_schema: pa.Schema | None,
    key_columns: str | Sequence[str],
    *,
    schema_mode: SchemaMode = "widen",
    operation: RowOperation = "merge",
    path: str = "",
    partial: bool = False,
) -> pa.Schema:
    """Check that key columns exist in source and target and that the schemas have a lossless common schema.

    Args:
        source_schema: Columns of the source.
        target_schema: Columns of the target's files, or ``None`` if the target does not exist.
        key_columns: The column or columns that identify a row.
        schema_mode: ``"strict"`` keeps the types of the target, ``"widen"`` takes the common types, and ``"evolve"``
            also allows columns that only the source or only the target has.
        operation: The operation, for error messages.
        path: The dataset, for error messages.
        partial: Whether the source may lack nullable columns in every mode.

    Returns:
        The schema of the target's files after the merge.

    Raises:
        ColumnNameError: A key column is missing.
        SchemaMismatchError: Columns differ or have no common type.
    """
    keys = normalize_keys(key_columns)
    check_keys_exist(keys, source_schema.names, "source")
    result = source_schema
    if target_schema is not None:
        check_keys_exist(keys, target_schema.names, "target")
        remedy = _COLUMN_REMEDIES[operation]
        result = reconcile(
            target_schema,
            source_schema,
            mode=schema_mode,
            operation=operation,
            path=path,
            remedy=remedy,
            partial=partial,
        )
    for key in keys:
        key_type(result.field(key).type, key)
    return result


def check_keys_exist(keys: Sequence[str], names: Sequence[str], side: str) -> None:
    """Raise if a key column is missing. ``side`` says in errors whose columns ``names`` are."""
    missing = [key for key in keys if key not in names]
    if missing:
        remedy = f"Choose among {list(names)}." if names else "It has no columns: check that its files are not empty."
        remedy = field_remedy(missing, names) or remedy
        kind = ColumnNameError if names else KeyColumnError  # an empty file is not a wrong name
        raise kind(f"key column(s) {missing} not found in the {side}. {remedy}")


def compute_merge_stats(*, previous_total: int, inserted: int, updated: int, deleted: int) -> dict[str, int]:
    """Return the counts of a merge.

    Examples:
        >>> compute_merge_stats(previous_total=10, inserted=2, updated=3, deleted=1)
        {'inserted': 2, 'updated': 3, 'deleted': 1, 'total': 11}
    """
    return {
        "inserted": inserted,
        "updated": updated,
        "deleted": deleted,
        "total": previous_total + inserted - deleted,
    }


def visible_partitions(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns of a new layout. Raise for one whose folders readers would not see."""
    hidden = [name for name in columns if name.startswith((".", "_"))]
    if hidden:
        raise PartitionError(
            f"The folders of the partition column {hidden[0]!r} would be hidden, and PyArrow does not read hidden "
            "folders. Rename the column."
        )
    return tuple(columns)


def partition_columns_of(snapshot: Snapshot, partition_by: Sequence[str] | None) -> tuple[str, ...]:
    """Return the partition columns of a dataset, from its folders. Raise if ``partition_by`` names others."""
    requested = tuple(partition_by) if partition_by is not None else None
    if snapshot.schema is None:
        return visible_partitions(requested or ())
    if requested is not None and requested != snapshot.partition_columns:
        error = PartitionError(
            f"the dataset is partitioned by {list(snapshot.partition_columns)}, not by {list(requested)}. "
            "Omit partition_by: it is read from the folders."
        )
        error.wrong_call = True
        raise error
    return snapshot.partition_columns


def text_folders(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the partition columns that are only in the names of folders and that are text."""
    known = () if snapshot.schema is None else snapshot.schema.names
    return tuple(field.name for field in partition_schema(snapshot) if field.name not in known and is_text(field.type))


@dataclass(frozen=True, slots=True)
class MergeSchemas:
    """Schemas of a merge.

    Attributes:
        body: The columns of files after the merge.
        keys: The key columns and the types in which they are compared.
        partitions: The partition columns.
        added: Columns that the target does not have yet.
        in_folders: Partition columns whose values are only in the names of folders.
        text_folders: Those of them that are text in an existing dataset.
        updated: Columns that matched rows get from the source; ``None`` means all columns.
        written: Columns of the source that are written, to matched or to new rows.
        compared: Columns whose values in all rows of the source must fit, in the types in which they are compared.
        changes: The columns of the target that are added or become wider, if rows are written.
        evolve_files: Which files get them, as the caller says.
    """

    body: pa.Schema
    keys: tuple[KeyColumn, ...]
    partitions: tuple[str, ...]
    added: tuple[str, ...]
    in_folders: tuple[str, ...] = ()
    text_folders: tuple[str, ...] = ()
    updated: tuple[str, ...] | None = None
    written: tuple[str, ...] = ()
    compared: pa.Schema = field(default_factory=lambda: pa.schema([]))
    changes: tuple[SchemaChange, ...] = ()
    evolve_files: EvolveFiles | None = None

    def stored_by(self, request: MergeRequest) -> pa.Schema:
        """Return the columns of files that get values of the source, which must fit.

        A key of a matched row fits, since it is equal to one in a file; only inserts can bring others.
        """
        keys = () if request.rule.insert else request.key_columns
        fields = [field for field in self.body if field.name in self.written and field.name not in keys]
        return pa.schema(fields, self.body.metadata)

    @property
    def file_keys(self) -> tuple[KeyColumn, ...]:
        """Key columns that are in the files, not only in folder names."""
        return tuple(key for key in self.keys if key.name in self.body.names)


def merge_schemas(source: pa.Schema, snapshot: Snapshot, request: MergeRequest, path: str) -> MergeSchemas:
    """Check keys and schemas of source and target, and return the schemas of the merge."""
    partitions = partition_columns_of(snapshot, request.partition_by)
    check_distinct(source, request.operation)
    check_keys_exist(request.key_columns, source.names, "source")
    check_partition_columns(partitions, source, request.partition_by)
    known = snapshot.schema.names if snapshot.schema is not None else ()
    in_folders = [name for name in partitions if name not in known]
    file_keys = [name for name in request.key_columns if name not in in_folders]
    if not file_keys:
        raise ColumnNameError("all key columns are partition columns. Name at least one column that is in the files.")
    ours = without_columns(source, [*in_folders, *columns_not_written(request, source, partitions, known)])
    partial = request.update_columns is not None and not request.rule.insert
    if request.update_columns is not None:
        _check_update_columns(request, (*ours.names, *in_folders), (*known, *in_folders) if known else ())
    if partial:
        used = {*file_keys, *(request.update_columns or ())}
        ours = without_columns(ours, [name for name in ours.names if name not in used])
    body = validate_keys_and_schema(
        ours,
        snapshot.schema,
        file_keys,
        schema_mode=request.schema_mode,
        operation=request.operation,
        path=path,
        partial=partial,
    )
    if snapshot.schema is None or not body.equals(snapshot.schema):
        check_writable(body, request.operation)
    if snapshot.schema is not None:
        folders = [source.field(name) for name in in_folders]
        refuse_case_twins([*folders, *snapshot.schema], [*folders, *body], f"{request.operation} of {path}")
    added = tuple(name for name in body.names if known and name not in known)
    keys, compared = _key_columns(request.key_columns, source, snapshot.schema)
    updated = request.update_columns
    if updated is None and any(name not in ours.names for name in body.names):
        updated = tuple(name for name in body.names if name in ours.names)
    written = tuple(ours.names)
    changes = schema_changes(snapshot.schema, body, request.evolve_files)
    return MergeSchemas(
        body,
        keys,
        partitions,
        added,
        tuple(in_folders),
        text_folders(snapshot),
        updated,
        written,
        compared,
        changes,
        request.evolve_files,
    )


def schema_changes(
    target: pa.Schema | None, body: pa.Schema, evolve_files: EvolveFiles | None
) -> tuple[SchemaChange, ...]:
    """Return the columns that are stored in another way after a change than before it."""
    if target is None:
        return ()
    files: EvolveFiles = evolve_files or "all"
    old = {field.name: field.type for field in target}
    return tuple(
        SchemaChange(field.name, "widened", str(old[field.name]), str(field.type), files)
        if field.name in old
        else SchemaChange(field.name, "added", "", str(field.type), files)
        for field in body
        if field.name not in old or not same_storage(old[field.name], field.type)
    )


def columns_not_written(
    request: MergeRequest, source: pa.Schema, partitions: Sequence[str], known: Sequence[str]
) -> list[str]:
    """Return the source columns that are not written.

    These are ``except_columns``, columns that are not in ``columns``, and columns that only a condition reads: a column
    that ``delete_when`` reads and an existing dataset lacks, such as ``op``, unless new columns are added to it.
    """
    needed = {*request.key_columns, *partitions, request.newer_by}
    named = [*request.except_columns, *(request.columns or ())]
    unknown = [name for name in named if name not in source.names]
    if unknown:
        raise ColumnNameError(f"column(s) {unknown} not found in the source. Choose among {source.names}.")
    kept = [name for name in request.except_columns if name in needed]
    if kept:
        raise ColumnNameError(f"except_columns names {kept}, which the dataset needs. Leave them out.")
    others = [] if request.columns is None else [name for name in source.names if name not in request.columns]
    adds_columns = not known or request.schema_mode == "evolve"
    with errors_name("delete_when"):
        named = [] if request.delete_when is None or adds_columns else columns_named(request.delete_when, source)
    only_read = [name for name in named if name not in known]
    return [*request.except_columns, *(name for name in (*others, *only_read) if name not in needed)]


def _check_update_columns(request: MergeRequest, source: Sequence[str], known: Sequence[str]) -> None:
    names = request.update_columns or ()
    unknown = [name for name in names if name not in source or (known and name not in known)]
    if unknown or not names:
        named = f"{unknown}, which not both of source and dataset have" if unknown else "no columns"
        raise ColumnNameError(f"update_columns names {named}. Choose columns of both.")
    keys = [name for name in names if name in request.key_columns]
    if keys:
        raise ColumnNameError(f"update_columns names the key column(s) {keys}, which do not change. Leave them out.")


def _key_columns(
    names: Sequence[str], source: pa.Schema, target: pa.Schema | None
) -> tuple[tuple[KeyColumn, ...], pa.Schema]:
    """Return the key columns with the types in which they are compared, and those whose values may not fit it."""
    keys, compared = [], []
    for name in names:
        type_ = key_type(source.field(name).type, name)
        if target is not None and name in target.names:
            type_, may_not_fit = key_compare_type(key_type(target.field(name).type, name), type_)
            compared += [(name, type_)] if may_not_fit else []
        keys.append(KeyColumn(name, type_))
    return tuple(keys), pa.schema(compared)


def without_columns(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return a schema without some columns, and without the metadata of pandas, which describes all columns."""
    kept = [field for field in schema if field.name not in names]
    metadata = dict(schema.metadata or {})
    if len(kept) < len(schema):
        metadata.pop(b"pandas", None)
    return pa.schema(kept, metadata or None)


def check_partition_columns(partitions: Sequence[str], source: pa.Schema, named: Sequence[str] | None) -> None:
    """Raise if a partition column is missing in the source. ``named`` are those that the caller names."""
    missing = [name for name in partitions if name not in source.names]
    if missing and named:
        raise ColumnNameError(
            f"partition_by names {missing}, which the source does not have. Choose among {source.names}."
        )
    if missing:
        raise SchemaMismatchError(f"the source lacks the partition column(s) {missing}. Add them to the source.")


def file_schema(file: pa.Schema, schemas: MergeSchemas, touched: bool) -> pa.Schema:
    """Return the schema of a file after the merge: its own, with wider types and new columns where needed.

    A file is ``touched`` if it gets source rows. Others get the changes of the schema, unless only touched ones do.
    """
    if not touched and schemas.evolve_files == "touched":
        return file
    body, changed = schemas.body, {change.column for change in schemas.changes}
    if touched or schemas.evolve_files == "all":
        changed = set(body.names)
    fields = [_field_after(own, body.field(own.name), touched) if own.name in changed else own for own in file]
    missing = [field for field in body if field.name not in file.names and field.name in changed]
    return pa.schema([*fields, *missing], file.metadata)


def _field_after(own: pa.Field, merged: pa.Field, touched: bool) -> pa.Field:
    nullable = own.nullable or (touched and merged.nullable)
    kept = own.with_nullable(nullable)
    if touched:
        kept = same_categories(kept, merged)
    if same_storage(own.type, merged.type) and not (touched and _has_wider_codes(merged.type, own.type)):
        return kept
    return kept.with_type(merged.type)


def _has_wider_codes(merged: pa.DataType, own: pa.DataType) -> bool:
    both = pa.types.is_dictionary(merged) and pa.types.is_dictionary(own)
    return bool(both and merged.index_type.bit_width > own.index_type.bit_width)


def keeps_schema(own: pa.Schema, schemas: MergeSchemas) -> bool:
    """Return whether a file that gets no source row keeps its schema."""
    return bool(file_schema(own, schemas, touched=False).equals(own))


class _FileSchemas:
    """A cache of the schemas of files after the merge: thousands of files share a few schema objects."""

    def __init__(self, schemas: MergeSchemas, adds_rows: bool) -> None:
        self._schemas, self._adds_rows = schemas, adds_rows
        self._known: dict[tuple[int, bool], pa.Schema] = {}

    def after(self, own: pa.Schema, touched: bool) -> pa.Schema:
        """Return the schema of a file after the merge, or the same object if it does not change.

        No schema changes if the merge neither inserts nor updates rows.
        """
        if not self._adds_rows:
            return own
        key = (id(own), touched)
        if key not in self._known:
            schema = file_schema(own, self._schemas, touched)
            self._known[key] = own if schema.equals(own, check_metadata=True) else schema
        return self._known[key]


@dataclass(frozen=True, slots=True, eq=False)
class FileChange:
    """What a merge does to a file.

    Attributes:
        match: The rows that get new values, with their source rows.
        dropped: The rows that are removed, ascending.
        drop_others: Whether all rows that are not in ``match`` are removed. Then ``dropped`` is empty.
        reason: Why the file is in the plan.
    """

    file: DataFile
    match: Match | RemoteMatch
    dropped: RowNumbers
    reason: str
    drop_others: bool = False

    @property
    def lost(self) -> int:
        """Number of removed rows."""
        if self.drop_others:
            return self.file.rows - self.match.hits
        return self.match.drops if isinstance(self.match, RemoteMatch) else len(self.dropped)


def rewrite_tasks(
    changes: Sequence[FileChange], schemas: MergeSchemas, request: MergeRequest, *, adds_rows: bool
) -> list[RewriteTask]:
    """Return tasks for the files that change: rows are updated or removed, or types become wider."""
    tasks = []
    file_schemas = _FileSchemas(schemas, adds_rows)
    for each in changes:
        file, hits = each.file, each.match.hits
        schema = file_schemas.after(file.schema, hits > 0)
        if hits == 0 and not each.lost and schema is file.schema:
            continue
        remote = each.match if isinstance(each.match, RemoteMatch) else None
        match = each.match if isinstance(each.match, Match) else NO_MATCH
        change = RowChange(
            match.positions,
            match.source_rows,
            each.dropped,
            each.drop_others,
            schemas.updated,
            keep_for_null=request.ignore_null_updates,
            remote=remote,
        )
        tasks.append(RewriteTask(file, change, schema, request.key_columns, request.skip_unchanged, request.options))
    return tasks


def check_evolution(rewrites: Sequence[RewriteTask], schemas: MergeSchemas, request: MergeRequest, path: str) -> None:
    """Raise if a changed schema would rewrite many files in which no row changes, and nobody asked for that."""
    others = [task.file.size for task in rewrites if not task.change.hits and not task.change.drops]
    if request.evolve_files is not None or sum(others) <= MOST_UNASKED_BYTES:
        return
    touched = [task.file.size for task in rewrites if task.change.hits or task.change.drops]
    named = ", ".join(
        f"{each.column} ({f'{each.old} -> ' if each.old else 'new, '}{each.new})" for each in schemas.changes
    )
    error = SchemaMismatchError(
        f"{request.operation} of {path}: the schema changes: {named}. No row changes in {counted(len(others), 'file')} "
        f"({readable_bytes(sum(others))}), so rewriting them is your decision. Nothing was changed. Pass "
        f'evolve_files="touched" to rewrite only {counted(len(touched), "file")} ({readable_bytes(sum(touched))}): '
        'readers then fill in null or convert the other files; or evolve_files="all" to rewrite all.'
    )
    error.wrong_call = True
    raise error


def new_file_options(snapshot: Snapshot, options: WriteOptions) -> WriteOptions:
    """Return the options of new files: the codec is that of the dataset, unless the caller chose one."""
    if options.compression is not None or not snapshot.files or not snapshot.files[0].codec:
        return options
    return replace(options, compression=codec_name(snapshot.files[0].codec))


def insert_tasks(
    groups: Sequence[tuple[PartitionRows, RowNumbers | range]],
    schemas: MergeSchemas,
    snapshot: Snapshot,
    options: WriteOptions,
) -> list[WriteTask]:
    """Return tasks for the inserted rows: new files with at most ``max_rows_per_file`` rows."""
    options, step = new_file_options(snapshot, options), options.max_rows_per_file
    return [
        WriteTask(new_file_name(group.folder), rows[start : start + step], schemas.body, options)
        for group, rows in groups
        for start in range(0, len(rows), step)
    ]

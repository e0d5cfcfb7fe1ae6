"""Adopt a folder of others: find out what is in it, and record its key and types with kept versions.

No data file is changed: the commit sets the key, the types of the partition columns, and for how long files are kept.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from fsspeckit.common.errors import ColumnNameError, KeyColumnError, PartitionError, SchemaMismatchError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.partitions import reads_all
from fsspeckit.common.text import counted
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.transaction import Changes
from fsspeckit.core.dataset.indexed_files import partition_values
from fsspeckit.core.dataset.place import Place, load_unchanged, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_files, load_snapshot, partition_schema
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.constants import sql_name
from fsspeckit.core.kernels.find_duplicates import CountDuplicates, SplitKeys, partition_count, row_group_spans
from fsspeckit.core.model import DataFile, KeyColumn
from fsspeckit.core.operations.versions import not_found
from fsspeckit.core.parquet.data_files import read_writer
from fsspeckit.core.planning.key_candidates import candidate_keys, is_named_as_key
from fsspeckit.core.planning.merge_request import check_keys_exist
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.result_view import ResultView, readable_bytes
from fsspeckit.core.storage import for_each
from fsspeckit.core.values.keys import key_type

_RETAIN = 7 * 86_400
_SMALL = 16 * 2**20
_SMALL_FILES = 2
_WRITERS_OF = 64
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class AdoptRequest:
    """The options of `adopt`: the key and partition types of the caller, and the seconds to keep files for."""

    key_columns: tuple[str, ...] | None = None
    partition_types: Mapping[str, pa.DataType] = field(default_factory=dict)
    retain: int | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AdoptResult(ResultView):
    """What is in a folder, what is recorded of it, and the commands that are recommended.

    Attributes:
        key_columns: The key that is recorded; empty if none is certain.
        unique_keys: Columns that are unique in all rows, best first.
        partition_types: The types of the partition columns.
        int96: Columns of INT96 timestamps.
        mixed_types: Columns that have several types, with the number of files of each.
        writers: The programs that wrote the files, as some of the footers name them, with the number of files.
        small_files: Files below 16 MB in folders with several of them.
        commands: What is recommended, as commands of the command line.
    """

    path: str
    rows: int = 0
    files: int = 0
    bytes: int = 0
    key_columns: list[str] = field(default_factory=list)
    unique_keys: list[list[str]] = field(default_factory=list)
    partition_types: dict[str, str] = field(default_factory=dict)
    int96: list[str] = field(default_factory=list)
    mixed_types: dict[str, dict[str, int]] = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)
    small_files: int = 0
    retain: int = 0
    commands: list[str] = field(default_factory=list)
    commit_seq: int | None = None
    seconds: float = 0.0
    dry_run: bool = False

    def _lines(self) -> list[tuple[str, str]]:
        would = "would be recorded" if self.dry_run else "recorded"
        keys = [", ".join(key) for key in self.unique_keys]
        partitions = ", ".join(f"{name} {type_}" for name, type_ in self.partition_types.items())
        mixed = [f"{name}: {_counts(types)}" for name, types in self.mixed_types.items()]
        return [
            ("rows", f"{self.rows:,}"),
            ("files", f"{self.files:,} ({readable_bytes(self.bytes)})"),
            ("written by", _counts(self.writers) or "unknown"),
            ("unique keys", "; ".join(keys) or "none found"),
            ("key", f"{', '.join(self.key_columns)} ({would})" if self.key_columns else "none, name it with --key"),
            ("partition columns", f"{partitions} ({would})" if partitions else "none"),
            ("timestamps", f"INT96 in {', '.join(self.int96)}" if self.int96 else "no INT96"),
            ("mixed types", "; ".join(mixed) or "none"),
            ("small files", f"{self.small_files:,}"),
            ("kept versions", f"{self.retain:,} seconds" if self.retain else "off"),
            *(("recommended", command) for command in self.commands),
        ]


def adopt(
    engine: Engine, place: Place, request: AdoptRequest, *, dry_run: bool = True, progress: Progress = None
) -> AdoptResult:
    """Look at a folder of Parquet files, and unless it is a dry run, record its key and types and keep its versions."""
    started = time.perf_counter()
    with log_unexpected("adopt", place.path), reporting("adopt", progress) as reporter:
        if not dry_run:
            place.journal.recover()
        found, changes, snapshot = load_unchanged(place, "adopt", lambda: _look(engine, place, request, reporter))
        commit = None
        if not dry_run:
            with (
                vanished_file_is_conflict(place, "adopt"),
                place.journal.begin(snapshot.view, "adopt") as transaction,
            ):
                commit = transaction.commit(changes).seq
        seconds = time.perf_counter() - started
        return replace(
            found,
            commands=_commands(found, place, request, dry_run=dry_run, can_join=snapshot.schema is not None),
            commit_seq=commit,
            seconds=seconds,
            dry_run=dry_run,
        )


def _look(
    engine: Engine, place: Place, request: AdoptRequest, reporter: Reporter
) -> tuple[AdoptResult, Changes, Snapshot]:
    view = place.journal.view_to_change()
    if view.is_missing:
        raise not_found(place)
    first = load_snapshot(place.storage, replace(view, files=view.files[:1]))
    names = [] if first.schema is None else first.schema.names
    on_done = reporter.stage("footers", len(view.files))
    columns, files = load_files(place.storage, view, names, on_done=on_done)
    mixed = _mixed_types(files)
    try:
        snapshot = load_snapshot(place.storage, view, stats_for=names, empty_may_differ=True)
    except SchemaMismatchError:
        snapshot = Snapshot(view.root, view, files, None, columns)
    types = _partition_types(snapshot, request)
    recorded = PartitionTypes.of(types, () if snapshot.schema is None else snapshot.schema.names)
    snapshot = replace(snapshot, view=replace(view, partition_types=recorded or view.partition_types))
    unique = _unique_keys(engine, place, snapshot, request, reporter)
    key = request.key_columns or place.journal.key_columns() or _best(unique)
    retain = view.log.retain or request.retain or 0
    sizes = Counter(file.folder for file in files if file.size < _SMALL)
    result = AdoptResult(
        path=place.path,
        rows=sum(file.rows for file in files),
        files=len(files),
        bytes=sum(file.size for file in files),
        key_columns=list(key),
        unique_keys=[list(each) for each in unique],
        partition_types={each.name: str(each.type) for each in types},
        int96=sorted({name for file in files for name in file.int96}),
        mixed_types=mixed,
        writers=_writers(place, files),
        small_files=sum(count for count in sizes.values() if count >= _SMALL_FILES),
        retain=retain,
    )
    info = {"operation": "adopt", "retain": retain}
    found = Changes(
        info=info, retain=retain, partition_types=recorded, key=tuple(key) or None, complete_view=True
    )  # a file that another writer adds meanwhile could have a key twice
    return result, found, snapshot


def _partition_types(snapshot: Snapshot, request: AdoptRequest) -> pa.Schema:
    """Return the types of the partition columns, those of the caller before others."""
    columns = snapshot.partition_columns
    if unknown := [name for name in request.partition_types if name not in columns]:
        raise ColumnNameError(
            f"partition_types names {unknown}, but the dataset is partitioned by {list(columns)}. Choose among them."
        )
    values = [each for each in partition_values(snapshot.files) if each is not None]
    for name, type_ in request.partition_types.items():
        texts = list(dict.fromkeys(each[columns.index(name)] for each in values))
        if not reads_all(texts, type_):
            wrong = next(text for text in texts if not reads_all([text], type_))
            raise PartitionError(
                f"partition_types has {type_} for {name!r}, but the folder {name}={wrong} is not one. Pass string."
            )
    return pa.schema(
        [each.with_type(request.partition_types.get(each.name, each.type)) for each in partition_schema(snapshot)]
    )


def _unique_keys(
    engine: Engine, place: Place, snapshot: Snapshot, request: AdoptRequest, reporter: Reporter
) -> list[tuple[str, ...]]:
    """Return keys without duplicates in all rows, best first. Only their columns are read."""
    if request.key_columns is not None:
        schema = pa.schema([]) if snapshot.schema is None else full_schema(snapshot)
        check_keys_exist(request.key_columns, schema.names, "dataset")
        if count := _duplicates(engine, place, snapshot, request.key_columns, reporter):
            raise KeyColumnError(
                f"{counted(count, 'row')} of {place.path} have a key of {list(request.key_columns)} that another row "
                "has too. Nothing was recorded. Choose other columns, or run deduplicate first."
            )
        return [request.key_columns]
    candidates = candidate_keys(place.storage, snapshot)
    return [key for key in candidates if not _duplicates(engine, place, snapshot, key, reporter)]


def _duplicates(engine: Engine, place: Place, snapshot: Snapshot, names: Sequence[str], reporter: Reporter) -> int:
    """Return the number of rows with a key of an earlier row. The memory is that of one part of the keys."""
    schema, items, parts = full_schema(snapshot), row_group_spans(snapshot.files), partition_count(snapshot.rows)
    keys = tuple(KeyColumn(name, key_type(schema.field(name).type, name)) for name in names)
    if not items:
        return 0
    split = SplitKeys(place.storage, keys, (), (), snapshot.partition_columns, False, parts)
    on_done = reporter.stage(f"check {', '.join(names)}", len(items) + parts)
    return sum(engine.exchange(split, items, CountDuplicates(len(keys)), parts, on_done))


def _best(unique: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the key that is certain enough to be recorded: one that is named as a key."""
    return next((key for key in unique if len(key) == 1 and is_named_as_key(key[0])), ())


def _mixed_types(files: Sequence[DataFile]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for file in files:
        for each in file.schema:
            found.setdefault(each.name, Counter())[str(each.type)] += 1
    return {name: dict(types.most_common()) for name, types in found.items() if len(types) > 1}


def _writers(place: Place, files: Sequence[DataFile]) -> dict[str, int]:
    """Return the programs that wrote the files, from the footers of some of them."""
    chosen = list(files)[:: max(1, len(files) // _WRITERS_OF)][:_WRITERS_OF]
    names = for_each(place.storage, lambda file: read_writer(place.storage, file), chosen)
    return dict(Counter(name.partition(" (build")[0] or "unknown" for name in names).most_common())


def _commands(found: AdoptResult, place: Place, request: AdoptRequest, *, dry_run: bool, can_join: bool) -> list[str]:
    """Return the commands that are recommended. Files whose columns have no common type cannot be joined."""
    path, commands = shlex.quote(place.path), []
    local = " --storage-option int96=local" if place.storage.int96_local else ""
    keys = found.key_columns or next(iter(found.unique_keys), [])
    if dry_run:
        options = "".join(f" --key {shlex.quote(name)}" for name in keys)
        if request.partition_types:
            types = ", ".join(f'"{name}" {sql_name(type_)}' for name, type_ in request.partition_types.items())
            options += f" --partition-types {shlex.quote(types)}"
        if request.retain != _RETAIN:
            options += f" --retain {'off' if request.retain is None else f'{request.retain}s'}"
        commands.append(f"fsspeckit adopt {path}{options}{local} --yes")
    if found.int96 and not local:
        commands.append(f"fsspeckit alter {path} --timestamps micros")
    if can_join and (found.small_files or found.mixed_types):
        commands.append(f"fsspeckit compact {path}")
    return commands


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{name} ({counted(count, 'file')})" for name, count in list(counts.items())[:_SHOWN]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")

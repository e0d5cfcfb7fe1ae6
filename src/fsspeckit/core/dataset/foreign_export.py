"""Remove an export to whose table another program committed: the dataset takes over the change, or drops its files.

The files that the program added are in the folder of the dataset, and those that it removed still are. So the metadata
that says which of them count is removed last, after the commit that makes the folder one or the other state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from fsspeckit.common.choices import ExportFormat, ForeignChange, check_choice
from fsspeckit.common.errors import TableFormatError
from fsspeckit.common.text import counted
from fsspeckit.core.commit.conflicts import Changes
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.export_marks import TITLES
from fsspeckit.core.commit.exports import ExportLog
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.terms import Terms
from fsspeckit.core.dataset.categories import columns_left
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import full_schema, load_snapshot
from fsspeckit.core.export.delta import DeltaState
from fsspeckit.core.export.delta_log import DeltaChanges, changes_of

_SHOWN = 20
_SETTLED = "delta-settled"
"""A note of the newest version of another program that the dataset has taken over or discarded."""


def remove_export(place: Place, kind: ExportFormat, foreign: ForeignChange | None) -> bool:
    """Delete the metadata of a format, and return whether there was any.

    Raises:
        TableFormatError: Another program committed to the table, and ``foreign`` does not say what to do with its
            change, or it cannot be done. Nothing was changed.
    """
    if foreign is not None:
        check_choice("foreign", foreign, get_args(ForeignChange))
    exports = place.journal.existing_exports()
    if exports is None or exports.newest_mark(kind) is None:
        return False
    with exports.lock():
        if kind == "iceberg":
            _settle_iceberg(exports, foreign)
        else:
            versions = exports.foreign_versions(kind) or {}
            newest = max(versions, default=-1)
            if newest > int(exports.read_note(_SETTLED) or -1):
                _settle_delta(place, exports, versions, foreign)
                exports.write_note(_SETTLED, str(newest).encode())  # a crash can leave some versions of the log
            exports.check_newest(kind, newest)
        done = exports.remove(kind)
        exports.write_note(_SETTLED, None)
    return done


def _settle_iceberg(exports: ExportLog, foreign: ForeignChange | None) -> None:
    """Delete the files of another program beside the dataset, if the caller wants that. None is in the dataset."""
    files = exports.foreign_files_of_iceberg()
    if not files:
        return
    folder = exports.folder("iceberg")
    what = f"Another program committed to the Apache Iceberg table {folder}. It has written {_list(files)}"
    if foreign == "keep":
        raise TableFormatError(
            f"{what}. Its files are no files of the dataset, and may say that rows are deleted, so the dataset "
            "cannot take "
            "over the change. Nothing was changed. Read the table with a reader of Iceberg, write its rows to a "
            "new folder, or remove the export with foreign='discard'."
        )
    if foreign is None:
        raise TableFormatError(
            f"{what}, and may have deleted rows of the table; the dataset has none of that. Nothing was changed. Run "
            "`fsspeckit export iceberg PATH --remove --foreign discard` to delete the table with these files and "
            "continue with the dataset as it is, or read the table with a reader of Iceberg first."
        )
    exports.discard_iceberg()


@dataclass(frozen=True, slots=True)
class _Delta:
    """A Delta table after the change of another program, and the dataset: its view, and the files it had before."""

    changes: DeltaChanges
    view: View
    own: frozenset[str]
    is_behind: bool
    key: str

    @property
    def listed(self) -> frozenset[str]:
        return frozenset(file.path for file in self.view.files)

    @property
    def foreign(self) -> list[str]:
        """The files in the folder that the other program added."""
        return sorted((self.listed & set(self.changes.added)) - self.own)


def _settle_delta(place: Place, exports: ExportLog, versions: dict[int, bytes], foreign: ForeignChange | None) -> None:
    """Make the dataset what the caller wants, in one commit."""
    place.journal.recover()
    place.journal.ignores_foreign_export = True
    delta = _delta(place, exports, versions)
    if exports.committed(delta.key) is not None:
        if foreign == "discard":
            raise TableFormatError(
                f"{place.path} has taken over version {delta.changes.version} of the Delta table already, so its "
                "files are "
                "those of the dataset. Nothing was changed. Remove the export with foreign='keep'."
            )
        return
    if foreign is None and not delta.changes.is_empty:
        raise _refusal(place, exports, delta, versions)
    if foreign == "keep":
        _take_over(place, exports, delta)
    elif delta.foreign or delta.own - delta.listed:
        _discard(place, exports, delta)


def _delta(place: Place, exports: ExportLog, versions: dict[int, bytes]) -> _Delta:
    mark = exports.newest_mark("delta")
    assert mark is not None
    state = DeltaState.from_bytes(exports.read_state(mark), place.path)
    is_from_start = min(versions, default=0) <= mark.version  # another program replaced the version of fsspeckit
    known = () if is_from_start else tuple(state.files)
    changes = changes_of(versions, known, state.partition_columns, exports.folder("delta"))
    if is_from_start:
        changes = replace(changes, added=tuple(path for path in changes.added if path not in state.files))
    commits = exports.commits_after(mark)
    own = set(state.files)
    for record in commits or ():
        own -= {item.path for item in record.retire}
        own |= {item.path for item in record.publish}
    is_behind = commits is None or any(record.paths for record in commits)
    view = place.journal.view_to_change()
    return _Delta(changes, view, frozenset(own), is_behind, f"delta/{state.identifier}/{changes.version}")


def _refusal(place: Place, exports: ExportLog, delta: _Delta, versions: dict[int, bytes]) -> TableFormatError:
    found, first = delta.changes, min(versions, default=0)
    facts = [f"added {_list(found.added)}"] if found.added else []
    facts += [f"removed {_list(found.removed)}"] if found.removed else []
    facts += [f"made what plain Parquet files cannot have ({_shown(found.problems)})"] if found.problems else []
    numbers = f"version {first}" if first == found.version else f"versions {first} to {found.version}"
    return TableFormatError(
        f"Another program committed {numbers} to the {TITLES['delta']} table {exports.folder('delta')}, which "
        "fsspeckit "
        f"exported: it {' and '.join(facts)}. The dataset does not have that change. Nothing was changed. Run "
        f"`fsspeckit export delta {place.path} --remove --foreign keep` to let the dataset hold what the table "
        "holds, or "
        "with `--foreign discard` to delete the added files, so that the dataset stays as it was."
    )


def _take_over(place: Place, exports: ExportLog, delta: _Delta) -> None:
    """Commit that the dataset has the files of the newest version of the table, and no others."""
    problems = list(delta.changes.problems)
    if delta.is_behind:
        problems.append("the dataset has commits after its export, which the table does not have")
    missing = sorted(delta.changes.active - delta.listed)
    problems += [f"files of the table are missing: {_shown(missing)}"] if missing else []
    if problems:
        raise TableFormatError(
            f"{place.path} cannot take over version {delta.changes.version} of the Delta table: {_shown(problems)}. "
            "Nothing "
            "was changed. Read the table with a reader of Delta and write its rows to a new folder, or remove the "
            "export "
            "with foreign='discard'."
        )
    kept = tuple(file for file in delta.view.files if file.path in delta.changes.active)
    if kept:
        full_schema(load_snapshot(place.storage, replace(delta.view, files=kept, index=None), empty_may_differ=True))
    place.journal.terms = Terms(key=delta.key)
    _commit(place, exports, delta, sorted(delta.listed - delta.changes.active), "take over delta table")


def _discard(place: Place, exports: ExportLog, delta: _Delta) -> None:
    """Commit that the dataset does not have the files of the other program."""
    missing = sorted(delta.own - delta.listed)
    if missing:
        raise TableFormatError(
            f"{place.path} cannot stay as it was: {_list(missing)} of the dataset are missing, which the other "
            "program may "
            "have deleted. Nothing was changed. Restore the files, or remove the export with foreign='keep'."
        )
    _commit(place, exports, delta, delta.foreign, "discard foreign files")


def _commit(place: Place, exports: ExportLog, delta: _Delta, retire: Sequence[str], operation: str) -> None:
    exports.set_kept("delta", is_kept=False)  # a new version would be refused
    info = {"operation": operation, "delta_version": delta.changes.version}
    every = tuple(file.path for file in delta.view.files)
    with place.journal.begin(delta.view, operation) as transaction:
        changes = Changes(retire=tuple(retire), inputs=every, complete_view=True, info=info)
        transaction.commit(replace(changes, emptied=lambda: _columns(place, delta.view)))


def _columns(place: Place, view: View) -> Emptied | None:
    """Return the columns of the dataset, for a table without rows."""
    view = replace(view, index=None)
    return columns_left(place.storage, load_snapshot(place.storage, view, empty_may_differ=True))


def _list(paths: Sequence[str]) -> str:
    return f"{counted(len(paths), 'file')} ({_shown(paths)})"


def _shown(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more

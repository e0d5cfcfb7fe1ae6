"""Methods of `DatasetIO` for kept versions: keep, list, compare and restore them, read changes, remove old ones."""

from __future__ import annotations

from typing import Any

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.core.commit.versions import History
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.operations import changes, versions
from fsspeckit.core.operations.attempts import check_retries
from fsspeckit.core.operations.versions import RestoreResult, VacuumResult, VersionDiff
from fsspeckit.datasets.arguments import Columns, Duration, column_names, parse_duration


class KeptVersions:
    """The methods of a `DatasetIO` for kept versions."""

    engine: Engine

    def _place(self, path: Any) -> Place:
        raise NotImplementedError

    def keep_history(self, path: Any, retain: Duration | None = "7d") -> int:
        """Keep the files that later commits replace, so that earlier versions can be read and restored.

        Kept files are beside the dataset, so other readers see the current version only. On a local disk they are
        links and need no copy.

        Args:
            path: The dataset's folder.
            retain: How long a version is kept after a commit replaced it, such as ``"7d"``, ``"12h"`` or ``"30m"``.
                ``None`` stops keeping files; those that are kept stay until `vacuum`.

        Returns:
            The number of the first version that is kept.

        Raises:
            DatasetNotFoundError: There is no dataset at the path; nothing was created.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2]}), folder)
            >>> version = io.keep_history(folder, retain="7d")
            >>> _ = io.delete(folder, where="id = 1")
            >>> io.read_parquet(folder)["id"].to_pylist(), io.read_parquet(folder, version=version)["id"].to_pylist()
            ([2], [1, 2])
        """
        return versions.keep_history(self._place(path), parse_duration("retain", retain))

    def history(self, path: Any) -> History:
        """Return the versions of a dataset, newest first.

        Args:
            path: The dataset's folder.

        Returns:
            A sequence of mappings with ``version``, ``at``, ``operation``, ``inserted``, ``updated``, ``deleted``,
            ``files``, ``bytes``, ``added_files``, ``removed_files``, ``idempotency_key``, ``note`` and ``readable``.
            Without `keep_history`, these are the last commits, which cannot be read.
        """
        return versions.history(self._place(path))

    def diff(self, path: Any, before: int, after: int) -> VersionDiff:
        """Return the files that differ between two versions, with their rows and bytes.

        Args:
            path: The dataset's folder.
            before: The number of a version.
            after: The number of another version.
        """
        return versions.diff(self._place(path), before, after)

    def restore(
        self,
        path: Any,
        *,
        version: int | None = None,
        as_of: Any = None,
        dry_run: bool = False,
        retries: int = DEFAULT_RETRIES,
    ) -> RestoreResult:
        """Make a kept version the current one. This is a commit like any other, and can be undone by a restore.

        Args:
            path: The dataset's folder.
            version: The number of the version, as `history` lists it.
            as_of: Instead, a time such as ``"2026-11-02T10:00Z"``: the version that was current then.
            dry_run: Return the files that would change, and write nothing.
            retries: How often the restore is planned again if another writer commits at the same time.

        Raises:
            VersionNotFoundError: There is no such version, or it is not kept.
            DamagedFileError: The footer of a file that would come back is damaged; nothing was changed.
            CommitConflictError: Another writer committed in every attempt; nothing was changed.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2]}), folder)
            >>> version = io.keep_history(folder)
            >>> _ = io.delete(folder, where="true")
            >>> _ = io.restore(folder, version=version)
            >>> io.read_parquet(folder)["id"].to_pylist()
            [1, 2]
        """
        retries, place = check_retries(retries), self._place(path)
        return versions.restore(place, version, as_of, dry_run=dry_run, retries=retries)

    def changes(self, path: Any, *, since: int, until: int | None = None, key_columns: Columns | None = None) -> Any:
        """Return the rows that commits inserted, updated and deleted.

        Only the files that these commits replaced and published are read. Compactions and sorts change no rows.

        Args:
            path: The dataset's folder.
            since: The number of a kept version: changes of later commits are returned.
            until: The number of the last commit; by default the newest one.
            key_columns: The column or columns that identify a row. If a commit removed and added rows of one key, they
                are ``update_before`` and ``update_after``; otherwise, and without key columns, ``delete`` and
                ``insert``.

        Returns:
            An Arrow table, on Spark a DataFrame: the columns of the dataset, ``_change_type``, ``_version`` and
            ``_at``, the time of the commit. Rows have no order.

        Raises:
            VersionNotFoundError: The version is not kept.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), folder)
            >>> version = io.keep_history(folder)
            >>> _ = io.merge(pa.table({"id": [2], "v": ["B"]}), folder, strategy="upsert", key_columns="id")
            >>> feed = io.changes(folder, since=version, key_columns="id")
            >>> feed.select(["id", "v", "_change_type"]).to_pylist()[1]
            {'id': 2, 'v': 'B', '_change_type': 'update_after'}
        """
        return changes.changes(self.engine, self._place(path), since, until, column_names(key_columns) or ())

    def vacuum(self, path: Any, *, older_than: Duration | None = None, dry_run: bool = False) -> VacuumResult:
        """Remove the kept files of old versions. The current version does not change.

        Args:
            path: The dataset's folder.
            older_than: Remove versions that were replaced longer ago, such as ``"3d"``; ``"0s"`` removes all. By
                default, the time of `keep_history`, or all versions if no files are kept any more.
            dry_run: Return what would be removed, and remove nothing.
        """
        return versions.vacuum(self._place(path), parse_duration("older_than", older_than), dry_run=dry_run)

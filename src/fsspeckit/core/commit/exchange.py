"""Publish a commit with one system call, so that readers without fsspeckit see the dataset before or after it.

A second tree is built in the staging folder: hard links to all files that stay, and to the staged files under their
names. Then the two trees exchange their places. Rewritten files have new names, so a reader with an older listing
finds all files of that listing, or one of them is missing and it has to list again. A reader that lists with several
calls, and ignores files that vanish between them, can still mix two states.

Another program may write to the folder while the tree is built. Its changes are found in the old tree and repeated.
The caller holds the lock of the sidecar. If a step fails, the ordinary way of publishing can still be used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

from fsspeckit.core.commit.record import Identity, Record
from fsspeckit.core.storage import Entry, Storage, Tree, join, parent

TREE = "tree"
"""Name of the second tree in a staging folder."""
_MOST_FILES = 10_000
_logger = logging.getLogger(__name__)


def can_exchange(storage: Storage, root: str, record: Record) -> bool:
    """Return whether a commit can be published by an exchange: the folder exists, and its storage can do it."""
    return storage.can_exchange and "" not in record.folders and storage.sidecar_parent(root) is not None


class Exchange:
    """Publishes one record by an exchange of trees."""

    def __init__(self, storage: Storage, root: str, staging: str, record: Record) -> None:
        self._storage, self._root, self._record = storage, root, record
        self._staging, self._tree = staging, join(staging, TREE)

    def publish(self) -> bool:
        """Build the second tree and exchange it. Return False, with nothing changed, if the folder is unsuitable."""
        before = self._storage.list_tree(self._root)
        if before.sidecars or len(before.files) > _MOST_FILES:
            return False
        gone = self._gone(before)
        try:
            self._build(before, gone)
            self._storage.exchange(self._root, self._tree)
        except OSError as error:
            _logger.info("%s is published file by file: %s", self._root, error)
            self._storage.remove_tree(self._tree)
            return False
        self._storage.sync_dirs([parent(self._root), self._staging])
        self._repeat_foreign_changes(before, gone)
        return True

    def _gone(self, before: Tree) -> set[str]:
        """Return the paths of files that the record retires or replaces, if they are still the same files."""
        listed = {entry.path: entry for entry in before.files}
        identities: dict[str, Identity] = {item.path: item.identity for item in self._record.retire}
        identities |= {item.path: item.replaces for item in self._record.publish if item.replaces is not None}
        changed = {path for path, identity in identities.items() if not identity.matches(listed.get(path))}
        for path in changed & listed.keys():
            _logger.warning("%s was changed after commit %d; the file is kept", path, self._record.seq)
        return identities.keys() - changed

    def _build(self, before: Tree, gone: set[str]) -> None:
        kept = [entry.path for entry in before.files if entry.path not in gone]
        folders = self._folders(before, kept)
        self._storage.copy_folder(self._root, self._tree)
        for folder in folders:
            self._storage.copy_folder(join(self._root, folder), join(self._tree, folder))
        for path in kept:
            with suppress(FileNotFoundError):  # another program deleted it
                self._storage.link(join(self._root, path), join(self._tree, path))
        for item in self._record.publish:
            staged = join(self._staging, item.staged)
            try:
                self._storage.link(staged, join(self._tree, item.path))
            except FileExistsError:
                self._storage.link(staged, join(self._tree, item.other_path))
        self._storage.sync_dirs([self._tree, *(join(self._tree, folder) for folder in folders)])

    def _folders(self, before: Tree, kept: Iterable[str]) -> list[str]:
        """Return the folders of the new tree, parents first: without partitions that lose their last file."""
        left = _folders_of([*kept, *(item.path for item in self._record.publish)])
        filled = _folders_of(entry.path for entry in before.files)
        return sorted(left | {folder for folder in before.folders if folder not in filled})

    def _repeat_foreign_changes(self, before: Tree, gone: set[str]) -> None:
        """Repeat, in the new tree, what other programs added, replaced or deleted in the old one since its listing."""
        known = {entry.path: entry for entry in before.files}
        after = {entry.path: entry for entry in self._storage.list_tree(self._tree).files}
        for path, entry in after.items():
            if path not in known or not _same(known[path], entry):
                self._carry_over(path, entry)
        for path in known.keys() - after.keys() - gone:
            self._storage.remove(join(self._root, path))

    def _carry_over(self, path: str, entry: Entry) -> None:
        current = self._storage.stat(join(self._root, path))
        if current is not None and _same(current, entry):
            return
        _logger.warning("%s was changed during commit %d; the change is kept", path, self._record.seq)
        self._storage.make_dirs(parent(join(self._root, path)))
        self._storage.publish(join(self._tree, path), join(self._root, path))

    def keep_additions(self) -> None:
        """After a crash behind the exchange: keep files that other programs added to the old tree."""
        try:
            old = self._storage.list_tree(self._tree)
        except FileNotFoundError:
            return
        ours = set(self._record.paths)
        for entry in old.files:
            if entry.path not in ours and self._storage.stat(join(self._root, entry.path)) is None:
                self._carry_over(entry.path, entry)


def _same(one: Entry, other: Entry) -> bool:
    return (one.size, one.stamp) == (other.size, other.stamp)


def _folders_of(paths: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for path in paths:
        folder = parent(path)
        while folder and folder not in folders:
            folders.add(folder)
            folder = parent(folder)
    return folders

"""Publish a commit with one system call, so that readers without fsspeckit see the dataset before or after it.

The smallest folder that contains all changes of the commit is exchanged: a partition, or the dataset. A second tree is
built in the staging folder: hard links to all files of that folder that stay, and to the staged files under their
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

TREE = "folder"
"""Name of the second tree in a staging folder."""
_MOST_FILES = 10_000
_logger = logging.getLogger(__name__)


def can_exchange(storage: Storage, root: str, record: Record) -> bool:
    """Return whether a commit needs an exchange, and its storage can do it. A single new file is one rename."""
    if not storage.can_exchange or "" in record.folders or len(record.paths) < 2:
        return False
    return bool(_common_folder(record)) or storage.sidecar_parent(root) is not None


class Exchange:
    """Publishes one record by an exchange of trees."""

    def __init__(self, storage: Storage, root: str, staging: str, record: Record) -> None:
        self._storage, self._record = storage, record
        self._folder = _common_folder(record)
        self._place = join(root, self._folder)
        self._staging, self._tree = staging, join(staging, TREE)

    def publish(self) -> bool:
        """Build the second tree and exchange it. Return False, with nothing changed, if the folder is unsuitable."""
        before = self._storage.list_tree(self._place)
        if before.sidecars or len(before.files) > _MOST_FILES:
            return False
        gone = self._gone(before)
        try:
            self._build(before, gone)
            self._storage.exchange(self._place, self._tree)
        except OSError as error:
            _logger.info("%s is published file by file: %s", self._place, error)
            self._storage.remove_tree(self._tree)
            return False
        self._storage.sync_dirs([parent(self._place), self._staging])
        self._repeat_foreign_changes(before, gone)
        return True

    def _inside(self, path: str) -> str:
        """Return a path of the dataset relative to the exchanged folder."""
        return path.removeprefix(f"{self._folder}/") if self._folder else path

    def _gone(self, before: Tree) -> set[str]:
        """Return the paths of files that the record retires or replaces, if they are still the same files."""
        listed = {entry.path: entry for entry in before.files}
        identities: dict[str, Identity] = {self._inside(item.path): item.identity for item in self._record.retire}
        replaced = [(item.path, item.replaces) for item in self._record.publish if item.replaces is not None]
        identities |= {self._inside(path): identity for path, identity in replaced}
        changed = {path for path, identity in identities.items() if not identity.matches(listed.get(path))}
        for path in changed & listed.keys():
            _logger.warning("%s was changed after commit %d; the file is kept", path, self._record.seq)
        return identities.keys() - changed

    def _build(self, before: Tree, gone: set[str]) -> None:
        kept = [entry.path for entry in before.files if entry.path not in gone]
        folders = self._folders(before, kept)
        self._storage.copy_folder(self._place, self._tree)
        for folder in folders:
            self._storage.copy_folder(join(self._place, folder), join(self._tree, folder))
        for path in kept:
            with suppress(FileNotFoundError):  # another program deleted it
                self._storage.link(join(self._place, path), join(self._tree, path))
        for item in self._record.publish:
            staged = join(self._staging, item.staged)
            try:
                self._storage.link(staged, join(self._tree, self._inside(item.path)))
            except FileExistsError:
                self._storage.link(staged, join(self._tree, self._inside(item.other_path)))
        self._storage.sync_dirs([self._tree, *(join(self._tree, folder) for folder in folders)])

    def _folders(self, before: Tree, kept: Iterable[str]) -> list[str]:
        """Return the folders of the new tree, parents first: without partitions that lose their last file."""
        left = _folders_of([*kept, *(self._inside(item.path) for item in self._record.publish)])
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
            self._storage.remove(join(self._place, path))

    def _carry_over(self, path: str, entry: Entry) -> None:
        current = self._storage.stat(join(self._place, path))
        if current is not None and _same(current, entry):
            return
        _logger.warning("%s was changed during commit %d; the change is kept", path, self._record.seq)
        self._storage.make_dirs(parent(join(self._place, path)))
        self._storage.publish(join(self._tree, path), join(self._place, path))

    def keep_additions(self) -> None:
        """After a crash behind the exchange: keep files that other programs added to the old tree."""
        try:
            old = self._storage.list_tree(self._tree)
        except FileNotFoundError:
            return
        ours = {self._inside(path) for path in self._record.paths}
        for entry in old.files:
            if entry.path not in ours and self._storage.stat(join(self._place, entry.path)) is None:
                self._carry_over(entry.path, entry)


def _common_folder(record: Record) -> str:
    """Return the smallest folder that contains all files of a record and existed before it; ``""`` is the dataset."""
    folders = [parent(path).split("/") for path in record.paths]
    common = []
    for names in zip(*folders, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    folder = "/".join(common)
    while folder and folder in record.folders:
        folder = parent(folder)
    return folder


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

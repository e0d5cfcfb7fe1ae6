"""Reject nested datasets, so that each file belongs to exactly one journal. Writes nothing.

Each writer creates its journal first and checks for others afterwards. If two writers create an outer and an inner
dataset at the same time, at least one of them sees the other and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fsspeckit.common.errors import NestedDatasetError
from fsspeckit.core.storage import Entry, Storage, Tree, for_each, join, parent
from fsspeckit.core.storage.base import JOURNAL_NAMES, LOCK, is_sidecar_name

INSIDE = ".fsspeckit"
"""Name of the sidecar inside a dataset whose parent folder is not writable, and suffix of a sidecar beside one."""
_MAX_NAMES = 3


def sidecar_beside(folder: str, name: str) -> str:
    """Return the path of the sidecar beside the dataset ``name`` in a folder."""
    return join(folder, f".{name}{INSIDE}")


def _dataset_of(sidecar: str) -> str:
    """Return the dataset that a sidecar belongs to."""
    folder, name = parent(sidecar), sidecar.rpartition("/")[2]
    return folder if name == INSIDE else join(folder, name.removesuffix(INSIDE).removeprefix("."))


def check_contains_no_dataset(root: str, tree: Tree, *, has_journal: bool = False) -> None:
    """Raise if the tree below the root contains the journal of another dataset."""
    journals = {_dataset_of(sidecar): join(root, sidecar) for sidecar in tree.sidecars if sidecar != INSIDE}
    gone = next((dataset for dataset in journals if not _has_files(dataset, tree)), None)
    if gone is not None:
        raise NestedDatasetError(
            f"{root} contains {journals[gone]}, the journal of the dataset {join(root, gone)}, which has no files. "
            "Delete the journal if that dataset no longer exists."
        )
    if journals:
        datasets = [join(root, dataset) for dataset in journals]
        advice = f"Move {datasets[0]} out of {root}" if has_journal else "Use the path of one dataset"
        raise NestedDatasetError(
            f"{root} contains other datasets ({_join_names(datasets)}): {next(iter(journals.values()))} is the journal "
            f"of one of them. {advice}{'' if has_journal else f', such as {datasets[0]}'}."
        )


def _has_files(folder: str, tree: Tree) -> bool:
    return any(entry.path.startswith(f"{folder}/") for entry in tree.files)


def check_partition_folders(root: str, paths: Iterable[str], has_journal: Callable[[], bool]) -> None:
    """Raise if data files are in folders that are neither the root nor hive partitions.

    If the root has a journal, its folders are not datasets, so the error does not suggest their paths.
    """
    folders = sorted({path.rpartition("/")[0] for path in paths})
    others = [folder for folder in folders if folder and not _is_partition(folder)]
    if others:
        advice = (
            f"move them out of {root}"
            if has_journal()
            else f"use the path of one dataset, such as {join(root, others[0])}"
        )
        raise NestedDatasetError(
            f"{root} has data files in folders that are not partitions ({_join_names(others)}), so it may contain "
            f"several datasets. Move the files into folders named column=value, or {advice}."
        )


def check_not_inside_dataset(
    storage: Storage, root: str, has_journal: Callable[[], bool] = lambda: False, *, takes_filter: bool = False
) -> None:
    """Raise if a folder above the root has a journal; ``takes_filter`` is for operations on some partitions."""
    canonical = storage.canonical(root)
    _check_is_no_journal(storage, canonical)
    candidates = list(_possible_outer_sidecars(storage, canonical))
    found = for_each(storage, lambda pair: _is_journal(storage, pair[1]), candidates)
    outer = next((pair for pair, is_journal in zip(candidates, found, strict=True) if is_journal), None)
    if outer is None:
        return
    dataset, sidecar = outer
    inner = canonical.removeprefix(dataset).strip("/")
    filtered = f" with partition_filter={inner!r}" if takes_filter and _is_partition(inner) else ""
    advice = f"Move {root} out of {dataset}" if has_journal() else f"Use the path {dataset}{filtered}"
    raise NestedDatasetError(
        f"{root} is inside the dataset {dataset}, whose journal is {sidecar}. {advice}, or delete that journal if "
        f"{dataset} is no dataset any more."
    )


def _check_is_no_journal(storage: Storage, root: str) -> None:
    """Raise if the path is the folder of a journal, or inside one."""
    folder = root
    while folder != parent(folder):
        if is_sidecar_name(folder.rpartition("/")[2]) and (folder == root or _is_journal(storage, folder)):
            raise NestedDatasetError(f"{folder} is the path of a journal, not of a dataset. Use another path.")
        folder = parent(folder)


def _is_journal(storage: Storage, sidecar: str) -> bool:
    """Return whether a folder is a journal: it has a lock file, or the folder of records if a copy lost that file."""
    if not storage.has_folders:
        return _stat_if_allowed(storage.stat_file, join(sidecar, LOCK)) is not None
    return any(_stat_if_allowed(storage.stat, join(sidecar, name)) is not None for name in JOURNAL_NAMES)


def _is_partition(folder: str) -> bool:
    return all(name.find("=") > 0 for name in folder.split("/"))


def _possible_outer_sidecars(storage: Storage, root: str) -> Iterator[tuple[str, str]]:
    """Yield each folder above the root with each path that its sidecar can have. Nothing is beside a bucket."""
    folder = parent(root)
    while folder and folder != root:
        yield folder, join(folder, INSIDE)
        above = parent(folder)
        if above != folder and (storage.has_folders or storage.sidecar_parent(folder) is not None):
            yield folder, sidecar_beside(above, folder.rpartition("/")[2])
        root, folder = folder, above


def _stat_if_allowed(stat: Callable[[str], Entry | None], path: str) -> Entry | None:
    """Return None for a folder without read permission: this user cannot use a journal in it."""
    try:
        return stat(path)
    except PermissionError:
        return None


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more

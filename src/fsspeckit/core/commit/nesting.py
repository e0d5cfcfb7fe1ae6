"""One journal for each file: no dataset lies inside another dataset, and no dataset contains another one.

Names the folders in which journals are kept, and refuses paths at which two journals would govern the same files.
Writes nothing. Concurrent writers: each creates its own journal first and checks afterwards, so of two writers that
start an outer and an inner dataset at the same time at least one sees the other and gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fsspeckit.common.errors import NestedDatasetError
from fsspeckit.core.storage import Entry, Storage, Tree, for_each, join, parent

INSIDE = ".fsspeckit"
"""The sidecar of a dataset that has no writable parent folder."""
LOCK = "lock"
"""A file that every sidecar has."""
_SHOWN = 3


def sidecar_beside(folder: str, name: str) -> str:
    """The sidecar of the dataset ``name`` in a folder."""
    return join(folder, f".{name}{INSIDE}")


def _dataset_of(sidecar: str) -> str:
    """The dataset that a sidecar belongs to."""
    folder, name = parent(sidecar), sidecar.rpartition("/")[2]
    return folder if name == INSIDE else join(folder, name.removesuffix(INSIDE).removeprefix("."))


def check_contains_no_dataset(root: str, tree: Tree, *, has_journal: bool = False) -> None:
    """Raise where a journal of another dataset was found below the root."""
    found = {_dataset_of(sidecar): join(root, sidecar) for sidecar in tree.sidecars if sidecar != INSIDE}
    gone = next((dataset for dataset in found if not _has_files(dataset, tree)), None)
    if gone is not None:
        raise NestedDatasetError(
            f"{root} contains {found[gone]}, the journal of the dataset {join(root, gone)}, which has no files. "
            "Delete the journal if that dataset no longer exists."
        )
    if found:
        datasets = [join(root, dataset) for dataset in found]
        advice = f"Move {datasets[0]} out of {root}" if has_journal else "Use the path of one dataset"
        raise NestedDatasetError(
            f"{root} contains other datasets ({_listed(datasets)}): {next(iter(found.values()))} is the journal of one "
            f"of them. {advice}{'' if has_journal else f', such as {datasets[0]}'}."
        )


def _has_files(folder: str, tree: Tree) -> bool:
    return any(entry.path.startswith(f"{folder}/") for entry in tree.files)


def check_partition_folders(root: str, paths: Iterable[str], has_journal: Callable[[], bool]) -> None:
    """Raise where data files lie in folders that are neither the root nor hive partitions.

    The folders of a dataset with a journal are no datasets of their own, so their paths are no way out.
    """
    folders = sorted({path.rpartition("/")[0] for path in paths})
    odd = [folder for folder in folders if folder and not all(map(_is_hive, folder.split("/")))]
    if odd:
        other = (
            f"move them out of {root}"
            if has_journal()
            else f"use the path of one dataset, such as {join(root, odd[0])}"
        )
        raise NestedDatasetError(
            f"{root} has data files in folders that are not partitions ({_listed(odd)}), so it may contain several "
            f"datasets. Move the files into folders named column=value, or {other}."
        )


def _is_hive(folder: str) -> bool:
    return folder.find("=") > 0


def check_not_inside_dataset(
    storage: Storage, root: str, has_journal: Callable[[], bool] = lambda: False, *, takes_filter: bool = False
) -> None:
    """Raise where a folder above the root has a journal; ``takes_filter`` is for operations on some partitions."""
    places = list(_journals_above(storage.canonical(root)))
    found = for_each(storage, lambda place: _stat_if_allowed(storage, join(place[1], LOCK)), places)
    outer = next((place for place, entry in zip(places, found, strict=True) if entry is not None), None)
    if outer is None:
        return
    dataset, sidecar = outer
    inner = storage.canonical(root).removeprefix(dataset).strip("/")
    filtered = f" with partition_filter={inner!r}" if takes_filter and _is_partition(inner) else ""
    advice = f"Move {root} out of {dataset}" if has_journal() else f"Use the path {dataset}{filtered}"
    raise NestedDatasetError(
        f"{root} is inside the dataset {dataset}, whose journal is {sidecar}. {advice}, or delete that journal if "
        f"{dataset} is no dataset any more."
    )


def _is_partition(folder: str) -> bool:
    return all(map(_is_hive, folder.split("/")))


def _journals_above(root: str) -> Iterator[tuple[str, str]]:
    """Datasets that the root could be inside of, each with the places where its journal may be."""
    folder = parent(root)
    while folder and folder != root:
        yield folder, join(folder, INSIDE)
        holder = parent(folder)
        if holder != folder:
            yield folder, sidecar_beside(holder, folder.rpartition("/")[2])
        root, folder = folder, holder


def _stat_if_allowed(storage: Storage, path: str) -> Entry | None:
    """A folder that may not be read has no journal that could be used."""
    try:
        return storage.stat(path)
    except PermissionError:
        return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

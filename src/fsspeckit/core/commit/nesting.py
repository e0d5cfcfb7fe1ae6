"""One journal for each file: no dataset lies inside another dataset, and no dataset contains another one.

Names the folders in which journals are kept, and refuses paths at which two journals would govern the same files.
Writes nothing. Concurrent writers: each creates its own journal first and checks afterwards, so of two writers that
start an outer and an inner dataset at the same time at least one sees the other and gives up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def check_contains_no_dataset(root: str, tree: Tree) -> None:
    """Raise where a journal of another dataset was found below the root."""
    found = [join(root, sidecar) for sidecar in tree.sidecars if sidecar != INSIDE]
    if found:
        datasets = list(dict.fromkeys(map(_dataset_of, found)))
        raise NestedDatasetError(
            f"{root} contains other datasets ({_listed(datasets)}): {found[0]} is the journal of one of them, to be "
            f"deleted by hand if that dataset no longer exists. Use the path of one dataset, such as {datasets[0]}."
        )


def check_partition_folders(root: str, paths: Iterable[str]) -> None:
    """Raise where data files lie in folders that are neither the root nor hive partitions."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    odd = [folder for folder in folders if folder and not all(map(_is_hive, folder.split("/")))]
    if odd:
        raise NestedDatasetError(
            f"{root} has data files in folders that are not partitions ({_listed(odd)}), so it may contain several "
            f"datasets. Use the path of one dataset, such as {join(root, odd[0])}, or move the files into folders "
            "named column=value."
        )


def _is_hive(folder: str) -> bool:
    return folder.find("=") > 0


def check_not_inside_dataset(storage: Storage, root: str) -> None:
    """Raise where a folder above the root has a journal."""
    places = list(_journals_above(storage.canonical(root)))
    found = for_each(storage, lambda place: _stat_if_allowed(storage, join(place[1], LOCK)), places)
    outer = next((place for place, entry in zip(places, found, strict=True) if entry is not None), None)
    if outer is None:
        return
    dataset, sidecar = outer
    inner = storage.canonical(root).removeprefix(dataset).strip("/")
    filtered = f", with partition_filter={inner!r} where an operation takes it" if _is_partition(inner) else ""
    raise NestedDatasetError(
        f"{root} is inside the dataset {dataset}, whose journal is {sidecar}. Use the path {dataset}{filtered}."
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

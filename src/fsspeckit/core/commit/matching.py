"""Find the files of a version among those that exist, although other programs have added files since then.

The record of a version has the number, the bytes and a digest of its files, but not their names. So files are left out
until the others match the digest. Which ones are tried first affects only the cost: what matches is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import combinations, islice

from fsspeckit.core.commit.record import FileList
from fsspeckit.core.file_names import is_unique
from fsspeckit.core.model import ViewFile

_MOST_DIGESTS = 64
_MOST_CHOICES = 50_000


class Matcher:
    """Finds the files of versions. The number of digests is limited for all versions together."""

    def __init__(self) -> None:
        self._left = _MOST_DIGESTS

    def find(
        self, listed: FileList, files: Mapping[str, ViewFile], own: Collection[str], at: float
    ) -> dict[str, ViewFile] | None:
        """Return the files of a version, or None if they are not among ``files``.

        ``own`` are the files that the commit of the version published, and ``at`` is its time. Files with unknown
        time count as old, and files whose names were made here are left out last.
        """
        extra, surplus = len(files) - listed.files, sum(file.size for file in files.values()) - listed.size
        if extra < 0 or surplus < 0:
            return None
        for left_out in _choices(files, own, at, extra, surplus):
            if not self._left:
                return None
            self._left -= 1
            found = {path: file for path, file in files.items() if path not in left_out}
            if FileList.of({path: file.size for path, file in found.items()}) == listed:
                return found
        return None


def _choices(
    files: Mapping[str, ViewFile], own: Collection[str], at: float, extra: int, surplus: int
) -> Iterator[set[str]]:
    """Yield sets of files that may have been added later, of the right number and size, likely ones first."""
    if not extra:
        yield from [set[str]()] * (not surplus)
        return
    candidates = [file for path, file in files.items() if path not in own and file.size <= surplus]

    def by_time(file: ViewFile) -> tuple[bool, float, str]:
        return file.modified > at, file.modified, file.path

    def by_name(file: ViewFile) -> tuple[bool, float, str]:
        return not is_unique(file.path), file.modified, file.path

    tried: list[set[str]] = []
    orders: tuple[tuple[Callable[[ViewFile], tuple[bool, float, str]], int], ...]
    orders = ((by_time, 1), (by_name, 1 + _MOST_CHOICES // extra))
    for order, most in orders:
        ordered = sorted(candidates, key=order, reverse=True)
        for choice in islice(combinations(ordered, extra), most):
            paths = {file.path for file in choice}
            if sum(file.size for file in choice) == surplus and paths not in tried:
                tried.append(paths)
                yield paths

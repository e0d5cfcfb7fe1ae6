"""The conditions that a caller can attach to a commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fsspeckit.common.text import is_storable
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.record import check_key

_MAX_NOTE = 1000

Check = Callable[[View, View, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """Conditions of a commit.

    At most one commit has a given idempotency ``key``. ``check`` gets the views before and after the change, with
    staged files, and the change's info; it raises to reject the change. With a check, any concurrent change of the
    dataset is a conflict. With either condition, an empty change is committed too. ``note`` is stored in the record,
    and so are ``positions``, the versions of other datasets up to which the change has processed their changes, and
    ``seen``, the source files that it has processed, as `seen_files.pack` returns them. A change that ``continues``
    earlier ones is rejected if their rows are gone, see `memory`; one with ``reload`` starts the dataset anew then.
    """

    key: str | None = None
    check: Check | None = None
    note: str | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    continues: bool = False
    reload: bool = False

    def __post_init__(self) -> None:
        if self.key is not None:
            check_key(self.key)
        if self.note is not None and (not is_storable(self.note) or len(self.note) > _MAX_NOTE):
            raise ValueError(f"The note of a commit is not a text of at most {_MAX_NOTE} characters. Shorten it.")

    def __bool__(self) -> bool:
        return self.key is not None or self.check is not None

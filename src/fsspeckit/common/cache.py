"""The cache folder of the user: files that can be made again, and marks of what a user has been told once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of fsspeckit in the user's cache folder. It may not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "fsspeckit"


def is_first_time(name: str) -> bool:
    """Return whether a mark is set for the first time. False if it cannot be stored."""
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        (cache_folder() / name).open("x").close()
        return True
    return False

"""Options of the format "fsspeckit" that all its readers and writers have: the path, the storage, lists and flags."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fsspeckit.core.dataset.place import Place

STORAGE = "storage."


def path_of(options: Mapping[str, str]) -> str:
    """Return the folder of the dataset."""
    path = options.get("path")
    if not path:
        raise ValueError("the dataset has no path. Name its folder.")
    return path


def place_of(options: Mapping[str, str]) -> Place:
    """Return the dataset."""
    storage = {name.removeprefix(STORAGE): value for name, value in options.items() if name.startswith(STORAGE)}
    return Place.of(path_of(options), None, storage or None)


def listed(value: str | None) -> list[str]:
    """Return a list that is written with commas.

    Example:
        >>> listed("id, day"), listed(None)
        (['id', 'day'], [])
    """
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is true."""
    text = (options.get(name) or "false").strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"the option {name!r} is {text!r}. Use true or false.")
    return text == "true"


def number_of(options: Mapping[str, str], name: str) -> int | None:
    """Return an option that is a number; None if it is not given."""
    text = options.get(name)
    if text is not None and not text.strip().isdecimal():
        raise ValueError(f"the option {name!r} is {text!r}. Use a number.")
    return None if text is None else int(text)


def check_known(options: Mapping[str, str], known: Collection[str]) -> None:
    """Raise for an option that would have no effect."""
    unknown = sorted(name for name in options if name not in known and not name.startswith(STORAGE))
    if unknown:
        raise ValueError(f"the option {unknown[0]!r} is unknown here. Use {', '.join(sorted(known))}.")

"""How to install a missing dependency: by its own name, in the version that this package declares.

Extras of this package are never named: a registry may have an unrelated package of the same name.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

_REQUIREMENT = re.compile(r"([\w.-]+)([<>=!~][^;]*)?(?:;|$)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
DEVELOPMENT = frozenset(("bench", "demo", "docs", "integrations", "pandas", "readers", "test", "versions"))
"""Extras for the development of this package."""


def extras() -> dict[str, tuple[str, ...]]:
    """Return the packages of each extra that users can install, by the metadata of this package.

    Examples:
        >>> extras()["s3"]
        ('s3fs',)
    """
    found: dict[str, tuple[str, ...]] = {}
    for line in _declared():
        package, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        if package is not None and extra is not None and extra[1] not in DEVELOPMENT:
            found[extra[1]] = (*found.get(extra[1], ()), package[1])
    return found


def _declared() -> list[str]:
    try:
        return requires("fsspeckit") or []
    except PackageNotFoundError:  # run from its source, without being installed
        return []


def install_command(*packages: str) -> str:
    """The command that installs some dependencies.

    Examples:
        >>> install_command("duckdb")
        "pip install 'duckdb>=1.4'"
    """
    found = {match[1]: match[1] + (match[2] or "") for line in _declared() if (match := _REQUIREMENT.match(line))}
    return "pip install " + " ".join(f"'{found.get(package, package).strip()}'" for package in packages)

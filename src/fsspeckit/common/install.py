"""How to install a missing dependency: by its own name, in the version that this package declares.

Extras of this package are never named: a registry may have an unrelated package of the same name.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

_REQUIREMENT = re.compile(r"([\w.-]+)([<>=!~][^;]*)?(?:;|$)")


def install_command(*packages: str) -> str:
    """The command that installs some dependencies.

    Examples:
        >>> install_command("duckdb")
        "pip install 'duckdb>=1.4'"
    """
    try:
        declared = requires("fsspeckit") or []
    except PackageNotFoundError:  # run from its source, without being installed
        declared = []
    found = {match[1]: match[1] + (match[2] or "") for line in declared if (match := _REQUIREMENT.match(line))}
    return "pip install " + " ".join(f"'{found.get(package, package).strip()}'" for package in packages)

"""Names of the files that fsspeckit creates: always new, never one that stands in the dataset."""

from __future__ import annotations

import re
import uuid
from posixpath import basename, dirname, join

_TOKEN = re.compile(r"-r[0-9a-f]{12}$")


def new_file_name(folder: str, template: str | None = None, index: int = 0) -> str:
    """A file's path below the dataset; a template has ``{i}`` where the number goes."""
    name = f"part-{uuid.uuid4().hex[:20]}.parquet" if template is None else template.replace("{i}", str(index))
    return join(folder, name)


def rewritten_name(path: str) -> str:
    """A new name beside the old one, for storages where a file is not replaced in place."""
    stem, dot, ending = basename(path).rpartition(".")
    stem = _TOKEN.sub("", stem if dot else ending)
    return join(dirname(path), f"{stem}-r{uuid.uuid4().hex[:12]}.parquet")

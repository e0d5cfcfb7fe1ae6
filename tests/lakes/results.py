"""What the tests of lakes show, for docs/engines.md. `python tests/lakes/results.py` notes what readers can read."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lakes.gaps import gaps
from lakes.model import FOLDER, LAKES, Lake
from lakes.readers import READERS, Seen, by_spark, seen

_NOTED = FOLDER / "readers.json"
_ALL, _SOME, _NONE = "all", "some", "no"


def noted(lake: Lake) -> dict[str, str]:
    """How much of a lake each reader reads with the values of the model."""
    found: dict[str, str] = json.loads(_NOTED.read_text("utf-8"))[lake.name]
    return found


def share(lake: Lake, found: Seen) -> str:
    """How many columns a reader sees."""
    return _NONE if "error" in found else _ALL if set(found) == set(lake.columns) else _SOME


def table() -> str:
    """One line for each lake."""
    readers = [*READERS, "spark"]
    lines = [
        f"| lake | written by | with | verbs | {' | '.join(readers)} |",
        "|---|---|---|---|" + "---|" * len(readers),
    ]
    for lake in LAKES:
        cells = [lake.name, lake.writer, lake.note, _verbs(lake), *(noted(lake)[name] for name in readers)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verbs(lake: Lake) -> str:
    if lake.refused:
        return f"refused: {lake.refused}"
    reasons: Mapping[str, list[str]] = gaps(lake.name)
    parts = [f"{', '.join(verbs)}: {reason}" for reason, verbs in reasons.items()]
    return f"all, but {'; '.join(parts)}" if parts else _ALL


if __name__ == "__main__":
    from fsspeckit.datasets.spark import SparkDatasetIO

    every = READERS | {"spark": by_spark(SparkDatasetIO().spark)}
    shares = {
        lake.name: {name: share(lake, seen(read, lake, lake.folder, lake.rows())) for name, read in every.items()}
        for lake in LAKES
    }
    _NOTED.write_text(json.dumps(shares, indent=1) + "\n", "utf-8")

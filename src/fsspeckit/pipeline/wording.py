"""Messages of the library for pipeline files: Python parameter names become keys of a step."""

from __future__ import annotations

from fsspeckit.common.wording import reworded
from fsspeckit.datasets.arguments import SHORT_NAMES
from fsspeckit.pipeline.model import AnyStep

_KEYS = {long: short for short, long in SHORT_NAMES.items()} | {
    "key_columns": "keys",
    "partition_columns": "partition_by",
}
"""Keys whose names differ from the parameters."""
ARGUMENTS = {key: name for name, key in _KEYS.items() if name != "partition_columns"}
"""Parameters by keys; `partition_columns` is another name of `partition_by`."""
_ELSEWHERE = {
    "storage_options": "storage_options",
    "temp_directory": "TMPDIR",
    "recover()": "`fsspeckit recover`",
    **{name: f"options.{name}" for name in ("decimal_comma", "date_format", "delimiter", "encoding")},
}
"""Parameters that belong to another table of the file or to the environment."""

_TRUTH = ("True", "False")


def as_keys(text: str, step: AnyStep | None) -> str:
    """Replace parameter names in a message of the library by keys of a step; without a step, by no step keys.

    Examples:
        >>> from fsspeckit.pipeline.model import Optimize
        >>> step = Optimize(name="tidy", do="optimize", dataset="orders", by=["id"])
        >>> as_keys("zorder_columns names 'x', which no file has", step)
        "by names 'x', which no file has"
    """
    keys = type(step).model_fields if step is not None else {}

    def spelled(name: str) -> str | None:
        key = _KEYS.get(name, name)
        return key if key in keys else _ELSEWHERE.get(name)

    return reworded(text, spelled, lambda key, value: f"{key}={value.lower() if value in _TRUTH else value}")

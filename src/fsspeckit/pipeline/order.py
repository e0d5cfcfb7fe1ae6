"""Compute the order of the steps of a pipeline, and check the names in it.

A step runs after the steps in its `after`, after those that provide its rows, after every check above it in the file,
and after those above it that change a dataset which it reads or changes, or read one that it changes. Otherwise steps
run in the order of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import get_args

from fsspeckit.core.storage.urls import to_fsspec
from fsspeckit.pipeline.load import PipelineFileError, Problem
from fsspeckit.pipeline.model import AnyStep, Compact, Deduplicate, Optimize, PipelineFile, RowStep, Write
from fsspeckit.pipeline.parts import Source, SparkSource

_WRITERS = (*get_args(RowStep), Write, Compact, Optimize, Deduplicate)


def is_writer(step: AnyStep) -> bool:
    """Return whether a step changes a dataset."""
    return isinstance(step, _WRITERS) and step.dataset is not None


def source_of(step: AnyStep) -> str | None:
    """Return the step or source that provides the rows of a step; None if there is none, or if there are several."""
    return getattr(step, "source", None)


def inputs_of(step: AnyStep) -> tuple[str, ...]:
    """Return all sources, steps and datasets that provide the rows of a step."""
    source = source_of(step)
    return tuple(getattr(step, "inputs", ())) if source is None else (source,)


def dataset_of(step: AnyStep) -> str | None:
    """Return the dataset that a step changes or checks."""
    return getattr(step, "dataset", None)


def changed_by(step: AnyStep) -> set[str]:
    """Return the datasets that a step changes: its own, and the one for rows that do not meet a condition."""
    return (
        {name for name in (dataset_of(step), getattr(step, "quarantine", None)) if name} if is_writer(step) else set()
    )


def makes_rows(step: AnyStep) -> bool:
    """Return whether a step provides rows to other steps."""
    return bool(inputs_of(step)) and not is_writer(step) and step.do != "check"


def in_order(file: PipelineFile, name: str) -> list[AnyStep]:
    """Return the steps in the order in which they run."""
    problems = list(_problems(file))
    if problems:
        raise PipelineFileError(name, problems)
    steps = {step.name: step for step in file.steps}
    sorter = TopologicalSorter(graph(file))
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise PipelineFileError(
            name, [Problem("steps", f"they wait for each other: {cycle}", "take one 'after' or 'from' out")]
        ) from error
    ordered: list[AnyStep] = []
    position = {step: number for number, step in enumerate(steps)}
    ready = set(sorter.get_ready())
    while ready:
        first = min(ready, key=position.__getitem__)
        ordered.append(steps[first])
        sorter.done(first)
        ready = (ready - {first}) | set(sorter.get_ready())
    return ordered


def datasets_behind(step: AnyStep, file: PipelineFile) -> set[str]:
    """Return the datasets that the rows of a step come from; none if they come from files or the step has no rows."""
    found = set[str]()
    for name in _names_behind(step, file):
        if name in file.sources:
            found |= _datasets_of(file.sources[name], file)
        elif name in file.datasets:
            found.add(name)
    return found


def incremental_behind(step: AnyStep, file: PipelineFile) -> list[str]:
    """Return the sources of which a step reads what it has not read before: changes of a dataset, or new files."""
    found = _names_behind(step, file) & file.sources.keys()
    return sorted(name for name in found if file.sources[name].is_incremental)


def _names_behind(step: AnyStep, file: PipelineFile) -> set[str]:
    """Return the sources and datasets that the rows of a step come from, directly or by other steps."""
    steps: Mapping[str, AnyStep] = {each.name: each for each in file.steps}
    seen, left = set[str](), list(inputs_of(step))
    while left:
        name = left.pop()
        if name not in seen and name not in file.sources and name in steps:
            left += inputs_of(steps[name])
        seen.add(name)
    return seen - steps.keys() | seen & file.sources.keys()


def _datasets_of(source: Source | SparkSource, file: PipelineFile) -> set[str]:
    """Return the datasets that a source reads: by name, or because a path of the source is inside its folder."""
    if source.dataset is not None:
        return {source.dataset}
    paths = [f"{_folder(path)}/" for path in source.paths]
    folders = {name: f"{_folder(each.path)}/" for name, each in file.datasets.items()}
    return {name for name, folder in folders.items() if any(path.startswith(folder) for path in paths)}


def _folder(path: str) -> str:
    """Return one spelling of a folder or URL: ``./lake/x``, ``lake/x/`` and ``file:///.../lake/x`` are the same.

    Example:
        >>> _folder("lake/../lake/x/") == _folder("file://" + os.path.abspath("lake/x"))
        True
    """
    url = to_fsspec(path)
    local = url.removeprefix("file://")
    return url.rstrip("/") if "://" in local else os.path.realpath(local)


def graph(file: PipelineFile) -> dict[str, set[str]]:
    """Return the predecessors of each step. The order of the file applies unless `after` or `from` reverse it."""
    names = {step.name for step in file.steps}
    required = {step.name: {*step.after, *inputs_of(step)} & names for step in file.steps}
    graph = {name: set(before) for name, before in required.items()}
    touched = [_touched_by(step, file) for step in file.steps]
    for number, step in enumerate(file.steps):
        for above, others in zip(file.steps[:number], touched, strict=False):
            bound = above.do == "check" or changed_by(above) & touched[number] or changed_by(step) & others
            if bound and step.name not in _all_before(above.name, required):
                graph[step.name].add(above.name)
    return graph


def _touched_by(step: AnyStep, file: PipelineFile) -> set[str]:
    """Return the datasets that a step reads, checks or changes."""
    checks = getattr(step, "checks", None)
    queries = ((checks.sql if checks is not None else None) or {}).values()
    named = {name for name in file.datasets if any(names_dataset(text, name) for text in queries)}
    return named | datasets_behind(step, file) | changed_by(step) | ({dataset_of(step) or ""} - {""})


def names_dataset(query: str, name: str) -> bool:
    """Return whether a query may name a dataset: as a word, in any case.

    Examples:
        >>> names_dataset("SELECT * FROM Orders o", "orders"), names_dataset("SELECT orders_total FROM this", "orders")
        (True, False)
    """
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", query, re.IGNORECASE) is not None


def selected(file: PipelineFile, selectors: Sequence[str]) -> set[str]:
    """Return the steps that selectors choose: ``step``, with ``+`` before it those it needs, behind it those after.

    Examples:
        >>> steps = [{"name": n, "do": "compact", "dataset": "d", "after": a} for n, a in (("a", []), ("b", ["a"]))]
        >>> file = PipelineFile.model_validate({"name": "p", "datasets": {"d": {"path": "d"}}, "steps": steps})
        >>> sorted(selected(file, ["a+"])), sorted(selected(file, ["b"]))
        (['a', 'b'], ['b'])
    """
    before = graph(file)
    found = set[str]()
    for selector in selectors:
        name = selector.removeprefix("+").removesuffix("+")
        if name not in before:
            raise PipelineFileError(file.name, [_unknown(f"--select {selector}", "step", name, list(before))])
        found.add(name)
        found |= _all_before(name, before) if selector.startswith("+") else set()
        if selector.endswith("+"):
            found |= {other for other in before if name in _all_before(other, before)}
    return found


def _all_before(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), [name]
    while left:
        fresh = graph[left.pop()] - found
        found |= fresh
        left += fresh
    return found


def _problems(file: PipelineFile) -> Iterator[Problem]:
    names = [step.name for step in file.steps]
    for number, step in enumerate(file.steps):
        key = f"steps[{number}] ({step.name})"
        if names.index(step.name) != number or step.name in file.sources:
            yield Problem(f"{key}.name", "the name is taken", "give every step and source a name of its own")
        for name in step.after:
            if name not in names:
                yield _unknown(f"{key}.after", "step", name, names)
        yield from _problems_of_names(file, step, key)
    folders: dict[str, str] = {}
    for name, each in file.datasets.items():
        first = folders.setdefault(_folder(each.path), name)
        if first != name:
            yield Problem(
                f"datasets.{name}.path", f"it is that of {first!r} too", "name a folder once, and use that name"
            )
    for name, found in file.sources.items():
        if found.dataset is not None and found.dataset not in file.datasets:
            yield _unknown(f"sources.{name}.dataset", "dataset", found.dataset, list(file.datasets))


def _problems_of_names(file: PipelineFile, step: AnyStep, key: str) -> Iterator[Problem]:
    rows = [*file.sources, *(step.name for step in file.steps if makes_rows(step))]
    known = rows if source_of(step) is not None else [*rows, *file.datasets]
    for source in inputs_of(step):
        if source not in known:
            yield _unknown(f"{key}.from", "source or step with rows", source, known)
    incremental = incremental_behind(step, file)
    if incremental and step.do == "check":
        what = "a check of changes or new files has no position"
        yield Problem(f"{key}.from", what, "use 'expect' in the step that writes them")
    if len(incremental) > 1:
        what = f"its rows are changes or new files of {' and '.join(incremental)}"
        yield Problem(f"{key}.from", what, "read all but one as a whole")
    dataset, other = dataset_of(step), getattr(step, "quarantine", None)
    if dataset is not None and dataset not in file.datasets:
        option = type(step).model_fields["dataset"].alias or "dataset"
        yield _unknown(f"{key}.{option}", "dataset", dataset, list(file.datasets))
    if other is not None and (other not in file.datasets or other == dataset):
        yield _unknown(f"{key}.quarantine", "other dataset", other, [name for name in file.datasets if name != dataset])


def _unknown(key: str, kind: str, name: str, known: list[str]) -> Problem:
    return Problem(key, f"there is no {kind} {name!r}", f"use one of {', '.join(known) or 'none yet: add one'}")

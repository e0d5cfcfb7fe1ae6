"""Compute the order of the steps of a pipeline, and check the names in it.

A step runs after the steps in its `after`, after those that provide its rows, after every check above it in the file,
and after those above it that change a dataset which it reads or changes. Otherwise steps run in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import get_args

from fsspeckit.core.storage.urls import to_fsspec
from fsspeckit.pipeline.load import PipelineFileError, Problem
from fsspeckit.pipeline.model import AnyStep, Compact, Deduplicate, Optimize, PipelineFile, RowStep, Write

_WRITERS = (*get_args(RowStep), Write, Compact, Optimize, Deduplicate)


def is_writer(step: AnyStep) -> bool:
    """Return whether a step changes a dataset."""
    return isinstance(step, _WRITERS) and step.dataset is not None


def source_of(step: AnyStep) -> str | None:
    """Return the step or source that provides the rows of a step."""
    return getattr(step, "source", None)


def dataset_of(step: AnyStep) -> str | None:
    """Return the dataset that a step changes or checks."""
    return getattr(step, "dataset", None)


def makes_rows(step: AnyStep) -> bool:
    """Return whether a step provides rows to other steps."""
    return source_of(step) is not None and not is_writer(step) and step.do != "check"


def in_order(file: PipelineFile, name: str) -> list[AnyStep]:
    """Return the steps in the order in which they run."""
    problems = list(_problems(file))
    if problems:
        raise PipelineFileError(name, problems)
    steps = {step.name: step for step in file.steps}
    sorter = TopologicalSorter(_graph(file))
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


def dataset_behind(step: AnyStep, file: PipelineFile) -> str | None:
    """Return the dataset that the rows of a step come from; None if they come from files or the step has no rows."""
    steps: Mapping[str, AnyStep] = {each.name: each for each in file.steps}
    seen, name = set[str](), source_of(step)
    while name is not None and name not in file.sources:
        if name in seen or name not in steps:
            return None
        seen.add(name)
        name = source_of(steps[name])
    return file.sources[name].dataset if name is not None else None


def _graph(file: PipelineFile) -> dict[str, set[str]]:
    """Return the predecessors of each step. The order of the file applies unless `after` or `from` reverse it."""
    names = {step.name for step in file.steps}
    required = {step.name: {*step.after, source_of(step) or ""} & names for step in file.steps}
    graph = {name: set(before) for name, before in required.items()}
    for number, step in enumerate(file.steps):
        touched = {dataset_of(step), dataset_behind(step, file)} - {None}
        for above in file.steps[:number]:
            bound = above.do == "check" or (is_writer(above) and dataset_of(above) in touched)
            if bound and step.name not in _all_before(above.name, required):
                graph[step.name].add(above.name)
    return graph


def _all_before(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), [name]
    while left:
        fresh = graph[left.pop()] - found
        found |= fresh
        left += fresh
    return found


def _problems(file: PipelineFile) -> Iterator[Problem]:
    names = [step.name for step in file.steps]
    rows = [*file.sources, *(step.name for step in file.steps if makes_rows(step))]
    for number, step in enumerate(file.steps):
        key = f"steps[{number}] ({step.name})"
        if names.index(step.name) != number or step.name in file.sources:
            yield Problem(f"{key}.name", "the name is taken", "give every step and source a name of its own")
        for name in step.after:
            if name not in names:
                yield _unknown(f"{key}.after", "step", name, names)
        source, dataset = source_of(step), dataset_of(step)
        if source is not None and source not in rows:
            yield _unknown(f"{key}.from", "source or step with rows", source, rows)
        if dataset is not None and dataset not in file.datasets:
            option = type(step).model_fields["dataset"].alias or "dataset"
            yield _unknown(f"{key}.{option}", "dataset", dataset, list(file.datasets))
    folders: dict[str, str] = {}
    for name, each in file.datasets.items():
        first = folders.setdefault(to_fsspec(each.path).rstrip("/"), name)
        if first != name:
            yield Problem(
                f"datasets.{name}.path", f"it is that of {first!r} too", "name a folder once, and use that name"
            )
    for name, found in file.sources.items():
        if found.dataset is not None and found.dataset not in file.datasets:
            yield _unknown(f"sources.{name}.dataset", "dataset", found.dataset, list(file.datasets))


def _unknown(key: str, kind: str, name: str, known: list[str]) -> Problem:
    return Problem(key, f"there is no {kind} {name!r}", f"use one of {', '.join(known) or 'none yet: add one'}")

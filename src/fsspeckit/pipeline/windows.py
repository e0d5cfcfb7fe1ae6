"""What a step reads of a source that it reads piece by piece, and the terms on which the step commits.

The position of a step is stored in its commit, so that changes of a dataset and new files are processed exactly once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsspeckit.common.choices import SourceFormat
from fsspeckit.common.errors import DatasetNotFoundError, SourceFileError, VersionNotFoundError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.seen_files import SeenFiles, entry_of, pack
from fsspeckit.core.commit.versions import History
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.ext.inputs import InputFile, find_files
from fsspeckit.core.formats import ENDINGS
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline.model import AnyStep, PipelineFile
from fsspeckit.pipeline.order import incremental_behind
from fsspeckit.pipeline.parts import Source

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Window:
    """The changes that a step reads: those after ``since``, or all rows if it is None, up to a version and its time.

    ``reader`` is the name under which the position of the step is stored, and ``time`` that of the version ``until`` in
    microseconds since 1970, by which the next run knows the dataset again.
    """

    reader: str
    since: int | None
    until: int
    at: str
    time: int

    @property
    def is_empty(self) -> bool:
        """Whether there are no changes."""
        return self.since == self.until

    @property
    def terms(self) -> dict[str, Any]:
        """The key of the commit of the step, and the position that it stores.

        The key names the position before the commit, so that of two runs that process the same changes one commits.
        """
        since = "start" if self.since is None else self.since
        positions = {self.reader: self.until, _time_name(self.reader): self.time}
        key, continues = f"{self.reader}/since/{since}", self.since is not None
        return {"key": key, "positions": positions, "continues": continues}

    @property
    def quarantine_key(self) -> str:
        """The key of the commit to a quarantine: a repetition with more changes has more rows to set aside."""
        return f"{self.terms['key']}/until/{self.until}/quarantine"

    @property
    def details(self) -> dict[str, int]:
        """None: the counts of the operation say everything."""
        return {}

    @property
    def reads(self) -> dict[str, int | None]:
        """What a dry run shows: the versions."""
        return {"since": self.since, "until": self.until}


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files that a step reads, by the path that they were found by; ``before`` counts those that it has read.

    ``entries`` are what the commit stores of them, ``left`` the number of files for the next run.
    """

    reader: str
    before: int
    groups: tuple[tuple[InputFile, ...], ...]
    entries: frozenset[bytes]
    left: int

    @property
    def is_empty(self) -> bool:
        """Whether there are no new files."""
        return not self.entries

    @property
    def terms(self) -> dict[str, Any]:
        """The key of the commit of the step, and the files that it stores.

        Every commit adds files, so their number before the commit names the position: of two runs one commits.
        """
        seen = {self.reader: pack(self.entries)}
        return {"key": f"{self.reader}/files/{self.before}", "seen": seen, "continues": self.before > 0}

    @property
    def quarantine_key(self) -> str:
        """The key of the commit to a quarantine: a repetition with other files has other rows to set aside."""
        files = hashlib.sha256(b"".join(sorted(self.entries))).hexdigest()
        return f"{self.terms['key']}/new/{files}/quarantine"

    @property
    def details(self) -> dict[str, int]:
        """The numbers of files that were read, and that the next run reads."""
        return {"source_files": len(self.entries), "files_left": self.left}

    @property
    def reads(self) -> dict[str, int | None]:
        """What a dry run shows: the numbers of files."""
        return {**self.details}


AnyWindow = Window | NewFiles


def window_of(
    step: AnyStep, file: PipelineFile, datasets: Mapping[str, SparkDatasetIO], place: Place
) -> AnyWindow | None:
    """Return what a step reads of an incremental source; None if it has none. ``place`` is its own dataset."""
    sources, reader = incremental_behind(step, file), _reader(step, file)
    if not sources:
        return None
    source = file.sources[sources[0]]
    assert isinstance(source, Source)
    if source.new_files:
        return new_files(source, sources[0], reader, place.journal.seen_files(reader))
    dataset = source.dataset or ""
    path = file.datasets[dataset].path
    history, since = datasets[dataset].history(path), place.journal.position(reader)
    if since is not None:
        _check_same_dataset(step, path, history, since, place.journal.position(_time_name(reader)))
    newest = history[0]
    return Window(reader, since, newest.version, newest.at, history.commit_time(newest.version) or 0)


def waits_for_files(step: AnyStep, file: PipelineFile, place: Place) -> bool:
    """Return whether a step reads new files, has read some, and there are no files at all now."""
    sources = [file.sources[name] for name in incremental_behind(step, file)]
    source = sources[0] if sources else None
    if not isinstance(source, Source) or not source.new_files:
        return False
    seen = place.journal.seen_files(_reader(step, file))
    return len(seen) > 0 and not any(_found(source, may_be_empty=True))


def has_read(step: AnyStep, file: PipelineFile, journal: Journal) -> bool:
    """Return whether a step has read files or changes, whose rows are in its dataset."""
    reader = _reader(step, file)
    return journal.position(reader) is not None or len(journal.seen_files(reader)) > 0


def _reader(step: AnyStep, file: PipelineFile) -> str:
    """Return the name under which the position of a step is stored."""
    return f"{file.name}/{step.name}"


def _time_name(reader: str) -> str:
    """Return the name under which the time of a position is stored."""
    return f"{reader}/time"


def _check_same_dataset(step: AnyStep, path: str, history: History, since: int, time: int | None) -> None:
    """Raise if the position of a step is one in another dataset: the changes of this one would be skipped."""
    is_same = since <= history[0].version and time in (None, history.commit_time(since))
    if not is_same:
        raise VersionNotFoundError(
            f"the position of step {step.name!r} is version {since} of another dataset than {path}: it was deleted and "
            "written anew, or has another path. Give the step another name, so that it reads all rows again."
        )


def files_of(source: Source, path: str | None = None) -> list[InputFile]:
    """Return the files of a source, or those that a local path selects as files of this source.

    Raises:
        DatasetNotFoundError: A path selects no file.
    """
    return _find(source.paths, source) if path is None else _find(path, source, is_local=True)


def new_files(source: Source, name: str, reader: str, seen: SeenFiles) -> NewFiles:
    """Return the files of a source that a reader has not processed.

    Raises:
        DatasetNotFoundError: There is no file, and the reader has not processed any.
        SourceFileError: A file was processed and then replaced.
    """
    found = _found(source, may_be_empty=len(seen) > 0)
    replaced, entries, groups, left = list[str](), set[bytes](), list[tuple[InputFile, ...]](), 0
    for group in found:
        taken = list[InputFile]()
        for file in group:
            entry = entry_of(file.location, file.size, file.stamp)
            if seen.has(entry) or entry in entries:
                continue
            if source.replaced_files != "read" and seen.has_path(entry):
                replaced.append(file.location)
            elif len(entries) == source.max_files:
                left += 1
            else:
                entries.add(entry)
                taken.append(file)
        groups.append(tuple(taken))
    if replaced and source.replaced_files == "fail":
        raise _replaced_error(name, replaced)
    return NewFiles(reader, len(seen), tuple(groups), frozenset(entries), left)


def _find(path: str | list[str], source: Source, *, is_local: bool = False) -> list[InputFile]:
    format_: SourceFormat = source.format  # type: ignore[assignment]
    options = None if is_local else source.storage_options or None
    return find_files(path, ENDINGS[format_], f"read_{format_}", None, options)


def _found(source: Source, *, may_be_empty: bool) -> list[list[InputFile]]:
    """Return the files of each path. Landing folders become empty, but a wrong path must not look like one."""
    groups, missing = list[list[InputFile]](), None
    for path in source.paths:
        try:
            groups.append(_find(path, source))
        except DatasetNotFoundError as error:
            missing = error
    if missing is not None and not groups and not may_be_empty:
        raise missing
    return groups


def _replaced_error(name: str, files: list[str]) -> SourceFileError:
    more = f" and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else ""
    return SourceFileError(
        f"source {name!r}: {', '.join(files[:_SHOWN])}{more} was read by an earlier run and has changed since. Write "
        "data to new files, or set replaced_files of the source to 'read' (its rows again) or 'ignore'."
    )

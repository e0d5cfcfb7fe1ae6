"""The life of a dataset: random steps of every verb on engines that take turns, among crashes and other writers.

After each step, our reader, plain Parquet files and kept versions have the rows of the oracle. A failure prints the
program that led to it, which repeats it with the public API and the storage of `faults/injection.py`.
"""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
import tempfile
import textwrap
import traceback
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from conformance import oracle
from conformance.layouts import LAYOUTS, folder_values
from conformance.oracle import Refused, Row
from conformance.rows import bag, rows_of
from conformance.steps import Shape, State, Step, Steps, shapes
from faults.injection import CRASHES, ERRORS, Crash, Fault, FaultStorage
from fsspeckit import (
    CommitConflictError,
    DatasetNotFoundError,
    FsspeckitError,
    OutcomeUnknownError,
    UnsupportedDataError,
    VersionNotFoundError,
)
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import LocalStorage, by_exchange, by_shuffle, few_rows_are_many, tombstones_of
from kit import data_files
from sweeps import sweep_size

HEADER = """\
import datetime, os, tempfile
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.test_state_machine import exchange  # with PYTHONPATH=tests
from faults.injection import Crash, Fault, FaultStorage
from inside import LocalStorage, few_rows_are_many
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

nan, inf = float("nan"), float("inf")
base = tempfile.mkdtemp()
path, past = f"{base}/lake/data", f"{base}/lake/past"
"""
CLASSES = {"arrow": "PyarrowDatasetIO", "duck": "DuckDBDatasetIO", "exchanging": "exchange"}
SHARED_MEMORY = "/dev/shm"
ADDED, REMOVED = ("insert", "update_after"), ("delete", "update_before")


def exchange(**options: Any) -> PyarrowDatasetIO:
    """A distributed engine in this process."""
    io: PyarrowDatasetIO = by_exchange(PyarrowDatasetIO(**options))
    return io


NAMES = {
    "datetime": datetime, "os": os, "suppress": suppress, "Decimal": Decimal, "np": np, "pa": pa, "pq": pq,
    "exchange": exchange, "Crash": Crash, "Fault": Fault, "FaultStorage": FaultStorage, "LocalStorage": LocalStorage,
    "DuckDBDatasetIO": DuckDBDatasetIO, "PyarrowDatasetIO": PyarrowDatasetIO, "nan": float("nan"), "inf": float("inf"),
}  # fmt: skip


class Failure(AssertionError):
    """What is wrong, and the program that led to it."""


class Dataset:
    """A dataset of the machine: what it must contain, and the rows of the versions that are kept."""

    def __init__(self, name: str, folder: Path, state: State, partitions: Sequence[str]) -> None:
        self.name, self.folder, self.state, self.partitions = name, folder, state, partitions
        self.versions: dict[int, State] = {}
        self.keeping = self.may_lose = False


class Life(RuleBasedStateMachine):
    """A dataset, and another one with the history of its keys."""

    limits: ClassVar[str] = ""
    """A line of the program that lowers limits."""
    engines: ClassVar[dict[str, Any]] = {}
    """Engines that cannot have a storage of the test: no fault strikes them."""

    def __init__(self) -> None:
        super().__init__()
        base = tempfile.mkdtemp(prefix="life-", dir=SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None)
        self.base, self.lines, self.clock = Path(base), [HEADER + self.limits], itertools.count()
        (self.base / "lake").mkdir()
        self.names: dict[str, Any] = dict(NAMES) | {"base": base}
        self.names |= {"path": f"{base}/lake/data", "past": f"{base}/lake/past"}

    def teardown(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        self.shape: Shape = data.draw(shapes())
        self.steps = Steps(data.draw, self.shape)
        publish = data.draw(st.sampled_from(["new_names", "new_names", "exchange", "replace"]))
        self.arguments = "" if publish == "new_names" else f"publish={publish!r}"
        with self.reporting():
            for name, made in CLASSES.items():
                self.run(f"{name} = {made}({self.arguments})")
        self.names |= self.engines
        self.lines += [f"# {name} is an engine of Spark" for name in self.engines]
        call, state = self.steps.first_write()
        self.data = Dataset("path", self.base / "lake/data", state, self.shape.partitions)
        self.past = Dataset("past", self.base / "lake/past", State([], {}), ())
        with self.reporting():
            self.run(f"arrow.{call}")
            if data.draw(st.booleans()):
                self.run("arrow.keep_history(path)")
                self.data.keeping = True
            self.check(self.data, "duck")

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        self.step(data, self.data, lambda steps, state: steps.write(state))

    @rule(data=st.data(), again=st.integers(1, 2))
    def merge(self, data: st.DataObject, again: int) -> None:
        for _ in range(again):
            self.step(data, self.data, lambda steps, state: steps.merge(state))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.step(data, self.data, lambda steps, state: steps.delete(state))

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        self.step(data, self.data, lambda steps, state: steps.update(state))

    @rule(data=st.data())
    def feed(self, data: st.DataObject) -> None:
        self.step(data, self.data, lambda steps, state: steps.feed(state))

    @rule(data=st.data())
    def upkeep(self, data: st.DataObject) -> None:
        self.step(data, self.data, lambda steps, state: steps.upkeep())

    @rule(data=st.data())
    def deduplicate(self, data: st.DataObject) -> None:
        self.step(data, self.data, lambda steps, state: steps.deduplicate(state))

    @rule(data=st.data())
    def history_of_keys(self, data: st.DataObject) -> None:
        self.step(data, self.past, lambda steps, state: steps.past_feed(state))

    @precondition(lambda self: self.past.state.rows)
    @rule(data=st.data())
    def upkeep_of_history(self, data: st.DataObject) -> None:
        self.step(data, self.past, lambda steps, state: steps.upkeep("past"))

    @rule(data=st.data())
    def versions(self, data: st.DataObject) -> None:
        """Restore a version, remove old ones, or change the policy."""
        place = self.data
        known = sorted(place.versions)
        what = data.draw(st.sampled_from(["keep", "keep", "drop", "vacuum", *["restore"] * 4]))
        if what == "restore" and known:
            wanted = data.draw(st.sampled_from(known))
            then = place.versions[wanted]
            step = Step(
                f"restore(path, {self._version(place, wanted)})",
                lambda state: replace(then, counts={}, tombstones=then.tombstones & state.tombstones),
            )
        elif what == "vacuum":
            age = data.draw(st.sampled_from(["0s", "1d"]))
            step = Step(f"vacuum(path, older_than={age!r})", _same, loses_versions=age == "0s")
        else:
            retain = None if what == "drop" else "7d"
            step = Step(f"keep_history(path, retain={retain!r})", _same, loses_versions=retain is None)
        self.step(data, place, lambda steps, state: step)

    @precondition(lambda self: self.data.state.rows)
    @rule(format_=st.sampled_from(["delta", "iceberg"]), kept=st.booleans())
    def export(self, format_: str, kept: bool) -> None:
        with self.reporting(), suppress(UnsupportedDataError):
            self.run(f"arrow.export(path, {format_!r}, keep_exported={kept})")
        with self.reporting():
            self.check(self.data, "arrow")

    @rule(data=st.data())
    def another_program(self, data: st.DataObject) -> None:
        """A file that a program without fsspeckit writes."""
        place, steps = self.data, Steps(data.draw, self.shape, self.steps.serial)
        files = data_files(place.folder)
        rows = steps.rows(place.state, 3)
        self.steps.serial = steps.serial
        if not files or not rows:
            return
        found = data.draw(st.sampled_from(files)).parent
        values = folder_values(f"{found.relative_to(place.folder)}/x") if place.partitions else {}
        rows = [row | {n: v if v is None or n != "n" else int(v) for n, v in values.items()} for row in rows]
        types = {name: type_ for name, type_ in place.state.types.items() if name not in values}
        name = f"other-{next(self.clock)}.parquet"
        with self.reporting():
            file = f"/{found.relative_to(place.folder)}/{name}"
            options = data.draw(st.sampled_from(LAYOUTS))
            self.run(f"pq.write_table({steps.table(rows, types)}, path + {file!r}, **{options})")
            place.state = replace(place.state, rows=place.state.rows + rows)
            self.check(place, "duck")

    def step(self, data: st.DataObject, place: Dataset, draw_step: Any) -> None:
        """Draw a step, who makes it and what happens meanwhile, run it, and check everything."""
        steps = Steps(data.draw, self.shape, self.steps.serial)
        step = draw_step(steps, place.state)
        engine = data.draw(st.sampled_from([*CLASSES, *self.engines]))
        reader = data.draw(st.sampled_from(["arrow", "duck", *self.engines]))
        kinds = ["calm"] * 4 + ["plan", "late plan"] * step.planned
        if engine not in self.engines:
            kinds += ["crash", "crash", "error", "rival", "rival", "reader"]
        kind, at = data.draw(st.sampled_from(kinds)), data.draw(st.integers(0, 10**6))
        fault = data.draw(st.sampled_from(CRASHES if kind == "crash" else ERRORS))
        rival = data.draw(st.sampled_from(("merge", "delete", "update", "write", "feed", "upkeep", "merge")))
        other: Step | None = None
        if kind in ("rival", "late plan") and place is self.data and "evolve" not in step.call:
            other = steps.upkeep() if rival == "upkeep" else getattr(steps, rival)(place.state)
            other = None if "evolve" in other.call else other  # other columns: the second one is refused
        self.steps.serial = steps.serial
        with self.reporting():
            if kind in ("calm", "plan") or (kind in ("rival", "late plan") and other is None):
                self.calm(place, step, engine, planned="plan" in kind)
            elif kind == "late plan" and other is not None:
                self.late_plan(place, step, other, engine)
            else:
                self.stormy(place, step, engine, kind, at, fault, other)
            self.check(place, reader)

    def calm(self, place: Dataset, step: Step, engine: str, *, planned: bool) -> None:
        call, files = f"{engine}.{step.call}", _names(place.folder)
        place.state, refused = _run(place.state, [step], step)
        if refused:
            assert self._raised(call) is not None, "an error is missing"
            assert _names(place.folder) == files, "an error, yet files changed"
            return
        place.may_lose |= step.loses_versions
        if planned:
            self.run(f"plan = {call[:-1]}, dry_run=True)")
            self._check_counts(self.names["plan"], place.state)
            assert _names(place.folder) == files, "a dry run wrote something"
            call = f"{call[:-1]}, plan=plan)"
        self.run(f"result = {call}")
        self._check_counts(self.names["result"], place.state)
        if step.call.startswith("keep_history"):
            place.keeping = "None" not in step.call

    def late_plan(self, place: Dataset, step: Step, other: Step, engine: str) -> None:
        """Run a plan after another writer has committed: it is refused, or does what it would do now."""
        call = f"{engine}.{step.call}"
        if _run(place.state, [step], step)[1]:
            self.calm(place, step, engine, planned=False)
            return
        self.run(f"plan = {call[:-1]}, dry_run=True)")
        error = self._raised(f"duck.{other.call}")
        place.state, refused = _run(place.state, [other], other)
        assert refused == (error is not None), f"{error!r} of the other writer"
        place.may_lose |= other.loses_versions
        error = self._raised(f"result = {call[:-1]}, plan=plan)")
        after, refused = _run(place.state, [step], step)
        assert error is None or refused or isinstance(error, CommitConflictError), f"{error!r} is not expected"
        if error is None:
            assert not refused, "an error is missing"
            place.state = after
            self._check_counts(self.names["result"], place.state)
        place.state = replace(place.state, counts={})

    def stormy(
        self, place: Dataset, step: Step, engine: str, kind: str, at: int, fault: str, other: Step | None
    ) -> None:
        """Run a step on a storage with a fault, with another writer, or with a reader in between."""
        call, before = at % self._rehearse(place, step, engine) + 1, place.state
        broken = f", Fault({fault!r}, {call})" if kind in ("crash", "error") else ""
        self.run(f"storage = FaultStorage(LocalStorage(){broken})")
        if kind == "rival" and other is not None:
            self.run(f"storage.meanwhile({call}, lambda: duck.{other.call})")
        elif kind == "reader":
            self.run(f"storage.meanwhile({call}, lambda: duck.read_parquet({place.name}))")
        error = self._raised(f"with suppress(Crash):\n    {self._io(engine)}.{step.call}")
        if self.names["storage"].outcome is None:  # the rehearsal, whose copy has no index, made more calls
            other = None
        orders = [[step]] if other is None else [[other, step], [step, other]]
        ends = [_run(before, order, step) for order in orders]
        if kind == "crash" or isinstance(error, OutcomeUnknownError) or (error and step.loses_versions):
            ends += [(before, True), *((state, True) for state, refused in ends if not refused)]
        elif kind == "error" and isinstance(error, OSError):
            ends = [(before, True)]
        elif isinstance(error, CommitConflictError) and ("retries=0" in step.call or "max_" in step.call):
            ends = [_run(before, [] if other is None else [other], step)]
            ends = [(state, True) for state, _ in ends]
        elif isinstance(error, VersionNotFoundError) and (other is None or other.loses_versions or not place.keeping):
            ends = [(_run(before, [] if other is None else [other], step)[0], True)]
        if other is not None and isinstance(self.names["storage"].outcome, CommitConflictError):
            ends.append(_run(before, [step], step))
        if kind == "reader" and (seen := self.names["storage"].outcome) is not None:
            seen = pa.table({}) if place is self.past and isinstance(seen, DatasetNotFoundError) else seen
            self._match(place, seen, [before, *(state for state, _ in ends)])
        if kind in ("crash", "error"):
            self._match(place, self._read(place, "duck"), [before, *(state for state, _ in ends)])
            self.run(f"arrow.recover({place.name})")
        found = [state for state, refused in ends if refused == (error is not None) or kind == "crash"]
        assert found, f"{error!r} is not expected"
        tombstones = self._tombstones(place)
        if step.loses_versions:  # they are removed after the commit
            found = [replace(state, tombstones=tombstones) for state in found]
        found = [state for state in found if state.tombstones == tombstones]
        assert found, f"rows and tombstones {tombstones} do not belong together"
        place.state = replace(self._match(place, self._read(place, "arrow"), found), counts={})
        place.may_lose |= step.loses_versions or (other is not None and other.loses_versions)
        place.keeping &= not step.call.startswith("keep_history")

    def _raised(self, text: str) -> Exception | None:
        try:
            self.run(text)
        except (FsspeckitError, ValueError, OSError) as error:
            self.lines[-1] = f"with suppress(ValueError, OSError, RuntimeError):\n{textwrap.indent(text, '    ')}"
            return error.with_traceback(None)
        return None

    def _io(self, engine: str) -> str:
        return f"{CLASSES[engine]}({', '.join(filter(None, ['filesystem=storage', self.arguments]))})"

    def _rehearse(self, place: Dataset, step: Step, engine: str) -> int:
        """Return how many calls of the storage a step makes, on a copy."""
        copy = self.base / "rehearsal"
        shutil.copytree(self.base / "lake", copy)
        storage = FaultStorage(LocalStorage())
        names = self.names | {"path": f"{copy}/data", "past": f"{copy}/past", "storage": storage}
        with suppress(FsspeckitError, ValueError, OSError):
            exec(f"{self._io(engine)}.{step.call}", names)
        shutil.rmtree(copy)
        return max(1, len(storage.calls))

    def _read(self, place: Dataset, engine: str, **options: Any) -> pa.Table:
        try:
            return self.names[engine].read_parquet(self.names[place.name], **options)
        except DatasetNotFoundError:
            assert place is self.past, "the dataset is gone"
            return pa.table({})

    def _match(self, place: Dataset, table: pa.Table, states: Sequence[State]) -> State:
        """Return the state that has the rows of a table."""
        found = self._bag(place, rows_of(table))
        for state in states:
            if self._bag(place, state.rows) == found:
                return state
        wanted = self._bag(place, states[-1].rows)
        raise AssertionError(f"{place.name}: missing {list(wanted - found)}, unexpected {list(found - wanted)}")

    def _tombstones(self, place: Dataset) -> frozenset[Any]:
        """The deleted keys that are beside the journal, with their sequences."""
        files = map(pq.read_table, tombstones_of(LocalStorage(), os.path.realpath(place.folder)))
        rows = [row for file in files for row in rows_of(file)]
        return frozenset((oracle.key_of(row, self.shape.keys), row["lsn"]) for row in rows)

    def _bag(self, place: Dataset, rows: Iterable[Row]) -> Counter[Any]:
        """Rows as a multiset. Partition values are compared as text, and NULL is as good as no column."""

        def plain(row: Row) -> Row:
            text = {name: str(row[name]) for name in place.partitions if row.get(name) is not None}
            text |= {"is_current": str(row["is_current"]).lower()} if "is_current" in row else {}
            return {name: value for name, value in (row | text).items() if value is not None}

        return bag(map(plain, list(rows)))

    def _check_counts(self, result: Any, state: State) -> None:
        found = {name: result[name] for name in state.counts}
        assert found == state.counts, f"counts are {found}, not {state.counts}"

    def check(self, place: Dataset, reader: str) -> None:
        """Compare the rows that readers see, and those of a kept version; nothing else is left in the folder."""
        table = self._read(place, reader)
        self._match(place, table, [place.state])
        assert self._tombstones(place) == place.state.tombstones, "other keys are deleted"
        added = {name: pa.int64() for name in table.column_names if name.startswith("x")}
        types = {name: type_ for name, type_ in (place.state.types | added).items() if name in table.column_names}
        place.state = replace(place.state, types=types or place.state.types)
        plain = self._bag(place, _plain(place))
        assert plain == self._bag(place, place.state.rows), "plain files have other rows"
        allowed = {"data", "past", ".data.fsspeckit", ".past.fsspeckit", "data.iceberg"}
        assert {each.name for each in (self.base / "lake").iterdir()} <= allowed
        self._check_versions(place)

    def _check_versions(self, place: Dataset) -> None:
        if not place.versions and not place.keeping:
            return
        listed = self.names["arrow"].history(self.names[place.name])
        readable = [each["version"] for each in listed if each["readable"]]
        lost = place.versions.keys() - readable
        assert not lost or place.may_lose or not place.keeping, f"the kept versions {lost} are gone"
        for number in lost:
            assert isinstance(self._raised(f"arrow.read_parquet({place.name}, version={number})"), VersionNotFoundError)
        place.versions = {number: state for number, state in place.versions.items() if number in readable}
        place.may_lose = False
        newest = listed[0]["version"]
        if place.keeping and newest in readable:
            place.versions.setdefault(newest, place.state)
        if not place.versions:
            return
        number = sorted(place.versions)[next(self.clock) % len(place.versions)]
        named = eval(f"dict({self._version(place, number)})", self.names)
        self._match(place, self._read(place, "arrow", **named), [place.versions[number]])
        if newest in place.versions:
            self._check_changes(place, number, newest)

    def _version(self, place: Dataset, number: int) -> str:
        """The option that names a version: its number, or every second time the time of its commit."""
        times = {each["version"]: each["at"] for each in self.names["arrow"].history(self.names[place.name])}
        is_clear = all(at > times[number] for version, at in times.items() if version > number)
        if next(self.clock) % 2 and is_clear:
            return f"as_of={{each.version: each.at for each in arrow.history({place.name})}}[{number}]"
        return f"version={number}"

    def _check_changes(self, place: Dataset, number: int, newest: int) -> None:
        keys = list(self.shape.keys) if next(self.clock) % 2 and not self.shape.null_keys else None
        feed = self.names["arrow"].changes(self.names[place.name], since=number, until=newest, key_columns=keys)
        kinds, commits = feed["_change_type"].to_pylist(), feed["_version"].to_pylist()
        found = rows_of(feed.drop_columns(["_change_type", "_version", "_at"]))
        if keys:
            places = [(commit, oracle.key_of(row, keys)) for commit, row in zip(commits, found, strict=True)]
            came, went = (
                {at for at, kind in zip(places, kinds, strict=True) if kind in names} for names in (ADDED, REMOVED)
            )
            assert [kind.startswith("update") for kind in kinds] == [at in came & went for at in places]
        rows = list(zip(kinds, found, strict=True))
        added = self._bag(place, (row for kind, row in rows if kind in ("insert", "update_after")))
        gone = self._bag(place, (row for kind, row in rows if kind in ("delete", "update_before")))
        before, after = (self._bag(place, place.versions[each].rows) for each in (number, newest))
        assert before + added == after + gone, f"changes from {number} to {newest} do not lead there"

    def run(self, text: str, **names: Any) -> None:
        """Run a line of the program."""
        self.names |= names
        self.lines.append(text)
        exec(text, self.names)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            program = "\n".join(self.lines)
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            told = f"{type(error).__name__}: {error}\n{where}\nThis program repeats it:\n\n{program}"
            raise Failure(told) from error


def _run(state: State, order: Sequence[Step], mine: Step) -> tuple[State, bool]:
    """Return the state after some steps, and whether one of them is refused."""
    refused = False
    for step in order:
        try:
            state = step.of(state)
        except Refused:
            refused |= step is mine
    return state, refused


def _same(state: State) -> State:
    return replace(state, counts={})


def _names(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def _plain(place: Dataset) -> list[Row]:
    """All rows as a reader without fsspeckit finds them, with partition values as text."""
    found: list[Row] = []
    for path in data_files(place.folder):
        table = pq.read_table(path, partitioning=None)
        found += [row | folder_values(str(path.relative_to(place.folder))) for row in rows_of(table)]
    return found


def live(life: type[Life], part: int, examples: int, steps: int) -> None:
    """Run many lives: always the same ones in a bounded run, new ones in a full one, which makes a failure small."""
    sweep = sweep_size()
    chosen = settings(
        max_examples=max(2, int(examples * sweep.examples)),
        stateful_step_count=steps,
        database=None,
        deadline=None,
        print_blob=False,
        phases=tuple(Phase) if sweep.full else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    if not sweep.full:
        life = seed(zlib.crc32(f"{life.__name__} {part}".encode()))(life)
    try:
        run_state_machine_as_test(life, settings=chosen)
    except Failure as failure:
        pytest.fail(str(failure), pytrace=False)


PARTS = [pytest.param(part, marks=[pytest.mark.more] * (part > 2)) for part in range(15)]
"""Each part has lives of its own: `make test` runs three parts in half a minute, `make test-more` the others."""


class LifeOfMany(Life):
    """The same with limits so low that a few rows are very many."""

    limits = "few_rows_are_many(pytest.MonkeyPatch())\n"


@pytest.mark.sweep
@pytest.mark.parametrize("part", PARTS)
def test_a_life(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if part % 2:
        few_rows_are_many(monkeypatch)
    live(LifeOfMany if part % 2 else Life, part, 40, 12)


@pytest.mark.spark
@pytest.mark.more
def test_a_life_with_spark() -> None:
    from fsspeckit.datasets.spark import SparkDatasetIO

    class SparkLife(Life):
        engines: ClassVar[dict[str, Any]] = {
            "spark": SparkDatasetIO(),
            "shuffled": by_shuffle(SparkDatasetIO(share_limit=0)),
        }

    live(SparkLife, 0, 8, 8)

"""Checks of rows: counts, keys, freshness, accepted values, and reconciliation of counts.

Checks of a commit run on the state after the commit: row counts come from the footers, and Spark reads the checked
columns of existing and staged files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import CheckFailedError
from fsspeckit.common.text import counted
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.frames import snapshot_frame
from fsspeckit.datasets.spark.job_progress import OnTasks, watched
from fsspeckit.pipeline.parts import Checks
from fsspeckit.pipeline.resolve import resolve_checks, resolve_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SHOWN = 5
_UNITS = {"s": "SECOND", "m": "MINUTE", "h": "HOUR", "d": "DAY"}


Found = list[tuple[str, str | None]]
"""Checks by name, with their violation or None."""


@dataclass(frozen=True, slots=True)
class Checker:
    """Runs the checks of one step, and stores the result of each in ``results``.

    ``query`` returns the rows of a free query over the checked rows, `this`.
    """

    checks: Checks
    spark: Callable[[], SparkSession]
    on_tasks: OnTasks
    query: Callable[[str, DataFrame], DataFrame]
    results: dict[str, str]

    def frame(self, frame: DataFrame, what: str) -> int | None:
        """Check rows; return their number if it was counted, else None."""
        rows = None
        if self.checks.rows is not None:
            with watched(frame.sparkSession, self.on_tasks):
                rows = frame.count()
        self._raise(what, [*_row_bounds(self.checks, rows or 0), *self._values(frame), *self._queries(frame)])
        return rows

    def view(self, place: Place, view: View) -> int:
        """Check the files of a view of a dataset; return the number of rows."""
        snapshot = load_snapshot(place.storage, view)
        self._raise(place.path, self._of_snapshot(place, snapshot))
        return snapshot.rows

    def commit(self, place: Place) -> Callable[[View, View, Mapping[str, Any]], None]:
        """Return a check function for `DatasetIO.on_terms`."""

        def check(before: View, after: View, info: Mapping[str, Any]) -> None:
            result = load_snapshot(place.storage, after)
            found = self._of_snapshot(place, result)
            if self.checks.reconciled:
                found.append(("reconciled", _reconciled(place, before, after, result.rows, info)))
            self._raise(place.path, found)

        return check

    def _raise(self, what: str, found: Found) -> None:
        self.results.update({name: message or "passed" for name, message in found})
        violations = [message for _, message in found if message]
        if violations:
            raise CheckFailedError(
                f"{what}: {', and '.join(violations)}. "
                "Nothing was committed by this step; correct the rows or the check."
            )

    def _of_snapshot(self, place: Place, snapshot: Snapshot) -> Found:
        found = _row_bounds(self.checks, snapshot.rows)
        columns = _columns(self.checks)
        if snapshot.schema is None:
            stale = [("fresh", "there is no row that could be fresh")] if self.checks.fresh is not None else []
            return [*found, *stale]
        resolve_names(self.checks, full_schema(snapshot).names)
        if columns:
            request = ReadRequest(columns=tuple(columns))
            found += self._values(snapshot_frame(self.spark(), place.storage, snapshot, request))
        if self.checks.sql:
            found += self._queries(snapshot_frame(self.spark(), place.storage, snapshot, ReadRequest()))
        return found

    def _values(self, frame: DataFrame) -> Found:
        """Return the violations: one query over the checked columns, and one over the unique keys."""
        unique = self.checks.unique
        resolve_checks(self.checks, frame.schema)
        with watched(frame.sparkSession, self.on_tasks), translated_analysis():
            return [*_aggregated(self.checks, frame), *([("unique", _repeated(frame, unique))] if unique else [])]

    def _queries(self, frame: DataFrame) -> Found:
        """Return the violations of free queries; the first rows of the result are shown."""
        found: Found = []
        for name, text in (self.checks.sql or {}).items():
            with watched(frame.sparkSession, self.on_tasks), translated_analysis(f"the check {name!r}"):
                rows = self.query(text, frame).limit(_SHOWN).collect()
            shown = ", ".join(str(tuple(row)) for row in rows)
            found.append((f"sql.{name}", f"{name} finds rows (for example {shown})" if rows else None))
        return found


def _columns(checks: Checks) -> list[str]:
    named = [*(checks.unique or ()), *(checks.not_null or ()), *(checks.accepted or ())]
    return list(dict.fromkeys([*named, *([checks.fresh.column] if checks.fresh is not None else [])]))


def _row_bounds(checks: Checks, rows: int) -> Found:
    bounds = checks.rows
    if bounds is None:
        return []
    low = f"{rows:,} rows are fewer than {bounds.min:,}" if bounds.min is not None and rows < bounds.min else None
    high = f"{rows:,} rows are more than {bounds.max:,}" if bounds.max is not None and rows > bounds.max else None
    return [("rows", low or high)]


def _aggregated(checks: Checks, frame: DataFrame) -> Found:
    from pyspark.sql import functions as sql

    wanted: list[Column] = []
    names: list[str] = []
    messages: list[Callable[[Any], str | None]] = []
    for name in checks.not_null or ():
        wanted.append(sql.count_if(frame[_quoted(name)].isNull()))
        names.append(f"not_null.{name}")
        messages.append(lambda count, name=name: f"{name} is null in {counted(count, 'row')}" if count else None)  # type: ignore[misc]
    for name, values in (checks.accepted or {}).items():
        column = frame[_quoted(name)]
        others = sql.collect_set(sql.when(~column.isin(values), column.cast("string")))
        wanted.append(sql.slice(others, 1, _SHOWN))
        names.append(f"accepted.{name}")
        messages.append(lambda found, name=name: f"{name} has other values: {', '.join(found)}" if found else None)  # type: ignore[misc]
    if checks.fresh is not None:
        wanted.append(_staleness(checks, frame))
        names.append("fresh")
        messages.append(lambda message: message)
    if not wanted:
        return []
    row = frame.agg(*(column.alias(f"c{number}") for number, column in enumerate(wanted))).first()
    assert row is not None
    return [(name, message(value)) for name, message, value in zip(names, messages, row, strict=True)]


def _staleness(checks: Checks, frame: DataFrame) -> Column:
    """Return a column with a message if the newest value is too old, else null."""
    from pyspark.sql import functions as sql

    assert checks.fresh is not None
    name, within = checks.fresh.column, checks.fresh.within
    number, unit = re.fullmatch(r"(\d+)\s*([smhd])", within).groups()  # type: ignore[union-attr]
    newest = sql.max(frame[_quoted(name)].cast("timestamp"))
    oldest = sql.current_timestamp() - sql.expr(f"INTERVAL '{number}' {_UNITS[unit]}")
    late = sql.concat(sql.lit(f"the newest {name} is "), newest.cast("string"), sql.lit(f", older than {within}"))
    return sql.when(newest.isNull(), sql.lit(f"{name} has no value that could be fresh")).when(newest < oldest, late)


def _repeated(frame: DataFrame, keys: list[str]) -> str | None:
    grouped = frame.groupBy(*(frame[_quoted(name)] for name in keys)).count().filter("count > 1")
    found = grouped.limit(_SHOWN).collect()
    if not found:
        return None
    shown = ", ".join(str(tuple(row[:-1]) if len(keys) > 1 else row[0]) for row in found)
    return f"{', '.join(keys)} is not unique (for example {shown})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _reconciled(place: Place, before: View, after: View, rows: int, info: Mapping[str, Any]) -> str | None:
    """Compare the rows after, from the footers, with the rows before and the counts of the operation."""
    old = load_snapshot(place.storage, before).rows
    inserted, deleted = _reported_counts(place, before, after, info)
    if rows == old + inserted - deleted:
        return None
    return f"{rows:,} rows are not {old:,} before + {inserted:,} inserted - {deleted:,} deleted"


def _reported_counts(place: Place, before: View, after: View, info: Mapping[str, Any]) -> tuple[int, int]:
    match info["operation"]:
        case "merge" | "apply_changes" | "delete" | "update":
            return int(info["inserted"]), int(info["deleted"])
        case "write" if "replaced" in info:
            return int(info["rows"]), int(info["replaced"])
        case "write":
            left = {file.path for file in after.files}
            gone = replace(before, files=tuple(file for file in before.files if file.path not in left))
            return int(info["rows"]), load_snapshot(place.storage, gone).rows if gone.files else 0
        case "deduplicate":
            return 0, int(info["rows"])
        case _:
            return 0, 0

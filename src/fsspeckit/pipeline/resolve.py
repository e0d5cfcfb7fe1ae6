"""Resolve the columns and conditions of a step that changes or checks a dataset, without reading rows.

The library checks a step as it does in a run: the same call, with no rows. Calls that take no rows, and calls on a
dataset that an earlier step changes, run on a model: an empty dataset with its columns in a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.errors import ColumnNameError, FsspeckitError, SchemaMismatchError
from fsspeckit.common.schema import reconcile
from fsspeckit.core.expressions.conditions import compile_condition, errors_name
from fsspeckit.core.expressions.grammar import near_names
from fsspeckit.core.values.history import HISTORY_COLUMNS
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark.versions import arrow_schema
from fsspeckit.pipeline.dataset_steps import options_of
from fsspeckit.pipeline.model import AnyStep, ApplyChanges, Deduplicate, Delete, Merge, Optimize, Update, Write
from fsspeckit.pipeline.parts import Checks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MODEL = PyarrowDatasetIO()
_KINDS = {
    "text": (pat.is_string, pat.is_large_string, pat.is_string_view),
    "binary": (pat.is_binary, pat.is_large_binary, pat.is_binary_view),
    "truth value": (pat.is_boolean,),
    "number": (pat.is_integer, pat.is_floating, pat.is_decimal),
    "date": (pat.is_date,),
    "time": (pat.is_timestamp,),
}
_VALUES = {"text": (str,), "truth value": (bool,), "number": (int, float)}
"""The Python types of the values that a column can have."""

Writer = Merge | ApplyChanges | Write


def resolve_rows(step: Writer, rows: pa.Schema, known: pa.Schema | None, io: PyarrowDatasetIO, path: str) -> None:
    """Raise if a step cannot write rows with these columns to a dataset with the columns ``known``, or to a new one."""
    if known is not None and not _replaces(step):
        _check_kinds(rows, known, path)
    given = options_of(step)
    scope = given.pop("scope", None)
    if scope is not None:
        with errors_name("scope"):
            compile_condition(scope, rows if known is None else known)
    if getattr(step, "strategy", None) == "full_merge":
        given |= {"strategy": "upsert"}
    method = "write_dataset" if isinstance(step, Write) else step.do
    getattr(io, method)(_typed(rows, known).empty_table(), path, dry_run=True, **given)


def resolve_on_model(step: Writer, rows: pa.Schema, known: pa.Schema, path: str) -> None:
    """Raise if a step cannot write rows with these columns to a dataset that an earlier step leaves with ``known``."""
    alike = step.model_copy(update={"partition_by": None})
    _on_model(known, path, lambda folder: resolve_rows(alike, rows, known, _MODEL, folder))


def result_columns(step: Writer, rows: pa.Schema, known: pa.Schema | None) -> pa.Schema:
    """Return the columns of a dataset after a step, with the types of rows where they are new."""
    rows = _feed_columns(step, rows) if isinstance(step, ApplyChanges) else rows
    if known is None or _replaces(step):
        return rows
    mode = getattr(step, "schema_mode", "strict")
    return known if mode == "strict" else reconcile(known, rows, mode="evolve")


def _feed_columns(step: ApplyChanges, rows: pa.Schema) -> pa.Schema:
    """Return the columns that a feed writes to a new dataset. A history has its sequence in ``valid_from``."""
    wanted = {*(step.keys or ()), step.sequence_by, *(step.columns or rows.names)} - {*(step.except_columns or ())}
    if step.scd_type == 2 and step.sequence_by not in (step.columns or ()):
        wanted.discard(step.sequence_by)
    kept = [field for field in rows if field.name in wanted]
    if step.scd_type == 2:
        at = rows.field(step.sequence_by).type
        kept += [pa.field(name, kind) for name, kind in zip(HISTORY_COLUMNS, (at, at, pa.bool_()), strict=True)]
    return pa.schema(kept)


def _replaces(step: Writer) -> bool:
    return isinstance(step, Write) and step.mode == "overwrite" and step.replace_where is None


def resolve_dataset(step: AnyStep, known: pa.Schema, path: str) -> None:
    """Raise if a step names a column that a dataset with these columns does not have, or has a wrong condition."""
    match step:
        case Delete() | Update():
            _on_model(known, path, lambda folder: getattr(_MODEL, step.do)(folder, **options_of(step)))
        case Deduplicate():
            check_names("keys", step.keys, known.names)
            check_names("order_by", [_bare(name, known.names) for name in step.order_by], known.names)
        case Optimize():
            check_names("by", step.by, known.names)
            check_names("bloom", step.bloom, known.names)


def resolve_names(checks: Checks, known: Sequence[str]) -> None:
    """Raise if a check names a column that is not there."""
    check_names("checks.unique", checks.unique or (), known)
    check_names("checks.not_null", checks.not_null or (), known)
    check_names("checks.accepted", list(checks.accepted or ()), known)
    check_names("checks.fresh", [] if checks.fresh is None else [checks.fresh.column], known)


def resolve_checks(checks: Checks, rows: StructType) -> None:
    """Raise if a check names a column that is not there, or whose type it cannot check."""
    resolve_names(checks, rows.names)
    if checks.fresh is not None:
        type_ = _type_of(rows, checks.fresh.column)
        if _kind(type_) not in ("time", "date"):
            raise SchemaMismatchError(
                f"checks.fresh: {checks.fresh.column!r} has the type {type_}. Name a column of dates or timestamps, or "
                "cast it."
            )
    for name, values in (checks.accepted or {}).items():
        type_ = _type_of(rows, name)
        expected = _VALUES.get(_kind(type_) or "")
        wrong = [value for value in values if expected is not None and type(value) not in expected]
        if wrong:
            raise SchemaMismatchError(
                f"checks.accepted: {name!r} has the type {type_}, and {wrong[0]!r} is none of its values. "
                "Correct the value, or cast the column."
            )


def _type_of(rows: StructType, name: str) -> pa.DataType:
    return arrow_schema(type(rows)([rows[name]])).field(0).type


def check_names(key: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise if a key names a column that is not there."""
    missing = [name for name in names if name not in known]
    if missing:
        raise ColumnNameError(f"{key}: unknown column {missing[0]!r}; {near_names(missing, known)}")


def _bare(name: str, known: Sequence[str]) -> str:
    return name if name in known else name.removeprefix("-")


def _on_model(known: pa.Schema, path: str, call: Callable[[str], object]) -> None:
    """Make a call on a model of a dataset; errors name the dataset."""
    with tempfile.TemporaryDirectory(prefix="fsspeckit-") as above:
        folder = f"{above}/model"
        _MODEL.write_dataset(known.remove_metadata().empty_table(), folder)
        try:
            call(folder)
        except FsspeckitError as error:
            error.args = (str(error).replace(folder, path),)
            raise


def _check_kinds(rows: pa.Schema, known: pa.Schema, path: str) -> None:
    """Raise if a column has another kind of values than in the dataset. Numbers and times of other types can fit."""
    for field in rows:
        if field.name in known.names:
            own, other = _kind(field.type), _kind(known.field(field.name).type)
            if own and other and own != other:
                raise SchemaMismatchError(
                    f"{path}: the column {field.name!r} has the type {field.type} in the rows of the step and "
                    f"{known.field(field.name).type} in the dataset. "
                    "Convert it, with an explicit time zone for instants."
                )


def _kind(type_: pa.DataType) -> str | None:
    return next((name for name, tests in _KINDS.items() if any(test(type_) for test in tests)), None)


def _typed(rows: pa.Schema, known: pa.Schema | None) -> pa.Schema:
    """Return the columns of rows with the types of the dataset: Spark has fewer types, and values are cast."""
    types = {} if known is None else {field.name: field.type for field in known}
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in rows])

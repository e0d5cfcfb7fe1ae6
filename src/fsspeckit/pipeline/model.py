"""The typed model of a pipeline file: sources, datasets, steps and checks.

Data only. `fsspeckit.pipeline.order` checks the names. This module reads no file and does not use Spark.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fsspeckit.common.choices import (
    Codec,
    Curve,
    NullKeys,
    OnDuplicate,
    PartitionMove,
    SchemaMode,
    StrategyName,
    WriteMode,
)

Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")]
Columns = Annotated[list[str], Field(min_length=1)]
Expressions = Annotated[dict[str, str], Field(min_length=1)]
PositiveInt = Annotated[int, Field(gt=0)]


class Part(BaseModel):
    """Base class of all tables of the file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)


class TextOptions(Part):
    """Options of csv and json files."""

    header: Literal[True] = Field(True, description="A csv file has a header line; there is no other choice")
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        None, description="The character between two values of a csv file; by default a comma, or a tab in .tsv files"
    )
    encoding: str = Field("utf-8", description="The encoding of the files, such as latin-1")


class Source(Part):
    """Rows to read: from files, or from a dataset in its state when a step reads it."""

    format: Literal["parquet", "csv", "json", "dataset"] = Field(description="dataset: its name is in `dataset`")
    path: str | list[str] | None = Field(None, description="File, folder or pattern, or several; not for a dataset")
    dataset: Name | None = Field(None, description="Name of a dataset, for format dataset")
    options: TextOptions | None = Field(None, description="How csv and json files are written")
    columns: str | None = Field(None, description="Types of columns as Spark DDL, such as 'id bigint, day date'")
    storage_options: dict[str, Any] = Field({}, repr=False, description="Options of the filesystem of a URL")

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return [self.path] if isinstance(self.path, str) else self.path or []

    @property
    def is_text(self) -> bool:
        """Whether the source consists of csv or json files."""
        return self.format in ("csv", "json")

    @model_validator(mode="after")
    def _one_place(self) -> Source:
        wanted = "dataset" if self.format == "dataset" else "path"
        if (self.dataset is None) == (wanted == "dataset") or (self.path is None) == (wanted == "path"):
            raise ValueError(f"format {self.format!r} needs {wanted!r}, and that alone")
        if self.format == "dataset" and (self.options or self.columns or self.storage_options):
            raise ValueError("options, columns and storage_options go with files, not with a dataset")
        if self.options is not None and not self.is_text:
            raise ValueError(f"options go with csv and json files, not with {self.format}")
        if self.options is not None and self.options.delimiter is not None and self.format != "csv":
            raise ValueError("options.delimiter goes with csv files")
        return self


class Dataset(Part):
    """A dataset folder that steps read and change."""

    path: str
    storage_options: dict[str, Any] = Field({}, repr=False, description="Options of the filesystem of a URL")


class Spark(Part):
    """Settings of the Spark session, if the caller passes none."""

    master: str | None = None
    conf: dict[str, str | int | float | bool] = Field(default={}, repr=False)


class Bounds(Part):
    """Bounds of the number of rows."""

    min: Annotated[int, Field(ge=0)] | None = None
    max: Annotated[int, Field(ge=0)] | None = None


class Freshness(Part):
    """Maximum age of the newest value of a column."""

    column: str
    within: Annotated[str, Field(pattern=r"^\d+\s*[smhd]$")] = Field(description="Such as 90m, 36h or 2d")


class Checks(Part):
    """Conditions on rows. For a step that writes, conditions on the resulting dataset, checked before the commit."""

    rows: Bounds | None = None
    unique: Columns | None = Field(None, description="Columns that together occur once")
    not_null: Columns | None = None
    fresh: Freshness | None = None
    accepted: dict[str, Annotated[list[str | int | float | bool], Field(min_length=1)]] | None = Field(
        None, description="The values that a column may have; null is always allowed"
    )
    reconciled: bool = Field(False, description="Rows after = rows before + inserted - deleted, counted in footers")


class Step(Part):
    """Keys of all steps."""

    name: Name
    after: list[Name] = Field([], description="Steps that come first, beside those that follow from the data")


class Select(Step):
    """Select columns with Spark SQL expressions."""

    do: Literal["select"]
    source: Name = Field(alias="from")
    columns: Columns


class Rename(Step):
    """Rename columns: old name to new name."""

    do: Literal["rename"]
    source: Name = Field(alias="from")
    columns: Expressions


class Cast(Step):
    """Cast columns to Spark SQL types."""

    do: Literal["cast"]
    source: Name = Field(alias="from")
    columns: Expressions


class Filter(Step):
    """Keep the rows that match a Spark SQL condition."""

    do: Literal["filter"]
    source: Name = Field(alias="from")
    where: str


class Deduplicate(Step):
    """Keep one row per key, in the rows of a source or step (`from`) or in a dataset (`dataset`)."""

    do: Literal["deduplicate"]
    source: Name | None = Field(None, alias="from")
    dataset: Name | None = None
    keys: Columns
    order_by: list[str] = Field([], description="The row that is highest here stays; -column: lowest")
    checks: Checks | None = None

    @model_validator(mode="after")
    def _one_subject(self) -> Deduplicate:
        if (self.source is None) == (self.dataset is None):
            raise ValueError("give either 'from' or 'dataset'")
        if self.source is not None and not self.order_by:
            raise ValueError("rows of Spark have no order of their own: name columns in 'order_by'")
        if self.source is not None and self.checks is not None:
            raise ValueError("'checks' goes with 'dataset'; check rows on their way by a step that does 'check'")
        return self


def _one_expression(text: str) -> str:
    from fsspeckit.core.expressions.grammar import parse_one

    parse_one(text)
    return text


Expression = Annotated[str, AfterValidator(_one_expression)]
"""SQL in the expression language of fsspeckit; columns and types are checked against the dataset when the step runs."""


class Layout(Part):
    """Options of new files."""

    compression: Codec | None = None
    max_rows_per_file: PositiveInt = 5_000_000
    row_group_size: PositiveInt | None = None


class Merge(Step, Layout):
    """Merge rows into a dataset."""

    do: Literal["merge"]
    source: Name = Field(alias="from")
    dataset: Name = Field(alias="into")
    keys: Columns
    strategy: StrategyName = "upsert"
    partition_by: list[str] | None = None
    order_by: list[str] | None = None
    on_duplicate_source: OnDuplicate = "error"
    null_keys: NullKeys = "error"
    schema_mode: SchemaMode = "strict"
    update_columns: Columns | None = Field(None, description="Columns that matched rows get; by default all")
    delete_when: Expression | None = Field(None, description="Source rows that delete their key")
    update_when: Expression | None = Field(None, description="Matched rows to update, by source. and target. columns")
    insert_when: Expression | None = Field(None, description="New rows to insert, by source. columns")
    newer_by: str | None = Field(None, description="Update a matched row only if the source has a greater value here")
    scope: Expression | None = Field(None, description="With full_merge: delete only rows that match")
    partition_move: PartitionMove = Field("check", description="What happens to a key that is in another partition")
    checks: Checks | None = None

    @model_validator(mode="after")
    def _options_fit_the_strategy(self) -> Merge:
        from fsspeckit.core.planning.merge_request import MergeRequest

        if self.order_by and self.strategy != "deduplicate":
            raise ValueError("'order_by' goes with strategy 'deduplicate'")
        names = ("strategy", "update_columns", "delete_when", "update_when", "insert_when", "newer_by", "scope")
        MergeRequest(key_columns=tuple(self.keys), **{name: getattr(self, name) for name in names})
        return self


class ApplyChanges(Step):
    """Apply a change feed to a dataset: the newest change of each key wins."""

    do: Literal["apply_changes"]
    source: Name = Field(alias="from")
    dataset: Name = Field(alias="into")
    keys: Columns
    sequence_by: str = Field(description="Column that orders changes")
    delete_when: Expression | None = Field(None, description="Changes that delete their key, such as op = 'd'")
    columns: Columns | None = Field(None, description="Columns to write, beside keys; by default all")
    except_columns: Columns | None = Field(None, description="Columns that are not written")
    ignore_null_updates: bool = Field(False, description="Keep the value of the dataset where a change has null")
    scd_type: Literal[1, 2] = Field(1, description="1 keeps the newest row of each key, 2 the history of each key")
    partition_by: list[str] | None = None
    checks: Checks | None = None


class Write(Step, Layout):
    """Write rows as new files of a dataset."""

    do: Literal["write"]
    source: Name = Field(alias="from")
    dataset: Name = Field(alias="into")
    mode: WriteMode = "append"
    replace_where: Expression | None = Field(
        default=None, description="With mode 'overwrite', the condition of the rows to replace"
    )
    partition_by: list[str] | None = None
    checks: Checks | None = None

    @model_validator(mode="after")
    def _replace_where_needs_overwrite(self) -> Write:
        if self.replace_where is not None and self.mode != "overwrite":
            raise ValueError("'replace_where' goes with mode 'overwrite'")
        return self


class _RowChange(Step):
    dataset: Name
    where: Expression = Field(description="A condition, in the expression language of fsspeckit")
    compression: Codec | None = None
    row_group_size: PositiveInt | None = None
    checks: Checks | None = None


class Delete(_RowChange):
    """Delete the rows of a dataset that match a condition."""

    do: Literal["delete"]


class Update(_RowChange):
    """Set columns to computed values in the rows that match a condition."""

    do: Literal["update"]
    set: Annotated[dict[str, Expression], Field(min_length=1)] = Field(description="New values, by column")


class _Upkeep(Step):
    dataset: Name
    target_mb: Annotated[float, Field(gt=0)] | None = None
    target_rows: PositiveInt | None = None
    partitions: list[str] | None = Field(None, description="Only folders with one of these prefixes")
    compression: Codec | None = None
    row_group_size: PositiveInt | None = None
    checks: Checks | None = None


class Compact(_Upkeep):
    """Join small files; the default target is 128 MB."""

    do: Literal["compact"]


class Optimize(_Upkeep):
    """Sort rows, so that readers can skip files and row groups."""

    do: Literal["optimize"]
    by: Columns
    curve: Curve = "linear"
    bloom: list[str] = []


class Check(Step):
    """Check the rows of a source or step (`from`) or of a dataset (`dataset`)."""

    do: Literal["check"]
    source: Name | None = Field(None, alias="from")
    dataset: Name | None = None
    checks: Checks

    @model_validator(mode="after")
    def _one_subject(self) -> Check:
        if (self.source is None) == (self.dataset is None):
            raise ValueError("give either 'from' or 'dataset'")
        if self.checks.reconciled:
            raise ValueError("'reconciled' goes with a step that writes")
        return self


RowStep = Merge | ApplyChanges | Delete | Update
AnyStep = Select | Rename | Cast | Filter | Deduplicate | RowStep | Write | Compact | Optimize | Check


class PipelineFile(Part):
    """A pipeline: sources, datasets and steps."""

    name: Name
    idempotency_key: str | None = Field(
        None, description="Names a run: its steps commit once. Without one, every run is a new one"
    )
    variables: dict[str, str | int | float | bool] = Field({}, repr=False, description="Variables with their defaults")
    spark: Spark = Spark()
    sources: dict[Name, Source] = {}
    datasets: dict[Name, Dataset] = {}
    steps: Annotated[list[Annotated[AnyStep, Field(discriminator="do")]], Field(min_length=1)]

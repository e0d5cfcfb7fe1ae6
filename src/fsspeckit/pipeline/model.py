"""The typed model of a pipeline file and of its steps.

Data only. `fsspeckit.pipeline.order` checks the names. This module reads no file and does not use Spark.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fsspeckit.common.choices import (
    DEFAULT_RETRIES,
    DEFAULT_STRATEGY,
    Codec,
    Curve,
    EvolveFiles,
    NullKeys,
    OnDuplicate,
    PartitionMove,
    SchemaMode,
    StrategyName,
    WriteMode,
)
from fsspeckit.pipeline.parts import (
    AnySource,
    Checks,
    Columns,
    Dataset,
    Expecting,
    Expressions,
    Name,
    Part,
    PositiveInt,
    Repeat,
    Retries,
    Spark,
)


class Step(Part):
    """Keys of all steps."""

    name: Name
    after: list[Name] = Field([], description="Steps that come first, beside those that follow from the data")
    repeat: Repeat | None = Field(None, description="How often to run it again after a failure; by default as the file")


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


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Inputs = Annotated[list[Name], BeforeValidator(_listed), Field(min_length=1)]


class Sql(Step):
    """Rows of a query in Spark SQL over sources, steps and datasets, by their names."""

    do: Literal["sql"]
    inputs: Inputs = Field(alias="from", description="Sources, steps and datasets that the query reads")
    query: str = Field(description="One SELECT")


class Python(Step):
    """Rows that a Python function makes of DataFrames."""

    do: Literal["python"]
    inputs: Inputs = Field(alias="from", description="Sources, steps and datasets; the function gets their DataFrames")
    call: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] = Field(description="module:function")
    arguments: dict[str, Any] = Field({}, description="Further arguments of the function, by name")


class Deduplicate(Step):
    """Keep one row per key, in the rows of a source or step (`from`) or in a dataset (`dataset`)."""

    do: Literal["deduplicate"]
    source: Name | None = Field(None, alias="from")
    dataset: Name | None = None
    keys: Columns
    order_by: list[str] = Field([], description="The row that is highest here stays; -column: lowest")
    checks: Checks | None = None
    retries: Retries = DEFAULT_RETRIES

    @model_validator(mode="after")
    def _one_subject(self) -> Deduplicate:
        if (self.source is None) == (self.dataset is None):
            raise ValueError("give either 'from' or 'dataset'")
        if self.source is not None and not self.order_by:
            raise ValueError("rows of Spark have no order of their own: name columns in 'order_by'")
        if self.source is not None and self.checks is not None:
            raise ValueError("'checks' goes with 'dataset'; check rows on their way by a step that does 'check'")
        if self.source is not None and "retries" in self.model_fields_set:
            raise ValueError("'retries' goes with 'dataset'")
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


class Merge(Step, Layout, Expecting):
    """Merge rows into a dataset."""

    do: Literal["merge"]
    source: Name = Field(alias="from")
    dataset: Name = Field(alias="into")
    keys: Columns | None = Field(None, description="Columns that identify a row; by default those of `adopt`")
    strategy: StrategyName = DEFAULT_STRATEGY
    partition_by: list[str] | None = None
    order_by: list[str] | None = None
    on_duplicate_source: OnDuplicate = "error"
    null_keys: NullKeys = "error"
    schema_mode: SchemaMode = "strict"
    evolve_files: EvolveFiles | None = None
    update_columns: Columns | None = Field(None, description="Columns that matched rows get; by default all")
    delete_when: Expression | None = Field(None, description="Source rows that delete their key")
    update_when: Expression | None = Field(None, description="Matched rows to update, by source. and target. columns")
    insert_when: Expression | None = Field(None, description="New rows to insert, by source. columns")
    newer_by: str | None = Field(None, description="Update a matched row only if the source has a greater value here")
    scope: Expression | None = Field(None, description="With full_merge: delete only rows that match")
    partition_move: PartitionMove = Field("check", description="What happens to a key that is in another partition")
    checks: Checks | None = None
    retries: Retries = DEFAULT_RETRIES

    @model_validator(mode="after")
    def _options_fit_the_strategy(self) -> Merge:
        from fsspeckit.core.planning.merge_request import MergeRequest

        if self.order_by and self.strategy != "deduplicate":
            raise ValueError("'order_by' goes with strategy 'deduplicate'")
        names = ("strategy", "update_columns", "delete_when", "update_when", "insert_when", "newer_by", "scope")
        MergeRequest(key_columns=tuple(self.keys or ()), **{name: getattr(self, name) for name in names})
        return self


class ApplyChanges(Step, Expecting):
    """Apply a change feed to a dataset: the newest change of each key wins."""

    do: Literal["apply_changes"]
    source: Name = Field(alias="from")
    dataset: Name = Field(alias="into")
    keys: Columns | None = Field(None, description="Columns that identify a row; by default those of `adopt`")
    sequence_by: str = Field(description="Column that orders changes")
    delete_when: Expression | None = Field(None, description="Changes that delete their key, such as op = 'd'")
    columns: Columns | None = Field(None, description="Columns to write, beside keys; by default all")
    except_columns: Columns | None = Field(None, description="Columns that are not written")
    ignore_null_updates: bool = Field(False, description="Keep the value of the dataset where a change has null")
    scd_type: Literal[1, 2] = Field(1, description="1 keeps the newest row of each key, 2 the history of each key")
    tombstones: str = Field("7d", description="How long deleted keys are kept to drop late changes; '0' for none")
    partition_by: list[str] | None = None
    schema_mode: SchemaMode = "strict"
    evolve_files: EvolveFiles | None = None
    checks: Checks | None = None
    retries: Retries = DEFAULT_RETRIES


class Write(Step, Layout, Expecting):
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
    retries: Retries = DEFAULT_RETRIES

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
    retries: Retries = DEFAULT_RETRIES


class Delete(_RowChange):
    """Delete the rows of a dataset that match a condition."""

    do: Literal["delete"]
    erase_history: bool = Field(False, description="Also remove all kept versions, which have the rows")


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
    retries: Retries = DEFAULT_RETRIES


class Compact(_Upkeep):
    """Join small files; the default target is 128 MB."""

    do: Literal["compact"]


class Optimize(_Upkeep):
    """Sort rows, so that readers can skip files and row groups."""

    do: Literal["optimize"]
    by: Columns
    curve: Curve = "linear"
    bloom: list[str] = Field([])


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
AnyStep = Select | Rename | Cast | Filter | Sql | Python | Deduplicate | RowStep | Write | Compact | Optimize | Check


class PipelineFile(Part):
    """A pipeline: sources, datasets and steps."""

    name: Name
    idempotency_key: str | None = Field(
        None, description="Names a run: its steps commit once. Without one, every run is a new one"
    )
    variables: dict[str, str | int | float | bool] = Field({}, repr=False, description="Variables with their defaults")
    spark: Spark = Spark()
    repeat: Repeat = Field(Repeat.model_validate({}), description="How often to run a step again after a failure")
    parallel: PositiveInt = Field(4, description="The most steps that run at the same time")
    sources: dict[Name, AnySource] = Field({})
    datasets: dict[Name, Dataset] = Field({})
    steps: Annotated[list[Annotated[AnyStep, Field(discriminator="do")]], Field(min_length=1)]

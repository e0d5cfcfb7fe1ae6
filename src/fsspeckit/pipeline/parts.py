"""Tables of a pipeline file that steps refer to: sources, datasets, Spark, checks. Data only."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from fsspeckit.common.choices import DEFAULT_PUBLISH, CatalogName, ExportFormat, PublishMode
from fsspeckit.common.notation import Notation

Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")]
Columns = Annotated[list[str], Field(min_length=1)]
Expressions = Annotated[dict[str, str], Field(min_length=1)]
PositiveInt = Annotated[int, Field(gt=0)]
MAX_FILES = 100_000
"""Files that one commit can store as read: 32 bytes each in its record."""
Retries = Annotated[int, Field(ge=0, description="How often a step is planned again after a conflict")]


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
    decimal_comma: bool = Field(False, description="Numbers of a csv file are written like 1.234,56")
    date_format: str | None = Field(
        None,
        description="The format of dates and times of a csv file, such as %d.%m.%Y, in columns whose type is known",
    )

    @property
    def notation(self) -> Notation:
        """How numbers and dates are written."""
        return Notation(self.decimal_comma, self.date_format)

    @model_validator(mode="after")
    def _date_format_is_valid(self) -> TextOptions:
        _ = self.notation
        return self


class Source(Part):
    """Rows to read: from files, or from a dataset in its state when a step reads it."""

    format: Literal["parquet", "csv", "json", "dataset", "changes"] = Field(
        description="dataset: its rows; changes: what was committed to it since the last run of the step that reads it"
    )
    path: str | list[str] | None = Field(None, description="File, folder or pattern, or several; not for a dataset")
    dataset: Name | None = Field(None, description="Name of a dataset, for the formats dataset and changes")
    keys: Columns | None = Field(None, description="With format changes: columns that identify a row, to find updates")
    options: TextOptions | None = Field(None, description="How csv and json files are written")
    columns: str | None = Field(None, description="Types of columns as Spark DDL, such as 'id bigint, day date'")
    storage_options: dict[str, Any] = Field({}, repr=False, description="Options of the filesystem of a URL")
    new_files: bool = Field(False, description="Only files that the step that writes them has not read before")
    replaced_files: Literal["fail", "read", "ignore"] = Field(
        "fail", description="With new_files: what happens if a file was read and then replaced by another one"
    )
    max_files: Annotated[int, Field(gt=0, le=MAX_FILES)] = Field(
        MAX_FILES, description="With new_files: the most files of one run; the next run reads the others"
    )

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return _list(self.path)

    @property
    def is_incremental(self) -> bool:
        """Whether a step reads only what it has not read before."""
        return self.new_files or self.format == "changes"

    @property
    def is_text(self) -> bool:
        """Whether the source consists of csv or json files."""
        return self.format in ("csv", "json")

    @model_validator(mode="after")
    def _one_place(self) -> Source:
        wanted = "dataset" if self.format in ("dataset", "changes") else "path"
        if (self.dataset is None) == (wanted == "dataset") or (self.path is None) == (wanted == "path"):
            raise ValueError(f"format {self.format!r} needs {wanted!r}, and that alone")
        if wanted == "dataset" and (self.options or self.columns or self.storage_options):
            raise ValueError("options, columns and storage_options go with files, not with a dataset")
        if self.new_files and wanted == "dataset":
            raise ValueError("new_files goes with files. Changes of a dataset have format 'changes'")
        if not self.new_files and {"replaced_files", "max_files"} & self.model_fields_set:
            raise ValueError("replaced_files and max_files go with new_files = true")
        if self.keys is not None and self.format != "changes":
            raise ValueError("keys go with format 'changes'")
        if self.options is not None and not self.is_text:
            raise ValueError(f"options go with csv and json files, not with {self.format}")
        for name in ("delimiter", "decimal_comma", "date_format"):
            if self.options is not None and getattr(self.options, name) and self.format != "csv":
                raise ValueError(f"options.{name} goes with csv files")
        return self


class SparkSource(Part):
    """Rows that a reader of Spark reads: jdbc, text, orc, or any other format that the session knows."""

    format: str = Field(min_length=1, description="Name of a format of Spark")
    path: str | list[str] | None = Field(None, description="File, folder or pattern, or several")
    options: dict[str, str | int | float | bool] = Field({}, repr=False, description="Options of the reader")
    columns: str | None = Field(None, description="The columns as Spark DDL, such as 'id bigint, day date'")

    @property
    def paths(self) -> list[str]:
        """All paths."""
        return _list(self.path)

    @property
    def storage_options(self) -> dict[str, Any]:
        """None: Spark uses its own connectors."""
        return {}

    dataset: ClassVar[None] = None
    is_text: ClassVar[bool] = False
    is_incremental: ClassVar[bool] = False


def _list(path: str | list[str] | None) -> list[str]:
    return [path] if isinstance(path, str) else path or []


def source_kind(found: Any) -> str:
    """Return which model a table of `sources` has."""
    name = found.get("format") if isinstance(found, dict) else getattr(found, "format", None)
    known = get_args(Source.model_fields["format"].annotation)
    return "spark" if isinstance(name, str) and name not in known else "files"


AnySource = Annotated[
    Annotated[Source, Tag("files")] | Annotated[SparkSource, Tag("spark")], Discriminator(source_kind)
]
SOURCES: dict[str, type[BaseModel]] = {"files": Source, "spark": SparkSource}


class Catalog(Part):
    """The table of a catalog in which a dataset is registered."""

    name: CatalogName
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+\.[A-Za-z0-9_]+$")] = Field(description="Such as sales.orders")
    options: dict[str, str] = Field({}, description="How the catalog is reached, such as uri of a Hive metastore")


class Dataset(Part):
    """A dataset folder that steps read and change."""

    path: str
    storage_options: dict[str, Any] = Field({}, repr=False, description="Options of the filesystem of a URL")
    publish: PublishMode = Field(DEFAULT_PUBLISH, description="How commits become visible on local disks")
    retain: Annotated[str, Field(pattern=r"^\d+\s*[smhdw]$")] | None = Field(
        None, description="Keep the files that steps replace for a time such as 7d"
    )
    keep_exported: list[ExportFormat] = Field([], description="Formats whose metadata every commit writes")
    catalog: Catalog | None = Field(None, description="The table that every commit updates")


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
    sql: Expressions | None = Field(
        None, description="Queries in Spark SQL over `this`, the checked rows, and datasets; a row is a violation"
    )


OnFail = Literal["fail", "warn", "drop", "quarantine"]


class Expecting(Part):
    """Conditions that each row must meet before it is written."""

    expect: Expressions | None = Field(None, description="Conditions in Spark SQL by names; a row must meet all")
    on_fail: OnFail = Field("fail", description="What happens to rows that do not meet a condition")
    quarantine: Name | None = Field(None, description="The dataset that these rows are written to, with the reason")

    @model_validator(mode="after")
    def _keys_fit(self) -> Expecting:
        if self.expect is None and (self.on_fail != "fail" or self.quarantine is not None):
            raise ValueError("'on_fail' and 'quarantine' go with 'expect'")
        if (self.on_fail == "quarantine") != (self.quarantine is not None):
            raise ValueError("on_fail = 'quarantine' needs 'quarantine', the name of a dataset, and no other does")
        return self


class Repeat(Part):
    """Run a step again that failed for a reason that can pass: a conflict, the storage, or a Spark job."""

    times: Annotated[int, Field(ge=0, le=100)] = 0
    wait: Annotated[str, Field(pattern=r"^\d+\s*[smhd]$")] = Field("1s", description="Before the first repetition")
    factor: Annotated[float, Field(ge=1)] = Field(2.0, description="Each wait is so many times as long as the last")

"""A pipeline: load it, check it, run it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspeckit.core.progress import Progress
from fsspeckit.pipeline.execution import Execution, Listener, Session
from fsspeckit.pipeline.load import PipelineFileError, load_file, parse
from fsspeckit.pipeline.model import AnyStep, PipelineFile
from fsspeckit.pipeline.order import in_order, selected
from fsspeckit.pipeline.results import PipelineResult
from fsspeckit.pipeline.trust import distrusted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fsspeckit.pipeline.preview_result import PipelinePreview
    from fsspeckit.pipeline.step_graph import GraphFormat


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline.

    Examples:
        >>> steps = [{"name": "tidy", "do": "compact", "dataset": "orders"}]
        >>> raw = {"name": "upkeep", "datasets": {"orders": {"path": "lake/orders"}}, "steps": steps}
        >>> Pipeline.of(raw).steps
        ('tidy',)
    """

    file: PipelineFile
    order: tuple[AnyStep, ...]
    trusted: bool = False
    folder: str = ""

    @classmethod
    def load(cls, path: str | Path, variables: Mapping[str, str] | None = None, *, trust: bool = False) -> Pipeline:
        """Read a TOML file.

        Args:
            path: The file. It must come from a trusted source: it can read and write whatever you can.
            variables: Values that override the defaults of the file.
            trust: Allow features that can run code or read elsewhere: functions of Python, functions that call Java,
                scripts, readers such as jdbc, tables that the file does not declare, Spark settings that load jars.

        Raises:
            PipelineFileError: The file is invalid, or needs ``trust``; each error has its key.
        """
        folder = os.path.dirname(os.path.abspath(path))
        return cls._checked(load_file(path, variables or {}), str(path), trust=trust, folder=folder)

    @classmethod
    def of(cls, raw: Mapping[str, Any], variables: Mapping[str, str] | None = None, *, trust: bool = False) -> Pipeline:
        """Create a pipeline from a mapping, as `tomllib` returns it."""
        return cls._checked(parse(raw, variables or {}), "pipeline", trust=trust)

    @classmethod
    def _checked(cls, file: PipelineFile, name: str, *, trust: bool, folder: str = "") -> Pipeline:
        problems = [] if trust else list(distrusted(file))
        if problems:
            raise PipelineFileError(name, problems)
        return cls(file, tuple(in_order(file, name)), trust, folder)

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON schema of a pipeline file, for editors."""
        return PipelineFile.model_json_schema()

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps in the order in which they run."""
        return tuple(step.name for step in self.order)

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        idempotency_key: str | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        progress: Progress = None,
        select: Sequence[str] = (),
        reload: bool = False,
        listeners: Sequence[Listener] = (),
    ) -> PipelineResult:
        """Run all steps, or those that are selected. `preview` returns what they would do.

        Args:
            spark: The session; by default the active one, one of the environment (spark-submit), or a local one.
            idempotency_key: Key of this run; a run with the same key skips committed steps. By default the key of the
                file, else a new one.
            master: Spark master of a session that is started here; overrides the file.
            conf: Settings of a session that is started here; they override the file.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            select: Names of steps to run; ``"step+"`` also runs those after it, ``"+step"`` those that it needs.
                Steps that only make rows are computed wherever they are needed.
            reload: Let the steps start from the beginning: they forget the source files, positions and keys of datasets
                that another program removed or wrote anew, or that have no rows, and load everything again.
            listeners: Objects that are called when the run and its steps start and end.

        Returns:
            A record for each step.

        Raises:
            StepFailedError: A step failed; ``result`` is the result so far, ``__cause__`` the error. It is
                `DatasetLostError` if the rows that a step has loaded are gone, and with ``reload``
                `DatasetExistsError` if they are there.
        """
        run = self._execution(Session(spark, master, dict(conf or {})), idempotency_key, reload=reload)
        run.progress, run.listeners = progress, tuple(listeners)
        return run.all(self.order, self._chosen(select))

    def preview(
        self,
        spark: SparkSession | None = None,
        *,
        idempotency_key: str | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        select: Sequence[str] = (),
        reload: bool = False,
    ) -> PipelinePreview:
        """Let Spark resolve every column and expression, and return what each step would do. Nothing is written.

        Rows are not read: columns come from footers, and of csv and json files from the beginning of the first one.
        How many rows a step would change is therefore not known.

        Args:
            spark: The session, as for `run`. It is started only if a step has rows.
            idempotency_key: Key of the run, to show which steps it would skip.
            master: Spark master of a session that is started here.
            conf: Settings of a session that is started here.
            select: The steps to show, as for `run`.
            reload: Show a run that starts from the beginning.

        Raises:
            StepFailedError: A step cannot run; the message and ``step`` name it, ``__cause__`` is the error.
        """
        from fsspeckit.pipeline.preview import preview

        run = self._execution(Session(spark, master, dict(conf or {})), idempotency_key, reload=reload)
        return preview(run, self.order, self._chosen(select))

    def _execution(self, session: Session, idempotency_key: str | None, *, reload: bool) -> Execution:
        key = idempotency_key or self.file.idempotency_key
        run = Execution(self.file, session, self.trusted, self.folder, reload=reload)
        run.key, run.is_named = key or uuid.uuid4().hex, key is not None
        return run

    def graph(self, format: GraphFormat = "mermaid") -> str:  # noqa: A002
        """Return the graph of sources, steps and datasets, as ``"mermaid"`` or as ``"svg"``."""
        from fsspeckit.pipeline.step_graph import render_graph

        return render_graph(self.file, format)

    def _chosen(self, select: Sequence[str]) -> set[str]:
        return selected(self.file, select) if select else set(self.steps)

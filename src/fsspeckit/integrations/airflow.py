"""Operators for Airflow 3: run a pipeline file, or one operation on a dataset, at most once for each run of a DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from fsspeckit.api import dataset_io
from fsspeckit.common.choices import DEFAULT_ENGINE
from fsspeckit.common.errors import AlreadyCommittedError
from fsspeckit.handle import Dataset
from fsspeckit.pipeline import Pipeline, PipelineFileError

OPERATIONS = ("append", "apply_changes", "compact", "deduplicate", "delete", "merge", "optimize", "update", "write")
"""What `DatasetOperator` can do: the methods of `fsspeckit.Dataset` that change rows or files."""
_KEY = "airflow/{{ dag.dag_id }}/{{ run_id }}/{{ task.task_id }}/{{ ti.map_index }}"


class PipelineOperator(BaseOperator):  # type: ignore[misc]
    """Run a pipeline file; the task returns the document of the run.

    The key of the run is the id of the DAG run, so a retry of the task, or a cleared task, skips the steps that are
    committed. All arguments but ``trust`` are templates.

    Args:
        pipeline: The path of the file.
        variables: Variables of the file, such as ``{"day": "{{ ds }}"}``.
        select: Steps to run, as ``fsspeckit run --select``.
        idempotency_key: Another key of the run.
        master: Spark master, unless a session exists.
        conf: Settings of a Spark session that is started here.
        trust: Allow what can run code, as ``fsspeckit run --trust``.
        **kwargs: Arguments of every operator, such as ``task_id``.
    """

    template_fields: Sequence[str] = ("pipeline", "variables", "select", "idempotency_key", "master", "conf")

    def __init__(
        self,
        *,
        pipeline: str,
        variables: Mapping[str, str] | None = None,
        select: Sequence[str] = (),
        idempotency_key: str = _KEY,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        trust: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.variables, self.select = pipeline, dict(variables or {}), list(select)
        self.idempotency_key, self.master, self.conf, self.trust = idempotency_key, master, dict(conf or {}), trust

    def execute(self, context: Any) -> dict[str, Any]:  # noqa: ARG002 - the interface of Airflow
        """Run the pipeline. A mistake in the file fails the task without retries."""
        try:
            found = Pipeline.load(self.pipeline, self.variables, trust=self.trust)
        except PipelineFileError as error:
            raise AirflowFailException(str(error)) from error
        result = found.run(idempotency_key=self.idempotency_key, master=self.master, conf=self.conf, select=self.select)
        return result.to_dict()


class DatasetOperator(BaseOperator):  # type: ignore[misc]
    """Run one operation on a dataset; the task returns its counts.

    The commit has the id of the DAG run and of the task as its key, so a retry does not repeat it. ``path``,
    ``arguments`` and ``storage_options`` are templates.

    Args:
        path: The folder or URL of the dataset.
        operation: A method of `fsspeckit.Dataset` that changes rows or files, such as ``"merge"``.
        arguments: Its arguments by name, such as ``{"data": "landing/{{ ds }}.csv"}``.
        engine: The engine.
        key: The column or columns that identify a row.
        partition_by: Partition columns, for the first write.
        storage_options: Options of the filesystem of a URL.
        idempotency_key: Another key of the commit.
        **kwargs: Arguments of every operator, such as ``task_id``.
    """

    template_fields: Sequence[str] = ("path", "arguments", "storage_options", "idempotency_key")

    def __init__(
        self,
        *,
        path: str,
        operation: str,
        arguments: Mapping[str, Any] | None = None,
        engine: str = DEFAULT_ENGINE,
        key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        idempotency_key: str = _KEY,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if operation not in OPERATIONS:
            raise ValueError(f"operation={operation!r} is unknown. Use one of {', '.join(OPERATIONS)}.")
        self.path, self.operation, self.arguments = path, operation, dict(arguments or {})
        self.engine, self.key, self.partition_by = engine, key, partition_by
        self.storage_options, self.idempotency_key = storage_options, idempotency_key

    def execute(self, context: Any) -> dict[str, Any]:  # noqa: ARG002 - the interface of Airflow
        """Run the operation, unless an earlier try has committed it."""
        io = dataset_io(self.engine, None, self.storage_options).on_terms(idempotency_key=self.idempotency_key)
        dataset = Dataset(self.path, engine=io, key=self.key, partition_by=self.partition_by)
        try:
            result = getattr(dataset, self.operation)(**self.arguments)
        except AlreadyCommittedError as error:
            self.log.info("an earlier try of this task has committed: %s", error)
            return {"status": "skipped", "commit_seq": error.seq}
        return {"status": "done", **result.to_dict()}

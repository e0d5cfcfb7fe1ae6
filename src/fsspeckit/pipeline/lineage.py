"""OpenLineage events of a run and of its steps, sent by the client library (extra `lineage`).

A run and each step that changes or checks a dataset has a START event and a COMPLETE or FAIL event. A step's event
names its run as the parent, and the files and datasets that it reads and writes. An event that cannot be
sent is logged and never ends a run.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.install import install_command
from fsspeckit.common.text import scrub
from fsspeckit.core.storage.urls import to_fsspec
from fsspeckit.pipeline.model import AnyStep, PipelineFile
from fsspeckit.pipeline.order import changed_by, dataset_of, inputs_of, is_writer
from fsspeckit.pipeline.results import PipelineResult, StepRecord

_PRODUCER = "urn:fsspeckit"
_STATES = {"done": "COMPLETE", "skipped": "COMPLETE", "failed": "FAIL"}
_logger = logging.getLogger(__name__)


class LineageNotFoundError(FsspeckitError, ImportError):
    """The client library of OpenLineage is not installed."""


class LineageListener:
    """Sends OpenLineage events; pass it to `Pipeline.run`.

    Args:
        target: An ``http://`` or ``https://`` URL of a server, or a file to which events are appended, one JSON object
            in each line.
        namespace: The namespace of jobs.
    """

    def __init__(self, target: str, namespace: str = "fsspeckit") -> None:
        if find_spec("openlineage") is None:
            raise LineageNotFoundError(
                f"lineage needs openlineage-python; install it with `{install_command('openlineage-python')}`"
            )
        self._client, self._namespace = _client(target), namespace
        self._lock = threading.Lock()
        self._runs: dict[str, str] = {}
        self._file: PipelineFile | None = None

    def run_started(self, file: PipelineFile, key: str) -> None:  # noqa: ARG002 - a listener gets it
        """Send the START event of the run."""
        self._file = file
        self._runs = {"": str(uuid.uuid4())}
        self._emit("START", "")

    def step_started(self, step: AnyStep) -> None:
        """Send the START event of a step that changes or checks rows."""
        if _has_events(step):
            self._runs[step.name] = str(uuid.uuid4())
            self._emit("START", step.name, step)

    def step_ended(self, step: AnyStep, record: StepRecord) -> None:
        """Send the COMPLETE or FAIL event of a step."""
        if step.name in self._runs:
            self._emit(_STATES[record.status], step.name, step, record)

    def run_ended(self, result: PipelineResult) -> None:
        """Send the COMPLETE or FAIL event of the run."""
        self._emit(_STATES[result.status], "", None, result)

    def _emit(
        self, state: str, name: str, step: AnyStep | None = None, result: StepRecord | PipelineResult | None = None
    ) -> None:
        from openlineage.client import event_v2 as lineage

        assert self._file is not None
        record = result if isinstance(result, StepRecord) else None
        job = f"{self._file.name}.{name}" if name else self._file.name
        error = None if result is None else result.error
        event = lineage.RunEvent(
            eventType=lineage.RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=lineage.Run(self._runs[name], facets=self._run_facets(name, error)),
            job=lineage.Job(self._namespace, job, facets=_job_facets(step)),
            producer=_PRODUCER,
            inputs=[lineage.InputDataset(*each) for each in _inputs(self._file, step)],
            outputs=[
                lineage.OutputDataset(*each, outputFacets=_output_facets(record)) for each in _outputs(self._file, step)
            ],
        )
        try:
            with self._lock:
                self._client.emit(event)
        except Exception as failed:  # noqa: BLE001 - a run does not depend on the server of its lineage
            _logger.warning("an OpenLineage event was not sent: %s", scrub(str(failed)))

    def _run_facets(self, name: str, error: str | None) -> dict[str, Any]:
        from openlineage.client.facet_v2 import error_message_run, parent_run

        assert self._file is not None
        facets: dict[str, Any] = {}
        if name:
            parent = parent_run.Job(self._namespace, self._file.name)
            facets["parent"] = parent_run.ParentRunFacet(run=parent_run.Run(self._runs[""]), job=parent)
        if error:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message=error, programmingLanguage="Python")
        return facets


def _client(target: str) -> Any:
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.file import FileConfig, FileTransport
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    if target.startswith(("http://", "https://")):
        return OpenLineageClient(transport=HttpTransport(HttpConfig(url=target)))
    return OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=target, append=True)))


def _has_events(step: AnyStep) -> bool:
    return is_writer(step) or step.do == "check"


def _job_facets(step: AnyStep | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import job_type_job, sql_job

    kind = "PIPELINE" if step is None else step.do.upper()
    facets: dict[str, Any] = {
        "jobType": job_type_job.JobTypeJobFacet(processingType="BATCH", integration="FSSPECKIT", jobType=kind)
    }
    query = getattr(step, "query", None)
    if query is not None:
        facets["sql"] = sql_job.SQLJobFacet(query=query)
    return facets


def _output_facets(record: StepRecord | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    if record is None or record.rows is None:
        return {}
    facet = statistics.OutputStatisticsOutputDatasetFacet(
        rowCount=record.rows, size=record.bytes, fileCount=record.files
    )
    return {"outputStatistics": facet}


def _inputs(file: PipelineFile, step: AnyStep | None) -> Iterable[tuple[str, str]]:
    """Return the namespaces and names of what the rows of a step come from; of a run, of all that its steps read."""
    steps = {each.name: each for each in file.steps}
    left = [name for each in ([step] if step is not None else file.steps) for name in inputs_of(each)]
    found: dict[tuple[str, str], None] = {}
    seen = set[str]()
    while left:
        name = left.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if name in steps:
            left += inputs_of(steps[name])
        elif name in file.sources and file.sources[name].dataset is None:
            source = file.sources[name]
            found |= dict.fromkeys(dataset_name(path) for path in source.paths or [f"{source.format}://{name}"])
        else:
            dataset = file.sources[name].dataset if name in file.sources else name
            found[dataset_name(file.datasets[dataset or ""].path)] = None
    if step is not None and not is_writer(step) and dataset_of(step) is not None:
        found[dataset_name(file.datasets[dataset_of(step) or ""].path)] = None
    return found


def _outputs(file: PipelineFile, step: AnyStep | None) -> Iterable[tuple[str, str]]:
    changed = [name for each in ([step] if step is not None else file.steps) for name in sorted(changed_by(each))]
    return dict.fromkeys(dataset_name(file.datasets[name].path) for name in changed)


def dataset_name(path: str) -> tuple[str, str]:
    """Return the namespace and name of a path, as OpenLineage defines them.

    Examples:
        >>> dataset_name("s3a://lake/orders/"), dataset_name("/data/orders")
        (('s3://lake', 'orders'), ('file', '/data/orders'))
    """
    url = scrub(to_fsspec(path)).rstrip("/")
    scheme, found, rest = url.partition("://")
    if not found or scheme == "file":
        return "file", os.path.abspath(rest if found else url)
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}", name or "/"

"""Pipelines: sources, steps and checks in a TOML file, run on Spark. A run can be repeated safely.

Must not: contain an operation on a dataset; steps call the Spark engine.
Read first: model.py for the file, run.py for a run.
"""

from __future__ import annotations

from fsspeckit.pipeline.lineage import LineageListener
from fsspeckit.pipeline.load import PipelineFileError
from fsspeckit.pipeline.preview_result import PipelinePreview, StepPreview
from fsspeckit.pipeline.results import PipelineResult, StepFailedError, StepRecord
from fsspeckit.pipeline.run import Pipeline

__all__ = [
    "LineageListener",
    "Pipeline",
    "PipelineFileError",
    "PipelinePreview",
    "PipelineResult",
    "StepFailedError",
    "StepPreview",
    "StepRecord",
]

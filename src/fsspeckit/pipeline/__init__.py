"""Pipelines that a file declares: sources, steps and checks, run on Spark, safe to run again."""

from __future__ import annotations

from fsspeckit.pipeline.load import PipelineFileError
from fsspeckit.pipeline.results import PipelineResult, StepFailedError, StepRecord
from fsspeckit.pipeline.run import Pipeline

__all__ = ["Pipeline", "PipelineFileError", "PipelineResult", "StepFailedError", "StepRecord"]

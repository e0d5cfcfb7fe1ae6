"""Measure how large files become that are joined or sorted: trial writes to memory, run by an engine."""

from __future__ import annotations

from collections.abc import Sequence

from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.trial_write import TrialWrite
from fsspeckit.core.model import DataFile
from fsspeckit.core.planning.maintenance_request import MaintenanceScope
from fsspeckit.core.planning.output_sizes import OutputSizes, Target
from fsspeckit.core.progress import Reporter


def sizes_of_small_files(
    engine: Engine,
    place: Place,
    snapshot: Snapshot,
    target: Target,
    scope: MaintenanceScope,
    reporter: Reporter,
    *,
    most_trials: int | None = None,
) -> OutputSizes:
    """Return estimates of the size of small files once they are joined."""
    sizes = OutputSizes.of(snapshot.files, target, scope.options)
    small = [file for file in snapshot.files if target.fill(file.size, file.rows) < 1]
    return measure_sizes(engine, place, sizes, small, reporter, most_trials=most_trials)


def measure_sizes(
    engine: Engine,
    place: Place,
    sizes: OutputSizes,
    files: Sequence[DataFile],
    reporter: Reporter,
    *,
    most_trials: int | None = None,
) -> OutputSizes:
    """Return size estimates for some files. Trial writes measure those that footers do not determine.

    If there are more kinds of files than ``most_trials``, the others are estimated from footers.
    """
    trials = sizes.trials(files)[:most_trials]
    if not trials:
        return sizes
    on_done = reporter.stage("measure", len(trials))
    with vanished_file_is_conflict(place, "run"):
        return sizes.with_rates(trials, engine.map(TrialWrite(place.storage), trials, on_done))
